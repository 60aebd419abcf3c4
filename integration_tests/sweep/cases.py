"""Cases of the sweep: each is a way to build one model and inputs for it.

In: a family's name. Out: its cases. Invariant: a case builds the same model and the same inputs in
every process, from configurations alone: nothing is downloaded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

Inputs = dict[str, Any]


class NotBuilt(Exception):
    """A model that its own library does not build or run in this form; the text says why."""


@dataclass(frozen=True)
class Subject:
    """A model, and inputs for two calls of it (`None`: positional)."""

    module: torch.nn.Module
    inputs: tuple[Inputs, Inputs]


@dataclass(frozen=True)
class Case:
    """`build()` makes the subject in the process that judges it."""

    name: str
    family: str
    build: Callable[[], Subject] = field(repr=False)


def runs(module: torch.nn.Module, inputs: Inputs) -> str | None:
    """None if eager runs the module on the inputs, else what it says."""
    try:
        with torch.no_grad():
            module.eval()(**inputs)
    except Exception as error:  # whatever eager refuses is no case
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
    return None


def positional(module: torch.nn.Module, *tensors: torch.Tensor) -> Inputs:
    """Tensors under the names of forward's first parameters."""
    names = list(inspect.signature(module.forward).parameters)
    return dict(zip(names, tensors))


def families() -> dict[str, Callable[[bool], Iterator[Case]]]:
    """Families by name; each is imported when it is asked for. The flag asks for every variant."""
    from integration_tests.sweep import small_models, timm_cases, torchvision_cases
    from integration_tests.sweep.transformers_models import cases as transformers_cases

    return {
        "small": small_models.cases,
        "torchvision": torchvision_cases.cases,
        "timm": timm_cases.cases,
        "transformers": transformers_cases.cases,
    }
