"""What a habit is: a function, its arguments, and named ways to change what it reads.

In: a maker decorated with `habit`. Out: the table `HABITS`. Invariant: a maker makes everything its
case reads anew, and whatever a change does to torch or Python is undone by `undo`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

Maker = Callable[[random.Random], "Case"]
HABITS: dict[str, Maker] = {}


@dataclass
class Case:
    """`modes` are entered around each call, `before` is called before each."""

    fn: Callable[..., Any]
    own: list[Any] = field(default_factory=list)
    changes: dict[str, Callable[[], Any]] = field(default_factory=dict)
    own_modes: list[Callable[[], AbstractContextManager[Any]]] = field(default_factory=list)
    own_undo: list[Callable[[], Any]] = field(default_factory=list)
    before: Callable[[], Any] | None = None
    parts: list[Case] = field(default_factory=list)

    def change(self, fn: Callable[[], Any]) -> Callable[[], Any]:
        self.changes[fn.__name__] = fn
        return fn

    @property
    def arguments(self) -> list[Any]:
        return self.own + [one for part in self.parts for one in part.arguments]

    @property
    def modes(self) -> list[Callable[[], AbstractContextManager[Any]]]:
        return self.own_modes + [mode for part in self.parts for mode in part.modes]

    @property
    def undo(self) -> list[Callable[[], Any]]:
        return self.own_undo + [undo for part in self.parts for undo in part.undo]

    def rewind(self) -> None:
        """Before each call, so that both see the same."""
        torch.manual_seed(3)
        if self.before is not None:
            self.before()
        for part in self.parts:
            part.rewind()

    def patch(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of something that outlives the case."""
        missing = object()
        old = vars(owner).get(name, missing)

        def back() -> None:
            if old is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, old)

        self.own_undo.append(back)
        setattr(owner, name, value)


def habit(maker: Maker) -> Maker:
    HABITS[maker.__name__] = maker
    return maker


def x() -> torch.Tensor:
    return torch.tensor([-2.0, -0.0, 0.5, 3.0], device="cpu")
