"""Exceptions of this package.

In: nothing. Out: the exceptions. Invariant: each message is one sentence that names what was seen.

Refusals of code generation. In: a reason. Out: an exception. Invariant: its message is one sentence
that names the operation or dtype; the caller makes it a fallback, counted and named.
"""

from __future__ import annotations

import sys
import warnings

OWN = frozenset({"flambeau", "flambeau_capture", "flambeau_aot", "flambeau_inductor", "torch"})
"""Packages whose lines no warning points at."""


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line that is the program's."""
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in OWN:
        frame, level = frame.f_back, level + 1  # type: ignore[assignment]
    warnings.warn(text, category, stacklevel=level if frame is not None else 2)


class InductorError(RuntimeError):
    """A graph that this package cannot compile; it names the node or the operation."""


class CompilerNotFound(InductorError):
    """No C++ compiler on this machine: it names what to install."""


class CompilerFailed(InductorError):
    """The C++ compiler rejected a generated unit: it carries the first lines of its output."""


class CacheWarning(UserWarning):
    """The cache folder cannot be used; kernels are built in a private folder that does not last."""


class TritonUnsupported(Exception):
    """The loop uses something that Triton kernels cannot express."""


class CppUnsupported(Exception):
    """A loop that cannot be written as C++: it names the operation or dtype."""
