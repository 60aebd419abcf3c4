"""Errors of NumPy's arithmetic, such as a division by zero, of which torch's operators note none.

In: NumPy's error state and the filters of warnings, as they are now. Out: guards, or a graph break
where a program would see more than a warning. Invariant: warnings alone are lost.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Tracer

np: Any = sys.modules["numpy"]  # the program has imported it


def assume_unwatched(tx: Tracer) -> None:
    """Assume that nothing but a warning comes of what NumPy's arithmetic raises, such as a division
    by zero: torch's operators note none."""
    modes = error_modes()
    warns = "warn" in modes
    if {*modes} - {"warn", "ignore"} or (warns and not warns_at_most(warnings)):
        raise Break("FB0003", "NumPy where an error of its arithmetic is more than a warning")
    tx.guard(ConstantSource(error_modes, "geterr"), "ANSWER", modes)
    if warns:
        tx.guard(ConstantSource(warnings, "filters"), "CALL", warns_at_most, "make no error")


def error_modes() -> tuple[str, ...]:
    """What NumPy does about errors of its arithmetic, by kind."""
    return tuple(np.geterr().values())


def warns_at_most(module: Any) -> bool:
    """Whether no filter makes an error of a warning of NumPy's arithmetic."""
    for action, words, category, place, line in module.filters:
        if issubclass(RuntimeWarning, category):
            if action == "error":
                return False
            if words is None and place is None and line == 0:
                return True
    return True
