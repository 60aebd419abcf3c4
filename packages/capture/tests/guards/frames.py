"""Frames whose guards are asked natively and by the reference, and what they hold."""

from __future__ import annotations

import builtins
from types import CellType

from flambeau_capture.guards import Guards, GuardSet
from flambeau_capture.source import Local, Scope


def make_frame_function():
    captured = None

    def frame(x, y=None, *args, key=None, **kwargs):
        return captured

    return frame


FRAME = make_frame_function()


CODE = FRAME.__code__


class Frame:
    """One set of arguments, seen as the hook sees them and as the reference does."""

    def __init__(self, x=None, y=None, free=None, globals=None):
        self.locals = {"x": x, "y": y, "args": (), "key": None, "kwargs": {}}
        self.cell, self.globals = CellType(free), globals or {}

    def native(self, guards: Guards) -> bool:
        values = tuple(self.locals[name] for name in ("x", "y", "key", "args", "kwargs"))
        return guards.native.check(values, (self.cell,), self.globals, vars(builtins))

    def scope(self) -> Scope:
        free, cells = {"captured": self.cell.cell_contents}, {"captured": self.cell}
        return Scope(self.locals, free, self.globals, vars(builtins), cells)


def agree(guards: Guards, frame: Frame) -> bool:
    """The answer, after making sure that there is one."""
    native, reference = frame.native(guards), guards.check(frame.scope())
    assert native == reference
    failure = guards.explain(frame.scope())
    assert (failure is None) == reference
    if failure is not None:
        assert str(failure).startswith(str(failure.guard))
    return native


def one(kind, *params, source=None) -> Guards:
    guards = GuardSet(CODE)
    guards.add(source or Local("x"), kind, *params)
    return guards.finish()


def holds(kind, params, value) -> bool:
    return agree(one(kind, *params), Frame(value))


class Angry:
    """Nothing may be asked of it."""

    def __eq__(self, other):
        raise RuntimeError("eq")

    __hash__ = object.__hash__

    def __len__(self):
        raise RuntimeError("len")

    def __repr__(self):
        raise RuntimeError("repr")

    def __getattr__(self, name):
        raise RuntimeError("getattr")


class Plain:
    shared = 3


def plain(**attributes):
    value = Plain()
    value.__dict__.update(attributes)
    return value
