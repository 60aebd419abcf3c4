"""The errors of this package.

What comes in: the words of what was met and, where known, the user's source lines.
What goes out: exceptions whose text names the line, what was met and what to change.
Invariant: every refusal of this package is an `AotError`; anything else is a defect.
"""

from __future__ import annotations


class AotError(RuntimeError):
    """Base of everything this package raises on purpose; `user_lines` is "" where unknown."""

    def __init__(self, message: str, user_lines: str = "") -> None:
        self.message = message
        self.user_lines = user_lines.rstrip()
        text = f"{message}\nFrom your code:\n{self.user_lines}" if self.user_lines else message
        super().__init__(text)


class TraceError(AotError):
    """Running the program on fake values raised."""


class DataDependent(TraceError):
    """The program needs a tensor's value (a branch on it, `.item()`, a size taken from it)."""


class Unsupported(AotError):
    """A program this package refuses rather than risk a wrong answer."""


class NotYetSymbolic(Unsupported):
    """A symbolic size reached a stage that takes static sizes only."""


class AliasingChanged(AotError):
    """Arguments share memory in another way than when the program was traced."""


class CompilerContractError(AotError):
    """A graph compiler returned something else than its contract says."""


class DoubleBackwardError(AotError):
    """Derivatives of second order through a compiled graph were asked for."""
