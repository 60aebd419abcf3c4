"""Exceptions and warnings of the public interface, each with what to do.

In: facts about a failure. Out: exception classes whose text is complete in itself.
Invariant: a failure of compiling is one of these; an exception of the user's code never is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from flambeau_inductor import errors as inductor_errors


class FlambeauError(RuntimeError):
    """Base of the errors that Flambeau raises, those of its siblings included."""

    __slots__ = ()  # laid out as its base is, in whose place `adopt` puts it


def adopt(*roots: type[RuntimeError]) -> None:
    """Make the roots of the siblings' errors kinds of `FlambeauError`, which they stand without."""
    for root in roots:
        if not issubclass(root, FlambeauError):
            root.__bases__ = (FlambeauError,)


class FlambeauWarning(UserWarning):
    """The program goes on, but not as it was meant to."""


def warn(text: str, category: type[Warning] = FlambeauWarning) -> None:
    """Warn at the innermost line that belongs neither to Flambeau nor to torch: the user's."""
    inductor_errors.warn(text, category)


class IncompatibleSiblings(FlambeauError, ImportError):
    """The installed packages of Flambeau do not fit together."""


class UnknownName(FlambeauError, ValueError):
    """A name that is not in its table; the text lists what is."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        names = sorted(known)
        close = get_close_matches(str(name), names)
        hint = f": did you mean {close[0]!r}?" if close else ";"
        super().__init__(f"unknown {kind} {name!r}{hint} known: {', '.join(names)}")
        self.name = name


class UnknownBackend(UnknownName):
    """A backend name that is neither built in, nor registered, nor an entry point."""


class UnknownMode(UnknownName):
    """A mode that has no option set."""


class UnknownOption(UnknownName, TypeError):
    """An option that no stage has."""


class BadOption(FlambeauError, ValueError, TypeError):
    """A value that an option cannot have; the text says which it can."""

    def __init__(self, name: str, value: object, would_do: str) -> None:
        super().__init__(f"option {name} cannot be {value!r}: it takes {would_do}")
        self.name = name


class CannotPackage(FlambeauError):
    """A function that has no form in a file, with what stands in the way."""


class Refused(FlambeauError, ValueError):
    """A file that is not used, with the reason."""


class WrongAnswer(FlambeauWarning):
    """A compiled graph gave something else than eager; eager is used from now on."""


@dataclass(frozen=True)
class StageFailure:
    """One graph that a stage could not compile: which stage, why, from which user lines.

    is_fault: the stage failed by itself, rather than refusing the graph. raised_at: file and line,
    for the error forgets its frames where the graph runs eagerly.
    """

    stage: str
    graph: str
    error: BaseException
    user_lines: str
    is_fault: bool = False
    raised_at: str = ""

    def as_fault(self) -> Fault:
        """The failure as one of the compiler itself."""
        return Fault(self.stage, type(self.error).__name__, str(self.error), self.user_lines)

    def __str__(self) -> str:
        said = str(self.error).strip() or "no message"
        what = f"{self.stage} could not compile {self.graph}: {type(self.error).__name__}"
        if isinstance(self.error, WrongAnswer):
            what = f"{self.stage} got {self.graph} wrong"
        text = f"{what}: {said}"
        if self.user_lines and self.user_lines not in said:
            text += f"\nFrom your code:\n{self.user_lines}"
        return text


class StageError(FlambeauError):
    """A stage failed where `fullgraph=True` allows no fallback.

    internal_fault: it failed by itself, rather than refusing the graph; capture reads it.
    """

    def __init__(self, failure: StageFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.internal_fault = failure.is_fault


@dataclass(frozen=True)
class Fault:
    """A failure inside the compiler, which a refusal is not: it is ours to correct.

    stage: capture, prepare, aot, prims, inductor, cache. kind: the class of what was raised.
    user_line: the innermost line of the program that was at work, "" where none is known.
    """

    stage: str
    kind: str
    message: str
    user_line: str = ""

    def __str__(self) -> str:
        text = f"{self.stage}: {self.kind}: {self.message}"
        return f"{text}\n{self.user_line}" if self.user_line else text


class BackendMissing(FlambeauError):
    """A backend whose package or device is not here; the text says what it needs."""

    def __init__(self, name: str, needs: str) -> None:
        super().__init__(f"backend {name!r} needs {needs}, which is not here")
        self.name = name


class NotForThisBackend(FlambeauError):
    """A graph that a backend cannot take without changing what it means."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"backend {name!r} does not take this graph: {why}")
