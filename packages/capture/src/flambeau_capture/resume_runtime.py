"""Runtime support of resume functions.

In: functions that generated code has made. Out: `Completed`, `Continue` and `drive`. Invariant: a
resume function either returns the program's own result or a `Continue`, and only `drive` calls
resume functions, so that a loop with a break in its body does not use up the stack. It is native:
no frame of its own shows, and what a function is given nobody else keeps.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from flambeau_capture._native import drive, set_continue

#: the variable of a resume function that holds the rest of the frame that its own has called
CALLEE = "___callee"


class Completed:
    """The unsupported instruction of an inlined function is done, and raised nothing; `going`: how
    its frame, and those between it and the compiled one, go on."""

    __slots__ = ("going",)

    def __init__(self, going: Continue) -> None:
        self.going = going


class Continue(functools.partial[Any]):
    """A resume function and what it is given, once: a call by `drive` empties it."""


set_continue(Continue)


def is_completed(result: object) -> bool:
    return type(result) is Completed


__all__ = ["CALLEE", "Completed", "Continue", "drive", "is_completed"]


def special_method(owner: Any, name: str) -> Any:
    """A method of `with` or `async with`, bound, as they look it up: of the class."""
    kind = type(owner)
    holder = next((one for one in kind.__mro__ if name in vars(one)), None)
    if holder is None:
        _refuse(owner, name)
    found = vars(holder)[name]
    bind = getattr(type(found), "__get__", None)
    return found if bind is None else bind(found, owner, kind)


def _refuse(owner: Any, name: str) -> None:
    """What CPython says of an object without that method. Nothing is called of one without."""

    async def enter() -> None:
        async with owner:
            pass

    if name.startswith("__a"):
        enter().send(None)
    with owner:
        pass


def is_empty(cell: types.CellType) -> bool:
    """The question of a guard, and of generated code: does a cell hold nothing?"""
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False
