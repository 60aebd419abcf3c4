"""Stance: compile, run only, run eagerly, fail on recompile.

In: the name of a stance. Out: `set_stance`, `run`. Invariant: a stance holds for every compiled
callable of the process, those made later too, and what it replaced comes back when its block ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar

import torch

from flambeau_capture import _native
from flambeau_capture.frame.module_twins import twin_of

F = TypeVar("F", bound=Callable[..., Any])

#: the stance as users write it, and the mode of the frame cache that it is; the first of a mode is
#: the one that `get_stance` answers
STANCES = {
    "default": "default",
    "eager": "off",
    "run_only": "run_only",
    "fail_on_recompile": "fail_on_recompile",
    "eager_then_compile": "default",
    "aot_eager_then_compile": "default",
    "force_eager": "off",
    "eager_on_recompile": "run_only",
}
#: those under which the first call of a code object runs as it is, and its sizes are noted
WAITING = frozenset({"eager_then_compile", "aot_eager_then_compile"})


class _Waiting:
    """Whether first calls run as they are: the part of the stance that the frame cache has no mode
    of its own for, since only frames that no entry fits ask it."""

    on = False


def waits() -> bool:
    """Whether the first call of a code object runs as it is."""
    return _Waiting.on


def _set(stance: tuple[str, bool]) -> tuple[str, bool]:
    """Let a mode and a waiting hold; those before."""
    before = _native.set_stance(stance[0]), _Waiting.on
    _Waiting.on = stance[1]
    return before


class set_stance:
    """Choose what happens where compiled code runs from now on.

    stance: "default" compiles calls; "eager" runs everything as it is; "run_only" uses what
        is compiled and compiles nothing; "fail_on_recompile" raises `RecompileError`, with the
        reason, where a function that was compiled would have to be compiled again;
        "eager_then_compile" runs the first call of each function as it is and notes its sizes: if
        the second's are others, its code is made for any. Torch's names are taken too:
        "force_eager", "eager_on_recompile" ("run_only"), "aot_eager_then_compile".

    It takes effect at once. As a context manager or as a decorator it ends with the block or the
    call: `with set_stance("eager"): ...`.
    """

    def __init__(self, stance: str) -> None:
        if stance not in STANCES:
            raise ValueError(f"no stance {stance!r}; there are {', '.join(STANCES)}")
        self.stance = stance
        self._before = _set((STANCES[stance], stance in WAITING))

    def __enter__(self) -> set_stance:
        return self

    def __exit__(self, *error: object) -> None:
        _set(self._before)

    def __call__(self, fn: F) -> F:
        _set(self._before)  # it holds while the function runs, not before
        made: F = _within(functools.partial(set_stance, self.stance), fn)
        return made


def _within(stance: Callable[[], Any], fn: Any) -> Any:
    """A function that runs in a stance of its own; of a module, a module that shares its state."""
    if isinstance(fn, torch.nn.Module):
        return twin_of(fn, functools.partial(_within, stance))

    @functools.wraps(fn)
    def within(*args: Any, **kwargs: Any) -> Any:
        with stance():
            return fn(*args, **kwargs)

    return within


def get_stance() -> str:
    """The stance that holds now."""
    if waits():
        return "eager_then_compile"
    mode = _native.stance()
    return next(name for name, row in STANCES.items() if row == mode)


class run(ContextDecorator):
    """Entries that exist are used and none is made: `with run(): ...`, or `run(fn)`."""

    def __new__(cls, fn: Any = None) -> Any:
        if fn is None:
            return super().__new__(cls)

        return _within(run, fn)

    def __enter__(self) -> run:
        self._before = _native.set_stance("run_only")
        return self

    def __exit__(self, *error: object) -> None:
        _native.set_stance(self._before)
