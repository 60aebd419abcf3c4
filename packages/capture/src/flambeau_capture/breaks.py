"""Graph breaks: a stable id, a reason and a remedy for each.

In: nothing. Out: the table `REASONS`, the signal `Break` that stops interpretation, the record
`BreakReport` that explain and warnings show, and `Unsupported`, what `nopython=True` raises.
Invariant: an id is never reused for another meaning.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType

from flambeau_capture.errors import CaptureError


@dataclass(frozen=True)
class Reason:
    """One row: what it means, and the smallest edit that helps."""

    id: str
    title: str
    hint: str

    def of(self, named: str) -> Reason:
        """The same of what is called so, which the hint names."""
        return Reason(self.id, self.title, self.hint.replace("NAME", named))


@dataclass(frozen=True)
class UserLine:
    """A line of the user's program."""

    filename: str
    lineno: int
    function: str

    @classmethod
    def first_of(cls, code: CodeType) -> UserLine:
        """Where a function stands."""
        return cls(code.co_filename, code.co_firstlineno, code.co_name)

    def __str__(self) -> str:
        text = linecache.getline(self.filename, self.lineno).strip()
        head = f'  File "{self.filename}", line {self.lineno}, in {self.function}'
        return f"{head}\n    {text}" if text else head


REASONS: dict[str, Reason] = {
    id: Reason(id, *row)
    for id, row in {
        "FB0001": (
            "generic_jump: a branch depends on a tensor's data",
            "compute both sides and choose with torch.where",
        ),
        "FB0002": (
            "a Python number is read from a tensor's data",
            "keep the value in a tensor, or read it outside the compiled function",
        ),
        "FB0003": (
            "a tensor leaves torch (numpy, list)",
            "use the torch function of the same meaning, or convert outside the compiled function",
        ),
        "FB0004": (
            "the shape of a result depends on a tensor's data",
            "use a form with a fixed size (torch.where instead of a boolean index)",
        ),
        "FB0005": (
            "a call that capture cannot look into",
            "move the call out of the compiled function",
        ),
        "FB0006": (
            "a break asked for by the program",
            "remove the call of graph_break(), or the disable() around the function",
        ),
        "FB0007": (
            "autograd is driven from inside the compiled function",
            "call backward() outside of it",
        ),
        "FB0008": (
            "an instruction that capture does not know",
            "move the construct out of the compiled function",
        ),
        "FB0009": (
            "an operation on a value that capture does not know",
            "move the operation out of the compiled function",
        ),
        "FB0010": (
            "the program raises an exception here",
            "nothing: Python raises it as it would without compiling",
        ),
        "FB0011": (
            "an operator refuses its arguments",
            "nothing if the program is meant to raise here; else report the operator",
        ),
        "FB0012": (
            "a tensor of a class that capture does not know",
            "convert it to a plain tensor before the call",
        ),
        "FB0013": (
            "a context manager that capture cannot enter",
            "put the `with` outside of the compiled function",
        ),
        "FB0014": (
            "iteration over an object that capture does not know",
            "iterate over a list or a tuple",
        ),
        "FB0015": (
            "an argument that a graph cannot hold",
            "pass numbers, strings, dtypes, devices and tensors to torch functions",
        ),
        "FB0016": ("the metadata of a tensor is changed in place", "use the out-of-place operator"),
        "FB0017": (
            "a function on the list of what is not looked into",
            "move the call out of the compiled function",
        ),
        "FB0018": ("calls are nested too deep to follow", "write the recursion as a loop"),
        "FB0019": (
            "a side effect that cannot be replayed",
            "return the value instead of storing it",
        ),
        "FB0020": (
            "a class is made inside the compiled function, by code that would run again",
            "make it at module level",
        ),
        "FB0021": (
            "a generator or a coroutine that cannot be taken over as it stands",
            "make a list of the generator's items; await the coroutine where it is made",
        ),
        "FB0022": (
            "too many instructions for one frame",
            "compile the body of the loop instead of the loop",
        ),
        "FB0023": (
            "something is printed, or a message holds what only running code knows",
            "print outside of the compiled function; log shapes and numbers, not tensors",
        ),
        "FB0024": (
            "global state of torch is changed",
            "change it outside of the compiled function",
        ),
        "FB0025": (
            "a function that torch transforms, chooses or runs again does more than compute",
            "let it take tensors and return tensors, and write to nothing outside of itself",
        ),
        "FB0026": (
            "a function that is left to Python as a whole",
            "move what was met out of the compiled function",
        ),
        "FB0027": (
            "a call under a transform or a mode of torch that sees every operation",
            "compile the function that enters it, or call the compiled one outside of it",
        ),
        "FB0028": (
            "an operator needs a number as a constant, and it is another from call to call",
            "call it with few different numbers, or compute with tensors in the operator's place",
        ),
        "FB0029": (
            "communication between processes that a graph cannot hold",
            "use a collective that writes to contiguous tensors which need no gradients",
        ),
        "FB0030": (
            "an operator that nothing says the results of: it has no fake",
            "register one: `@torch.library.register_fake('NAME')`, above a function of the same "
            "arguments that returns empty tensors like the results (`torch.empty_like(x)`)",
        ),
        "FB0031": (
            "an operator's fake raises, or does not give what the operator does",
            "correct what `@torch.library.register_fake('NAME')` registers: it returns as many "
            "empty tensors as the operator does, of the same sizes, dtypes, strides; where it is "
            "one of torch's own, read its strides outside of the compiled function",
        ),
    }.items()
}


@dataclass(frozen=True)
class BreakReport:
    """One graph break as users see it: the reason, what it was, where (innermost line last)."""

    reason: Reason
    what: str
    lines: tuple[UserLine, ...]

    @property
    def user_line(self) -> UserLine | None:
        """The innermost line of the user's program."""
        return self.lines[-1] if self.lines else None

    def __str__(self) -> str:
        text = f"{self.reason.id} {self.reason.title}: {self.what}"
        if self.user_line is not None:
            text += f"\n{self.user_line}"
        return text

    def as_advice(self) -> str:
        """In one line: where a graph ends, of what, and the edit that helps."""
        line = self.user_line
        where = "" if line is None else f" in {line.function} ({line.filename}:{line.lineno})"
        text = f"A graph ends{where}: {self.reason.id} {self.reason.title}: {self.what}"
        return f"{text}. Try: {self.reason.hint}"


class Break(Exception):
    """Stops symbolic interpretation at an instruction that has to run in Python."""

    def __init__(self, id: str, what: str, named: str = "NAME") -> None:
        super().__init__(f"{id} {REASONS[id].title}: {what}")
        self.reason = REASONS[id].of(named)
        self.what = what
        self.lines: tuple[UserLine, ...] = ()
        self.stop: object = None  # where interpretation has to stop for it: see `interp.session`

    def report(self) -> BreakReport:
        return BreakReport(self.reason, self.what, self.lines)


class SkipFrame(Exception):
    """The frame is left to Python as it is; the text says why."""


class RunsAsItIs(Exception):
    """Something of a call has to happen in Python, once: all of it runs uncaptured while the guards
    that were made by then hold. The text says why."""


class CaptureAgain(Exception):
    """Capture is to start again, knowing better which numbers are open, or what not to check in a
    graph: once `note` was called, which whoever goes on without may leave."""

    def __init__(self, note: Callable[[], object] = lambda: None) -> None:
        self.note = note


class Unsupported(CaptureError):
    """A graph break where `nopython=True` allows none."""

    def __init__(self, report: BreakReport) -> None:
        self.report = report
        text = [f"{report.reason.id} {report.reason.title}", f"  met: {report.what}"]
        text.append(f"  try: {report.reason.hint}")
        text.append("Processing original code:")
        text.extend(str(line) for line in report.lines)
        super().__init__("\n".join(text))
