"""Readings: numbers that only Python knows when it comes to them, of a clock or a random stream.

In: calls that read a clock or draw of a stream. Out: `Reading`, a value that may leave, and whose
sums may; any other use ends the graph before the call. Invariant: generated code makes each reading
once, in the program's order: of clocks before the graph or after it, as the program does, and of
streams after it, so that a call whose graph raises has drawn nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Kwargs, NotConcrete, Tracer, Unreconstructible, Value
from flambeau_capture.values.constant import Constant

_NUMBERS = (int, float, bool)
_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Reading(Value):
    """What a call gives; `like`: an object of the same class. It is an effect, too."""

    described = "the result of {0.shown}"
    made_in_python = "FB0005"
    cls: type
    is_clock: bool

    def __init__(
        self,
        tx: Tracer,
        function: Callable[..., Any],
        args: Sequence[Value],
        like: Any,
        shown: str,
        kwargs: Kwargs | None = None,
        is_clock: bool = False,
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs or {}
        self.like, self.cls, self.shown = like, type(like), shown
        self.step, self.lines = tx.step(), tx.user_lines()
        self._graph, self._calls = tx.graph.outermost, tx.graph.outermost.calls
        clocks = [each.is_clock for each in args if isinstance(each, Reading)]
        self.is_clock = is_clock or (bool(clocks) and all(clocks))
        tx.heap.log(self)

    @property
    def is_first(self) -> bool:
        """Whether it is of a clock that is read before the graph."""
        return self.is_clock and self._calls == 0

    def holds(self) -> Iterable[Value]:
        return (*self.args, *self.kwargs.values())

    def as_python(self) -> Any:
        error = NotConcrete(self.describe())
        error.instead = self._end("Python needs")
        raise error

    def _end(self, use: str) -> Break:
        """The graph ends before the call: Python makes it, and goes on with what it gives."""
        error = Break(self.made_in_python, f"{use} {self.describe()}")
        error.stop, error.lines = self.step, self.lines
        return error

    def unknown(self, operation: str) -> NoReturn:
        raise self._end(f"{operation} of")

    def graph_argument(self) -> Any:
        raise self._end("an operator is given")

    def make(self, writer: Any) -> None:
        """Write the call."""
        if self.is_clock and 0 < self._calls < self._graph.calls:
            raise Unreconstructible(self, f"{self.shown}, with operators before and after it")
        with writer.building(self):
            writer.call(self.function, self.args, self.kwargs)
        writer.pop_top()

    def replay(self, writer: Any) -> None:
        """It is made by then."""

    def reconstruct(self, writer: Any) -> None:
        raise Unreconstructible(self, f"{self.shown}, in code of its own")


def reading_operator(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    """A sum, difference, product or order of numbers of which one is a reading, which does nothing
    else and raises nothing; None: it is an operation of a class."""
    sides = [left, right]
    if not all(type(side) in (Reading, Constant) for side in sides):
        return None
    fn = _OPERATIONS.get(symbol)
    known = next(side for side in sides if isinstance(side, Reading))
    if fn is None or not all(side.cls in _NUMBERS for side in sides):
        known.unknown(f"`{symbol}`")
    like = fn(*(side.like if isinstance(side, Reading) else side.as_python() for side in sides))
    return Reading(tx, fn, sides, like, f"a calculation with {known.shown}")
