"""The top frame under capture: argument sources, stop points.

In: a frame as the hook gets it. Out: `Finished` or `Stopped`, or `Restart` when the state at the
break has to be reached again. Invariant: at a stop, every value is as it was before the instruction
that could not be interpreted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import ref

from flambeau_capture.breaks import REASONS, Break, BreakReport
from flambeau_capture.interp.frame import Frame, Suspended
from flambeau_capture.interp.tracer import Reached, SymbolicTracer
from flambeau_capture.resume_runtime import Continue, is_empty
from flambeau_capture.source import ClosureSource, FrameCall, Local, Source
from flambeau_capture.values.base import UserError, Value
from flambeau_capture.values.functions.variables import CellValue, GlobalsScope
from flambeau_capture.values.objects.exceptions import ExceptionValue


@dataclass(frozen=True)
class Finished:
    value: Value


@dataclass(frozen=True)
class Stopped:
    """A graph break: the frames to resume, outermost first, the last before its instruction.
    `left_after`: see `Restart`."""

    chain: tuple[Suspended, ...]
    report: BreakReport
    left_after: int | None = None

    @property
    def step(self) -> int:
        return self.chain[-1].step


class Restart(Exception):
    """Interpret again from the start and stop before this step: later state was already changed.
    `left_after`: the operations of the graph by the time when an exception left the frame, which is
    where it ends."""

    def __init__(self, step: int, report: BreakReport, left_after: int | None = None) -> None:
        super().__init__(step)
        self.step = step
        self.report = report
        self.left_after = left_after


class Variables(dict[str, Value]):
    """Local variables; an argument is wrapped, and guarded, when it is first read."""

    def __init__(self, session: SymbolicTracer, arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self._session = session
        self._pending: dict[str, tuple[Any, Source]] = {
            name: (value, Local(name)) for name, value in arguments.items()
        }

    def get(self, name: str, default: Any = None) -> Any:
        pending = self._pending.get(name)
        if pending is not None:
            self[name] = self._session.wrap(*pending)  # a refusal leaves it bound, untouched
        return dict.get(self, name, default)

    def pop(self, name: str, *default: Any) -> Any:
        self.get(name)
        return dict.pop(self, name, *default)

    def __setitem__(self, name: str, value: Value) -> None:
        self._pending.pop(name, None)
        dict.__setitem__(self, name, value)

    def untouched(self, name: str) -> tuple[Any, Source] | None:
        """An argument that is another's to wrap from now on, and where it is."""
        return self._pending.pop(name, None)

    def untouched_objects(self) -> dict[str, Any]:
        return {name: real for name, (real, _) in self._pending.items()}

    def bound(self) -> dict[str, Value | None]:
        """Every bound variable; None for an argument that nothing has touched."""
        untouched: dict[str, Value | None] = dict.fromkeys(self._pending)
        return {**untouched, **self}


def _given(values: Iterable[Any]) -> Iterator[Any]:
    """What a frame is called with, what it is to go on with in others included."""
    for value in values:
        yield value
        if type(value) is Continue:  # `isinstance` may ask the program's object for its class
            yield from _given(value.args)
            yield from _contents(value.func)


def _contents(function: Any) -> Iterator[Any]:
    """What the cells of a function hold: variables of the frame that it goes on in are there."""
    for cell in function.__closure__ or ():
        if not is_empty(cell):
            yield cell.cell_contents


class TopFrame(Frame):
    def __init__(self, session: SymbolicTracer, frame: FrameCall, scope: GlobalsScope) -> None:
        code, function, arguments, free = frame
        own = Variables(session, arguments)
        super().__init__(session, code, scope, own, {})
        self.given = [*_given(arguments.values()), *_contents(function)]
        for name in code.co_cellvars:
            pending = own.untouched(name)
            self.cells[name] = CellValue(
                name=name, own=True, pending=pending, tx=session, owner=session.origin
            )
        if any(name.startswith("___") for name in arguments):  # a resume function makes its stack
            names = [one.opname for one in self.prepared.body.instructions]
            session.own_from = names.index("JUMP") + 1
        cells = function.__closure__ or ()
        for name, real in zip(code.co_freevars, cells):
            pending = (free[name], ClosureSource(name)) if name in free else None
            where = ClosureSource(name)
            cell = self.cells[name] = CellValue(
                name=name, own=True, real=real, source=where, pending=pending, tx=session,
                owner=session.origin if name in session.origin.co_cellvars else None,
            )  # fmt: skip
            session.heap.know(real, cell)

    def untouched_objects(self) -> Iterable[Any]:
        own = self.variables
        return own.untouched_objects().values() if isinstance(own, Variables) else ()

    def let_go(self) -> None:
        """Hold nothing but the cells that something else holds: those may outlive the frame."""
        held = {name: ref(cell) for name, cell in self.cells.items()}
        self.given.clear()
        super().let_go()
        for name, still in held.items():
            self.cells[name] = still() or CellValue(name=name, own=True, tx=self.tx)

    def execute(self, stop_at: int | None, reason: BreakReport | None) -> Finished | Stopped:
        """Interpret; `stop_at` and `reason` come from a `Restart`."""
        tx = self.tx
        tx.stop_at = stop_at
        try:
            self.advance()
        except Reached as reached:
            assert reason is not None
            if reached.earlier is not None:
                raise Restart(reached.earlier, reason) from None
            return Stopped(reached.chain, reason)
        except UserError as error:
            report = BreakReport(REASONS["FB0010"], error.value.describe(), error.lines)
            stop = error.stop
            if stop is None or not tx.is_as_before(stop.chain[-1].frame):
                raise Restart(error.step or 1, report, tx.graph.calls) from None
            assert isinstance(error.value, ExceptionValue)
            error.value.raised = error.value.raised_anew = False
            return Stopped(stop.chain, report, tx.graph.calls)
        except Break as error:
            if isinstance(error.stop, Reached):
                return Stopped(error.stop.chain, error.report())
            assert isinstance(error.stop, int)
            raise Restart(error.stop, error.report()) from None
        return Finished(self.returned)
