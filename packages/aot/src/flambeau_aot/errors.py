"""Exceptions of this package.

In: the words of what was found and, where known, the user's source lines. Out: exceptions whose
text names the line, what was found and what to change.
Invariant: every refusal of this package is an `AotError`; anything else is a defect.
"""

from __future__ import annotations

import re


class AotError(RuntimeError):
    """Base of everything this package raises on purpose; `user_lines` is "" where unknown."""

    def __init__(self, message: str, user_lines: str = "") -> None:
        self.message = message
        self.user_lines = user_lines.rstrip()
        text = f"{message}\nFrom your code:\n{self.user_lines}" if self.user_lines else message
        super().__init__(text)

    @property
    def id(self) -> str:
        """The id of the refusal (`refusals`) that its message begins with; "" for another error."""
        found = re.match(r"AO\d{4}(?=: )", self.message)
        return found.group() if found else ""


class TraceError(AotError):
    """Running the program on fake values raised."""


class DataDependent(TraceError):
    """The program needs a tensor's value (a branch on it, `.item()`, a size taken from it)."""


class Unsupported(AotError):
    """A program this package refuses rather than risk a wrong answer."""


class RefusedCall(TraceError, Unsupported):
    """What the program calls raised on values without data, as it may in eager: an operator or a
    formula of a derivative refuses its arguments, or the program's own code raises."""


def is_refusal(error: BaseException) -> bool:
    """Whether an error is the program's or torch's own, and not a defect of this stack.

    The rule: torch refuses with errors of exactly these classes; those that Python raises itself,
    or for code too, are refusals unless the frame that raised is of these packages. An assertion
    inside torch is none.
    """
    if type(error) in (RuntimeError, NotImplementedError):
        if not any(words in str(error) for words in _OF_PYTHON):
            return not any(words in str(error) for words in _DEFECTS)
    elif type(error) not in (ValueError, IndexError, TypeError):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    return not name.startswith("flambeau")


# Plain RuntimeErrors that the interpreter raises, for whatever code was running.
_OF_PYTHON = (
    "generator raised StopIteration",
    "changed size during iteration",
    "mutated during iteration",
    "keys changed during iteration",
    "lost sys.",
)
_DEFECTS = (
    "INTERNAL ASSERT",
    "only support functionalizing operators",
    "Expected __torch_dispatch__",
)


class NotYetSymbolic(Unsupported):
    """A symbolic size reached a stage that takes static sizes only."""


class AliasingChanged(AotError):
    """Arguments share memory in another way than when the program was traced."""


class CompilerContractError(AotError):
    """A graph compiler returned something else than its contract says."""


class DoubleBackwardError(AotError):
    """Derivatives of second order through a compiled graph that there are none of."""
