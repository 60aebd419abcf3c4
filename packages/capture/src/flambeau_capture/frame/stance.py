"""Stance: compile, run only, run eagerly, fail on recompile.

In: the name of a stance. Out: `set_stance`, `run`. Invariant: a stance holds for every compiled
callable of the process, those made later too, and what it replaced comes back when its block ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar

from flambeau_capture import _native

F = TypeVar("F", bound=Callable[..., Any])

#: the stance as users write it, and the mode of the frame cache that it is
STANCES = {
    "default": "default",
    "eager": "off",
    "run_only": "run_only",
    "fail_on_recompile": "fail_on_recompile",
}


class set_stance:
    """Choose what happens where compiled code runs from now on.

    stance: "default" compiles calls; "eager" runs everything as it is; "run_only" uses what
        is compiled and compiles nothing; "fail_on_recompile" raises `RecompileError`, with the
        reason, where a function that was compiled would have to be compiled again.

    It takes effect at once. As a context manager or as a decorator it ends with the block or the
    call: `with set_stance("eager"): ...`.
    """

    def __init__(self, stance: str) -> None:
        if stance not in STANCES:
            raise ValueError(f"no stance {stance!r}; there are {', '.join(STANCES)}")
        self.stance = stance
        self._before = _native.set_stance(STANCES[stance])

    def __enter__(self) -> set_stance:
        return self

    def __exit__(self, *error: object) -> None:
        _native.set_stance(self._before)

    def __call__(self, fn: F) -> F:
        _native.set_stance(self._before)  # it holds while the function runs, not before

        @functools.wraps(fn)
        def within(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self.stance):
                return fn(*args, **kwargs)

        return within  # type: ignore[return-value]


def get_stance() -> str:
    """The stance that holds now."""
    mode = _native.stance()
    return next(name for name, row in STANCES.items() if row == mode)


class run(ContextDecorator):
    """Entries that exist are used and none is made: `with run(): ...`, or `run(fn)`."""

    def __new__(cls, fn: Any = None) -> Any:
        if fn is None:
            return super().__new__(cls)

        @functools.wraps(fn)
        def frozen(*args: Any, **kwargs: Any) -> Any:
            with run():
                return fn(*args, **kwargs)

        return frozen

    def __enter__(self) -> run:
        self._before = _native.set_stance("run_only")
        return self

    def __exit__(self, *error: object) -> None:
        _native.set_stance(self._before)
