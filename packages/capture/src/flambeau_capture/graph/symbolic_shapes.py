"""Symbolic shapes of one capture.

In: tensors of the program with the dimensions that may vary, and numbers that may. Out: fake
tensors and symbolic numbers, the graph's nodes for them, and the conditions under which what was
decided about them holds. Invariant: every decision that torch's shape environment took is a guard
at the end; what cannot be said as one fixes the symbols in it to their present values.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.errors import ConstraintViolation
from flambeau_capture.graph.size_expressions import (
    RELATIONS,
    call_of,
    leaves_of,
    owners,
    python_text,
    said_number,
    symbols_of,
)
from flambeau_capture.guards import (
    GuardSet,
    Inexpressible,
    SizeProgram,
    SizeSource,
    Term,
    size_program,
    within,
)
from flambeau_capture.guards.sizes import Relation
from flambeau_capture.source import ConstantSource, NumberOf, SizeOf, Source, SymbolExprSource

if TYPE_CHECKING:
    from flambeau_capture.graph.builder import GraphBuilder

Bounds = tuple[int | None, int | None]
#: integers of the program beyond this are constants: products of symbols stay within 64 bits
LARGEST = 2**31


class SymbolicShapes:
    """Symbols by where the program holds their values."""

    def __init__(self, graph: GraphBuilder) -> None:
        self._graph = graph
        self.returned = False  # whether the graph returns the numbers that leave
        self._places: dict[Any, SizeSource] = {}
        #: of floats, and of what Python computes of others: then there is a term, which may be None
        self._sources: dict[Any, Source] = {}
        self._terms: dict[Any, Term | None] = {}
        self._values: dict[Any, int | float] = {}
        self._equal: list[tuple[SizeSource, Any]] = []
        self._nodes: dict[Any, fx.Node] = {}
        self._fixed_floats: set[Any] = set()
        self._fixed_integers: set[Any] = set()
        self._constants: tuple[Any, frozenset[Source]] = (None, frozenset())
        self._decided: list[SizeProgram] = []
        self._numbers: dict[Source, Any] = {}
        self._read_of: dict[Source, torch.Tensor] = {}  # tensors that numbers are read of
        #: unbacked symbols by what has them: a node, and the dimension of a tensor
        self._by_data: dict[Any, tuple[fx.Node, int | None]] = {}
        self._assumed: set[Any] = set()
        #: how the program has computed numbers that depend on data: an operator, and of what
        self.computations: dict[Any, tuple[str, tuple[Any, ...]]] = {}
        #: symbols that the program is not to make constants of, by what they are to it
        self._required: dict[Any, str] = {}
        #: what a node is, or a size of its tensor, where guards can say it
        self.known: weakref.WeakMethod[Callable[..., int | float | None]] | None = None

    def __bool__(self) -> bool:
        """Whether anything is left open."""
        return bool(self._places or self._sources or self._by_data)

    @property
    def by_data(self) -> bool:
        """Whether a size or a number of the graph depends on data."""
        return bool(self._by_data)

    def places_by_data(self) -> list[tuple[fx.Node, int | None]]:
        """The nodes that have what depends on data: as a number, or a size of their tensor."""
        return list(self._by_data.values())

    def in_python(self, number: Any) -> tuple[Callable[..., int], tuple[Source, ...]] | None:
        """What Python computes an integer by, of sizes and integers that the program holds; None
        where one of them is nowhere, or the expression is of another kind.

        A number that leaves is computed outside the graph, never by it: a backend has tensors among
        its results, and no number that is another in every call."""
        expr = compat.expression(number)
        symbols = sorted(expr.free_symbols, key=str)
        sources = [self._source_of(symbol) for symbol in symbols]
        if not symbols or any(source is None for source in sources):
            return None
        names = {symbol: f"n{index}" for index, symbol in enumerate(symbols)}
        try:
            text = f"lambda {', '.join(names.values())}: {python_text(expr, names)}"
        except Inexpressible:
            return None
        compute: Callable[..., int] = eval(compile(text, "<flambeau number>", "eval"))
        return compute, tuple(source for source in sources if source is not None)

    # -- what comes in --------------------------------------------------------------------------

    def tensor(
        self,
        tensor: torch.Tensor,
        source: Source,
        dims: Mapping[int, Bounds],
        strides: frozenset[int] = frozenset(),
    ) -> tuple[torch.Tensor, tuple[int, ...], tuple[int, ...]]:
        """The fake tensor, and the dimensions whose sizes and strides are symbolic: never
        where the size now is 0 or 1."""
        fake = compat.to_symbolic_fake(self._graph.fake_mode, tensor, dims, strides)
        sizes = self._bind_open(source, "SIZE", fake.shape, tensor.shape)
        return fake, sizes, self._bind_open(source, "STRIDE", fake.stride(), tensor.stride())

    def _bind_open(
        self, source: Source, what: Literal["SIZE", "STRIDE"], numbers: Any, values: Any
    ) -> tuple[int, ...]:
        """The dimensions of which these are symbols."""
        found = [dim for dim, number in enumerate(numbers) if isinstance(number, torch.SymInt)]
        for dim in found:
            place = SizeSource(source, what, dim)
            self._bind(place, compat.expression(numbers[dim]), values[dim])
        return tuple(found)

    def _bind(self, place: SizeSource, expr: Any, value: int) -> None:
        if expr.is_Symbol and expr not in self._places:
            self._places[expr] = place
            self._values[expr] = value
        else:
            self._equal.append((place, expr))

    def require(
        self, sizes: Mapping[str, Any], line: weakref.WeakMethod[Callable[[], Any]]
    ) -> None:
        """Note sizes that the program is not to make constants of. line: where it is."""
        for label, size in sizes.items():
            if isinstance(size, torch.SymInt):
                self._required[compat.expression(size)] = label
                compat.note_constants(self._graph.fake_mode, line)

    def _check_required(self) -> None:
        for symbol, label in self._required.items():
            line = compat.made_constant(self._graph.fake_mode, symbol)
            if line is not None:
                raise ConstraintViolation(
                    f'{label} is marked with mark_dynamic, or "open" by sizes=, and this program '
                    f"makes it {self._values[symbol]}:\n{line}\n"
                    f"change that line, or use maybe_mark_dynamic"
                )

    def number(self, value: int | float, source: Source) -> Any:
        """A symbolic number for one that the program holds."""
        if source in self._numbers:
            return self._numbers[source]
        made = compat.symbolic_number(self._graph.fake_mode, value, source.name())
        if not isinstance(made, torch.SymInt | torch.SymFloat):
            return made
        symbol = compat.expression(made)
        if isinstance(value, float) or isinstance(source, SymbolExprSource):
            self._sources[symbol] = source
        else:
            self._bind(SizeSource(source, "VALUE"), symbol, value)
        self._values[symbol] = value
        self._nodes[symbol] = self._graph.add_input(value, source, made)
        self._numbers[source] = made
        return made

    def computed(self, source: SymbolExprSource, value: int | float, term: Term | None) -> Any:
        """A symbolic number for one that Python computes of others before the graph runs: `term`
        says it to guards, where it can be said."""
        made = self.number(value, source)
        if isinstance(made, torch.SymInt | torch.SymFloat):
            self._terms[compat.expression(made)] = term
        return made

    # -- what depends on data -------------------------------------------------------------------

    def bind(self, node: fx.Node, result: Any) -> None:
        """Note which node has the unbacked symbols of a result that are new. Raises Inexpressible
        where one is no size of a tensor of it, and no number."""
        for symbol, place in owners(node, result):
            self._by_data.setdefault(symbol, place)
        missing = {s for each in leaves_of(result) for s in symbols_of(each)} - self._by_data.keys()
        if missing:
            raise Inexpressible(f"{min(map(str, missing))} of {node.name}")

    def settle(self, number: Any) -> None:
        """Python needs a number that depends on data: guards fix the data if they can, else it is a
        break. The graph checks it again, which costs nothing."""
        known = None if self.known is None else self.known()
        for symbol in compat.own_data_symbols(number):
            place = self._by_data.get(symbol)
            found = None if known is None or place is None else known(*place)
            if found is None or type(found) is float:
                raise Break("FB0002", f"{said_number(number, place)}, which Python needs")
            compat.assume(compat.symbolic_integer(self._graph.fake_mode, symbol, None) == found)

    def assumptions(self, made: bool) -> Iterator[fx.Node]:
        """Nodes for the conditions on unbacked symbols that were assumed since the last call; made:
        also on those that the last operator has made. Raises Inexpressible where no node can say
        one."""
        for expr in compat.assumptions(self._graph.fake_mode):
            if expr in self._assumed:
                continue
            if made or compat.data_symbols(expr) <= self._by_data.keys():
                self._assumed.add(expr)
                yield from self.condition(expr)

    def checked(self, condition: torch.SymBool) -> list[fx.Node]:
        """Nodes for a condition of the program, which is assumed from here on."""
        nodes = list(self.condition(compat.expression(condition)))
        before = set(compat.assumptions(self._graph.fake_mode))  # what an operator rests on stays
        compat.assume(condition)
        self._assumed |= set(compat.assumptions(self._graph.fake_mode)) - before
        return nodes

    def condition(self, expr: Any) -> Iterator[fx.Node]:
        """The nodes for a condition, of which all must hold."""
        if type(expr).__name__ == "And":
            for part in expr.args:
                yield from self.condition(part)
            return
        relation = RELATIONS.get(type(expr).__name__)
        if relation is None:
            raise Inexpressible(str(expr))
        sides = tuple(self._spell(side) for side in expr.args)
        yield self._graph.number_call(relation, sides)

    def sides(self, condition: torch.SymBool) -> tuple[Callable[[Any, Any], Any], list[Any]] | None:
        """The comparison that a condition is, and the numbers that it compares."""
        expr = compat.expression(condition)
        relation = RELATIONS.get(type(expr).__name__)
        if relation is None:
            return None
        mode = self._graph.fake_mode
        return relation, [compat.number_of(mode, side) for side in expr.args]

    # -- nodes ----------------------------------------------------------------------------------

    def node(self, number: Any) -> fx.Node | int | float | bool:
        """The graph's node for a symbolic number; a number where no node can say it."""
        expr = compat.expression(number)
        try:
            return self._spell(expr)
        except Inexpressible:
            fixed: int | float = self.value(number)
            return fixed

    def _spell(self, expr: Any) -> fx.Node | int | float:
        if expr.is_Integer:
            return int(expr)
        if expr.is_Float:
            return float(expr)
        if expr in self._nodes:
            return self._nodes[expr]
        made: Any
        if expr.is_Symbol:
            made = self._placeholder(expr)
        else:
            call, number_call = call_of(expr), self._graph.number_call
            made, *parts = [self._spell(arg) for arg in expr.args]
            for part in parts:
                made = number_call(call, (made, part))
        self._nodes[expr] = made
        return self._nodes[expr]

    def _placeholder(self, symbol: Any) -> fx.Node:
        if symbol in self._by_data:
            node, dim = self._by_data[symbol]
            if node.graph is not self._graph.graph:
                raise Inexpressible(f"{symbol}, which is of another graph")
            return node if dim is None else self._graph.size(node, dim)
        place = self._places.get(symbol)
        if place is None or place.what != "SIZE":
            raise Inexpressible(str(symbol))
        number = compat.symbolic_integer(self._graph.fake_mode, symbol, int(self._values[symbol]))
        source = SizeOf(place.source, place.dim)
        return self._graph.add_input(self._values[symbol], source, number)

    def as_tensor(self, number: Any) -> fx.Node:
        """A node for a tensor of no dimension that has a number: tensors alone leave a graph."""
        found = self._spell(compat.expression(number))
        assert isinstance(found, fx.Node)
        return self._graph.number_as_tensor(found)

    def source(self, number: Any) -> Source | None:
        """Where the program holds the number itself, or how Python computes it."""
        return self._source_of(compat.expression(number))

    def origin(self, number: Any) -> Source | None:
        """How Python computes a number from what the frame was entered with."""
        if isinstance(number, int | float):
            return ConstantSource(number, repr(number))
        if isinstance(number, torch.SymFloat):
            return self.source(number)
        return self._origin(compat.expression(number))

    def _origin(self, expr: Any) -> Source | None:
        if expr.is_Integer:
            return ConstantSource(int(expr), str(expr))
        if expr.is_Symbol:
            return self._source_of(expr)
        try:
            fn = call_of(expr)
        except Inexpressible:
            return None
        found, *parts = [self._origin(arg) for arg in expr.args]
        for part in parts:
            if found is None or part is None:
                return None
            found = SymbolExprSource(fn, (found, part))
        return found

    # -- what was decided -----------------------------------------------------------------------

    def term(self, number: Any) -> Term | None:
        """A number of the program as a part of conditions on floats; None where it can be none."""
        if isinstance(number, float):
            return Term.of_float(number, number)
        symbolic = isinstance(number, torch.SymInt | torch.SymFloat)
        expr = compat.expression(number) if symbolic else number
        if isinstance(number, torch.SymFloat):
            if expr in self._terms:
                return self._terms[expr]  # an integer's own is one, and no float, to guards
            if expr not in self._sources:
                return None
            return Term.of_float(SizeSource(self._sources[expr], "FLOAT"), self._values[expr])
        if compat.data_symbols(expr):
            return None
        try:
            value = number if isinstance(number, int) else compat.hint(number)
            return Term.of_integer(expr, self._said(), int(value))
        except Inexpressible:
            return None

    def _said(self) -> dict[Any, SizeSource | Term]:
        """Symbols by what guards read them as."""
        floats = {
            symbol: Term.of_float(SizeSource(source, "FLOAT"), self._values[symbol])
            for symbol, source in self._sources.items()
            if symbol not in self._terms and type(self._values[symbol]) is float
        }
        terms = {symbol: term for symbol, term in self._terms.items() if term is not None}
        return {**self._places, **floats, **terms}

    def is_read_of(self, number: NumberOf, tensor: torch.Tensor) -> None:
        """Note the fake tensor that a number is read of: an input, or an attribute of the graph."""
        self._read_of[number] = tensor

    def is_overwritten(self, number: Any) -> bool:
        """Whether a number was read of a tensor that the graph writes to."""
        if not self._read_of:
            return False
        leaves = self.leaves(number)
        read = [tensor for source, tensor in self._read_of.items() if source in leaves]
        return self._graph.effects.writes_to(read)

    def leaves(self, number: Any) -> dict[Source, int | float]:
        """The places of the program that a number is computed from, and what they hold."""
        symbols = list(compat.expression(number).free_symbols)
        found: dict[Source, int | float] = {}
        while symbols:
            symbol = symbols.pop()
            source = self._source_of(symbol)
            if isinstance(source, SymbolExprSource):
                below = source.leaves()
                symbols += [s for s in self._values if self._source_of(s) in below]
            elif source is not None:
                found[source] = self._values[symbol]
        return found

    def constants(self) -> frozenset[Source]:
        """Where the program holds numbers that were left open, and are fixed by what has been
        assumed since."""
        if not self._numbers:
            return frozenset()
        mode = self._graph.fake_mode
        known = compat.count_of_decisions(mode), len(self._fixed_floats), len(self._decided)
        if self._constants[0] != known:
            self._programs()
            fixed = self._fixed_floats | self._fixed_integers
            found: set[Source] = set()
            for source, number in self._numbers.items():
                symbol = compat.expression(number)
                if symbol in fixed or compat.is_decided(mode, symbol):
                    found |= source.leaves() if isinstance(source, SymbolExprSource) else {source}
            self._constants = known, frozenset(found)
        return self._constants[1]

    def numbers(self) -> dict[Source, int | float]:
        """Where the program holds what is left open, sizes aside, and what that is."""
        found = {
            source: self._values[compat.expression(number)]
            for source, number in self._numbers.items()
        }
        return {s: value for s, value in found.items() if not isinstance(s, SymbolExprSource)}

    def present(self, number: Any) -> Any:
        """What a number is now, without assuming it."""
        self.settle(number)
        if isinstance(number, torch.SymFloat):
            return self._values[compat.expression(number)]
        return int(compat.hint(number)) if isinstance(number, torch.SymInt) else number

    def compare(self, op: str, left: Term, right: Term) -> bool:
        """What a comparison of floats comes to, which from here on is assumed."""
        answer, program = left.compare(op, right)
        self._decided.append(program)
        return answer

    def decides_by_floats(self) -> bool:
        """Whether a comparison or a constant was decided that is no condition on whole numbers."""
        fixed = self._fixed_floats & set(self._terms)
        return bool(fixed) or any(program.sources() for program in self._decided)

    def value(self, number: Any) -> Any:
        """The present value, which from here on is assumed. Breaks where data decides it."""
        self.settle(number)
        if isinstance(number, torch.SymFloat):
            self._fixed_floats |= compat.expression(number).free_symbols
            return compat.hint(number)
        return int(number) if isinstance(number, torch.SymInt) else bool(number)

    def add_guards(self, guards: GuardSet) -> None:
        """Guard all that was decided about the symbols, by the backend too: it has had the graph.
        From here on nothing can be decided."""
        if not self:
            return
        compat.close_environment(self._graph.fake_mode)
        self._check_required()
        for place in self._places.values():
            if place.what == "VALUE":  # a bool, a float or a number out of range is another program
                guards.add(place.source, "TYPE_MATCH", int)
                guards.add_sizes(within(place, LARGEST))
        for program in self._programs():
            guards.add_sizes(program)
        for symbol, source in self._sources.items():
            if isinstance(source, SymbolExprSource):
                continue  # what it is computed of is guarded
            if symbol in self._fixed_floats:
                guards.add(source, "CONSTANT_MATCH", self._values[symbol])
            else:
                guards.add(source, "TYPE_MATCH", float)

    def _programs(self) -> list[SizeProgram]:
        made = list(self._decided)
        places = self._said()
        for condition in self._conditions():
            try:
                made.append(size_program(condition, places))
            except Inexpressible:
                made += self._fix(condition.free_symbols)
        made += self._fix(self._fixed_floats & set(self._terms))
        return [one for one in dict.fromkeys(made) if one.sources()]

    def _conditions(self) -> Iterator[Any]:
        assumed = compat.shape_conditions(self._graph.fake_mode)
        for place, expr in self._equal:
            yield Relation("EQ", place, expr)
        yield from assumed.guards
        for symbol, expr in assumed.equal:
            yield Relation("EQ", symbol, expr)
        for symbol, least, most in assumed.ranges:
            if symbol not in self._places and symbol not in self._terms:
                continue
            if least is not None:
                yield Relation("LE", least, symbol)
            if most is not None:
                yield Relation("LE", symbol, most)

    def _fix(self, symbols: Iterable[Any]) -> list[SizeProgram]:
        """Fix symbols to their values: whatever was assumed of them holds as it did."""
        made: list[SizeProgram] = []
        for symbol in symbols:
            if symbol in self._terms:
                made += self._fix_source(self._sources[symbol])
            elif symbol in self._sources:
                self._fixed_floats.add(symbol)
            elif symbol in self._places:
                self._fixed_integers.add(symbol)
                fixed = Relation("EQ", symbol, self._values[symbol])
                made.append(size_program(fixed, self._places))
        return made

    def _fix_source(self, source: Source) -> list[SizeProgram]:
        """Fix all that a number is computed of."""
        if isinstance(source, SymbolExprSource):
            return [one for argument in source.arguments for one in self._fix_source(argument)]
        known = [s for s in (*self._places, *self._sources)
                 if s not in self._terms and self._source_of(s) == source]  # fmt: skip
        if not known and not isinstance(source, ConstantSource):
            raise AssertionError(f"{source.name()} is no symbol's")
        return self._fix(known)

    def _source_of(self, symbol: Any) -> Source | None:
        if symbol in self._sources:
            return self._sources[symbol]
        place = self._places.get(symbol)
        if place is None or place.what == "STRIDE":
            return None
        return SizeOf(place.source, place.dim) if place.what == "SIZE" else place.source
