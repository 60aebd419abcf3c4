"""`sys._getframe`: the frames that are interpreted, as objects.

In: how many frames up. Out: `RunningFrame`. Invariant: what it says holds where it is requested;
one that leaves captured code is Python's own.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.observe.unguarded import name_of, unguarded
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, constant_of
from flambeau_capture.values.functions.call_rules import handles

unguarded(name_of(sys._getframe), "the frames that are asked are captured ones")


class RunningFrame(Value):
    """A frame that is being interpreted, so many from the outermost."""

    described = "the frame of {0.frame.code.co_name}"
    cls: type = FrameType

    def __init__(self, frame: Any, place: int, step: int) -> None:
        self.frame, self.depth, self.step = frame, place, step

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "f_globals":
            namespace: Value = self.frame.scope.as_dict()
            return namespace
        if name == "f_lineno":
            return Constant(self.frame.line().lineno)
        if name == "f_back" and self.depth:
            return _frame_at(tx, self.depth - 1)
        if name == "f_code" and (self.depth == 0 or not self._goes_on()):
            return tx.wrap_new(tx.origin if self.depth == 0 else self.frame.code)
        self.unknown(f"attribute {name!r}")

    def _goes_on(self) -> bool:
        """Whether its code is a resume function's, which the program does not know."""
        return any(name.startswith("___") for name in self.frame.code.co_varnames)


def _frame_at(tx: Tracer, place: int) -> Value:
    frame = tx.frames[place]
    found: Value = tx.heap.value_of(frame, lambda: RunningFrame(frame, place, tx.step()))
    return found


@handles(sys._getframe)
def _getframe(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    depth = constant_of(args[0]) if args else 0
    if type(depth) is not int or not 0 <= depth < len(tx.frames):
        raise Break("FB0005", f"sys._getframe({depth}), which is not captured")
    return _frame_at(tx, len(tx.frames) - 1 - depth)
