"""Logging of capture by artifact, and warnings that point at the program's lines.

In: names of artifacts, from `set_logs` or the variable FLAMBEAU_LOGS; a warning's text. Out:
records of the loggers `flambeau_capture.<artifact>`; a `CaptureWarning` at the innermost line that
is neither torch's, Python's nor this package's. Invariant: nothing is stored outside `logging`, and
an artifact without a listener costs one check of a level.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TextIO

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


ROOT = "flambeau_capture"
ARTIFACTS = {
    "graph": "each FX graph, as a table, when it goes to the backend",
    "bytecode": "each function's bytecode before and after",
    "guards": "the guards of each new entry",
    "breaks": "each graph break: its id, what was met, the user's line, the edit that removes it",
    "recompiles": "why an entry did not fit, with both values",
    "settled": "each function that is compiled no more, or runs as it is as that is faster",
    "frames": "each frame that was converted, what came of it and the time it took",
    "instructions": "every instruction that is interpreted",
}
"""Artifact to what its records hold."""

VARIABLE = "FLAMBEAU_LOGS"


#: looked up once: a signal's handler that raises while one is looked up may leave a lock taken
_LOGGERS = {name: logging.getLogger(f"{ROOT}.{name}") for name in ARTIFACTS}


def artifact(name: str) -> logging.Logger:
    """The logger of an artifact."""
    return _LOGGERS[name]


def wanted(name: str) -> bool:
    """Whether anybody listens to an artifact."""
    return artifact(name).isEnabledFor(logging.DEBUG)


def emit(name: str, text: Callable[[], str]) -> None:
    """Log an artifact; its text is made only when somebody listens."""
    logger = artifact(name)
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s", text())


def set_logs(names: str | Iterable[str] = (), *, stream: TextIO | None = None) -> None:
    """Show these artifacts and no others.

    names: a comma-separated string or names of `ARTIFACTS`; "all" stands for each of them, and
        nothing turns them all off.
    stream: where they are printed; None is standard error. A handler of the program's own on the
        logger `flambeau_capture` takes precedence over it.
    Raises ValueError on a name that is no artifact.
    """
    chosen = _names(names)
    unknown = sorted(chosen - set(ARTIFACTS))
    if unknown:
        raise ValueError(f"no artifact named {unknown[0]!r}; there are {', '.join(ARTIFACTS)}")
    _apply(chosen, stream)


def from_environment() -> None:
    """Follow FLAMBEAU_LOGS. Names that belong to other layers are theirs to follow."""
    chosen = _names(os.environ.get(VARIABLE, "")) & set(ARTIFACTS)
    if chosen and not any(wanted(name) for name in chosen):
        _apply(chosen, None)


def _names(names: str | Iterable[str]) -> set[str]:
    listed = names.split(",") if isinstance(names, str) else list(names)
    found = {name.strip() for name in listed if name.strip()}
    return set(ARTIFACTS) if "all" in found else found


class _Printer(logging.StreamHandler[TextIO]):
    """The handler that `set_logs` puts in; known by its class, so that it is put in once."""


def _apply(chosen: set[str], stream: TextIO | None) -> None:
    root = logging.getLogger(ROOT)
    for handler in [h for h in root.handlers if isinstance(h, _Printer)]:
        root.removeHandler(handler)
    for name in ARTIFACTS:
        artifact(name).setLevel(logging.DEBUG if name in chosen else logging.NOTSET)
    if chosen and not root.handlers:
        printer = _Printer(stream)
        printer.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
        root.addHandler(printer)
