"""Workloads: each is a program of a library, built in the process that judges it.

In: functions marked `@workload`. Out: `WORKLOADS` by name. Invariant: a program draws its weights
and data from the seeded generators and downloads nothing, so that two builds of it are the same.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Compile = Callable[[Any], Any]


@dataclass
class Program:
    """`step()` draws data and does what is repeated; `kept` are the modules, optimizers and other
    objects whose state is compared after each step."""

    step: Callable[[], Any]
    kept: tuple[Any, ...] = ()

    def __init__(self, step: Callable[[], Any], *kept: Any) -> None:
        self.step, self.kept = step, kept


@dataclass(frozen=True)
class Workload:
    """`build(compile)` makes the program; `compile` is the identity in eager. installs: the program
    or its library calls `torch.compile` itself, so that Flambeau is installed instead."""

    name: str
    distributions: tuple[str, ...]
    build: Callable[[Compile], Program] = field(repr=False)
    installs: bool = False


WORKLOADS: dict[str, Workload] = {}


def workload(*distributions: str, installs: bool = False) -> Callable[[Any], Any]:
    """Register a program under the name of its function. distributions: whose versions matter."""

    def register(build: Callable[[Compile], Program]) -> Callable[[Compile], Program]:
        name = build.__name__
        if name in WORKLOADS:
            raise ValueError(f"two workloads are called {name}")
        WORKLOADS[name] = Workload(name, distributions, build, installs)
        return build

    return register


def load() -> dict[str, Workload]:
    """All workloads, by name."""
    from integration_tests.libraries import programs  # its modules import this one

    for found in pkgutil.iter_modules(programs.__path__):
        importlib.import_module(f"{programs.__name__}.{found.name}")
    return WORKLOADS
