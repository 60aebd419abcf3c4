"""Warnings that point at the program's own lines.

In: a text. Out: a `CaptureWarning` at the innermost line that is neither torch's, nor Python's, nor
this package's. Invariant: a warning is given once per line and text, as `warnings` has it.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from flambeau_capture.errors import CaptureWarning
from flambeau_capture.frame.skip_rules import skip_file


def warn(text: str) -> None:
    """Say that something runs eagerly that was to be compiled."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and skip_file(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    warnings.warn(text, CaptureWarning, stacklevel=level if frame is not None else 2)
