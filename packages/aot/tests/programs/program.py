"""A program as source text, made by trying one statement after the other in eager.

What comes in: a draft (inputs, statements by name and numbers, results by number). What goes
out: a `Program` whose statements all run in eager, or whose last one raises.
Invariant: the draft decides the program; building it twice gives the same text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .inputs import Inputs, make
from .scope import SCOPE
from .statements import FAMILIES, Operands

Step = tuple[str, str, int, int, int, int]
"""Family, statement, two operands and two small numbers."""

LIMIT = 400
"""No tensor of a program grows beyond so many elements."""

EAGER_REFUSES = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)


@dataclass(frozen=True)
class Draft:
    """What is drawn."""

    inputs: Inputs
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    extras: int
    mode: str
    writes_after: tuple[int, ...]
    keep_failing: bool
    partition: str
    seed: int


@dataclass(frozen=True)
class Program:
    """A program that runs alone: `def program(...)` in `source`, and how it is called."""

    source: str
    draft: Draft
    raises: bool

    def function(self) -> Callable[..., Any]:
        """A fresh function of this source."""
        scope = dict(SCOPE)
        exec(compile(self.source, "<program>", "exec"), scope)
        return scope["program"]


def grad_mode(mode: str) -> Any:
    """The mode a program is called in."""
    if mode == "inference":
        return torch.inference_mode()
    return torch.set_grad_enabled(mode == "grad")


def build(draft: Draft) -> Program:
    """Try every statement in eager; keep those that run."""
    made = make(draft.inputs, draft.seed, SCOPE)
    scope: dict[str, Any] = dict(SCOPE)
    names: list[str] = []
    for index, value in enumerate(made.inputs):
        names.append(f"x{index}")
        scope[names[-1]] = value
    body: list[str] = []
    raises = False
    torch.manual_seed(draft.seed)
    with grad_mode(draft.mode):
        for family, statement, one, other, i, j in draft.steps:
            if draft.mode == "inference" and ("hook" in statement or statement == "detach_"):
                # torch crashes on a hook for a view that inference mode has taken the history of,
                # and detaches nothing in place there.
                continue
            a, b = _picked(names, one), _picked(names, other)
            code = FAMILIES[family][statement](Operands(a, b, scope[a], scope[b], i, j))
            if code is None:
                continue
            fresh = f"v{len(body)}"
            code = re.sub(r"\br\b", fresh, code)
            try:
                exec(code, scope)
            except EAGER_REFUSES:
                scope.pop(fresh, None)
                if draft.keep_failing and family in ("write", "metadata") and a[0] == "x":
                    body.append(code)
                    raises = True
                    break
                continue
            body.append(code)
            value = scope.get(fresh)
            if isinstance(value, torch.Tensor):
                if value.numel() > LIMIT:
                    body.pop()
                    continue
                names.append(fresh)
    results = [_picked(names, pick + 1) for pick in draft.results]
    text = ", ".join(results)
    if draft.extras == 1:
        text = f"{text}, None, 3"
    elif draft.extras == 2:
        text = f"{{'key': [{text}], 'other': ({results[0]}, 'text')}}"
    arguments = ", ".join(f"x{index}" for index in range(len(made.inputs)))
    lines = [line for code in body for line in code.split("\n")]
    text = f"({text},)" if draft.extras < 2 else text
    source = "\n    ".join([f"def program({arguments}):", *lines, f"return {text}"])
    return Program(source, draft, raises)


def _picked(names: list[str], number: int) -> str:
    """Even numbers count from the first name, odd ones from the last."""
    place = (number // 2) % len(names)
    return names[-1 - place if number % 2 else place]
