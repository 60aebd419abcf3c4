"""The rewriter of FX graphs: patterns, rules, and how rules are applied.

In: a graph, of torch functions or of primitives, and rules. Out: the graph, rewritten in place.
Invariant: a rule gives a value in the place of one node; nobody else uses what it leaves out.

A pattern is written as the value is computed, `x * ops.sigmoid(x)`: operations are named as by
`match.op_of`, operands of sums and products come in either order, a name stands for one node, a
number for a tensor that is that number everywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan, prod
from typing import Any

from torch import fx

from flambeau_inductor.ir.nodes import name_of
from flambeau_inductor.node_queries import erase_unused, op_of, static_shape
from flambeau_inductor.passes.constants import Constants

COMMUTATIVE = frozenset(
    {"add", "mul", "maximum", "minimum", "eq", "ne", "logical_and", "logical_or"}
)


@dataclass(frozen=True, slots=True)
class Match:
    """`bound`: what names stand for; `inside`: the nodes that a pattern covers, its root first."""

    constants: Constants
    bound: Mapping[str, Any]
    inside: tuple[fx.Node, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.bound[name]

    @property
    def root(self) -> fx.Node:
        return self.inside[0]

    @property
    def graph(self) -> fx.Graph:
        return self.root.graph

    def bind(self, name: str | None, found: Any) -> Iterator[Match]:
        """With one more name, unless it stands for something else."""
        if name is None:
            yield self
        elif self.bound.get(name, found) == found:
            yield replace(self, bound={**self.bound, name: found})

    def covering(self, *nodes: fx.Node) -> Match:
        return replace(self, inside=(*self.inside, *nodes))

    def number(self, part: Any) -> float | None:
        """The number that an argument is, or is everywhere."""
        if name_of(part) == "full":
            part = part.args[1]
        elif isinstance(part, fx.Node):
            shape = static_shape(part)
            one = None if shape is None or prod(shape) != 1 else self.constants.of(part)
            part = None if one is None else one.item()
        return float(part) if isinstance(part, int | float) else None

    def is_alone(self) -> bool:
        """Whether nobody else uses the operands of the root, and nobody writes to what it is made
        of until the root is computed."""
        members = {*self.inside}
        if any(user not in members for node in members - {self.root} for user in node.users):
            return False
        read = {part for node in members for part in node.all_input_nodes}
        return not self.constants.is_written(read, (min(members), self.root))

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A call before the root."""
        with self.graph.inserting_before(self.root):
            if isinstance(target, str):
                made = self.graph.call_method(target, args, kwargs)
            else:
                made = self.graph.call_function(target, args, kwargs)
        made.meta = {k: v for k, v in self.root.meta.items() if k == "stack_trace"}
        return made


class Pattern:
    """What a value may be. Arithmetic on patterns makes patterns."""

    def match(self, part: Any, so_far: Match) -> Iterator[Match]:
        """Every way to read an argument so."""
        raise NotImplementedError

    def __add__(self, other: Pattern | float) -> Call:
        return ops.add(self, other)

    def __sub__(self, other: Pattern | float) -> Call:
        return ops.sub(self, other)

    def __mul__(self, other: Pattern | float) -> Call:
        return ops.mul(self, other)

    def __truediv__(self, other: Pattern | float) -> Call:
        return ops.div(self, other)

    def __or__(self, other: Pattern) -> Pattern:
        return Either((self, other))


Test = Callable[[fx.Node], bool]


@dataclass(frozen=True)
class Value(Pattern):
    """Any node, or one that passes `where`."""

    name: str | None = None
    where: Test | None = None

    def match(self, part: Any, so_far: Match) -> Iterator[Match]:
        if isinstance(part, fx.Node) and (self.where is None or self.where(part)):
            yield from so_far.bind(self.name, part)


@dataclass(frozen=True)
class Argument(Pattern):
    """Anything that is not a node: a text, a list of dimensions."""

    name: str | None = None

    def match(self, part: Any, so_far: Match) -> Iterator[Match]:
        if not isinstance(part, fx.Node):
            yield from so_far.bind(self.name, part)


@dataclass(frozen=True)
class NumberPattern(Pattern):
    """A number, or one that is written there."""

    name: str | None = None
    equal: float | None = None

    def match(self, part: Any, so_far: Match) -> Iterator[Match]:
        found = so_far.number(part)
        wanted = found if self.equal is None else self.equal
        if found is not None and (found == wanted or (isnan(found) and isnan(self.equal or 0.0))):
            yield from so_far.bind(self.name, found)


@dataclass(frozen=True)
class Call(Pattern):
    """A call of one of these operations. With `where` further arguments are allowed."""

    names: frozenset[str]
    operands: tuple[Pattern, ...]
    where: Test | None = None
    name: str | None = None

    def match(self, part: Any, so_far: Match) -> Iterator[Match]:
        if op_of(part) not in self.names:
            return
        exact = len(part.args) == len(self.operands) and not part.kwargs
        if not exact and (self.where is None or len(part.args) < len(self.operands)):
            return
        if self.where is not None and not self.where(part):
            return
        for start in so_far.covering(part).bind(self.name, part):
            yield from _all(self.operands, part.args, start)
            if len(self.operands) == 2 and exact and op_of(part) in COMMUTATIVE:
                yield from _all(self.operands, part.args[::-1], start)


def _all(patterns: Sequence[Pattern], parts: Sequence[Any], so_far: Match) -> Iterator[Match]:
    if not patterns:
        yield so_far
        return
    for found in patterns[0].match(parts[0], so_far):
        yield from _all(patterns[1:], parts[1:], found)


@dataclass(frozen=True)
class Either(Pattern):
    """One of several."""

    patterns: tuple[Pattern, ...]

    def match(self, part: Any, so_far: Match) -> Iterator[Match]:
        for pattern in self.patterns:
            yield from pattern.match(part, so_far)


@dataclass(frozen=True)
class Named(Pattern):
    """A pattern whose node has a name; where that is known it has been matched."""

    name: str
    pattern: Pattern

    def match(self, part: Any, so_far: Match) -> Iterator[Match]:
        if self.name in so_far.bound:
            yield from so_far.bind(self.name, part)
            return
        for found in self.pattern.match(part, so_far):
            yield from found.bind(self.name, part)


REST = Value("rest")
"""Where a link of a chain goes on."""


Look = Callable[[fx.Node], Sequence[fx.Node] | None]
"""Nodes that only show a value, of which the last one's first operand is looked at instead."""


@dataclass(frozen=True)
class Seen(Pattern):
    """`end`, maybe shown by other nodes, and maybe over links, each with a value named `rest`.
    `steps` stands for the links, the outermost first: labels, and what their names stand for."""

    end: Pattern
    through: Look
    links: tuple[tuple[str, Pattern], ...] = ()

    def match(self, part: Any, so_far: Match) -> Iterator[Match]:
        before = so_far.bound.get("steps", ())
        for found in self.end.match(part, so_far):
            yield replace(found, bound={"steps": before, **found.bound})
        for label, link in self.links:
            for met in link.match(part, replace(so_far, bound={})):
                steps = {**so_far.bound, "steps": (*before, (label, met.bound))}
                yield from self.match(met["rest"], replace(met, bound=steps))
        path = self.through(part) if isinstance(part, fx.Node) and part.args else None
        if path:
            yield from self.match(path[-1].args[0], so_far.covering(*path))


class _Operations:
    def __getattr__(self, name: str) -> Callable[..., Call]:
        return lambda *operands, where=None: Call(
            frozenset({name}), tuple(map(_pattern, operands)), where
        )


ops = _Operations()


def _pattern(part: Pattern | float) -> Pattern:
    return part if isinstance(part, Pattern) else NumberPattern(equal=float(part))


@dataclass(frozen=True)
class Rule:
    """`replacement` gives what stands for the root of a match, or None where the rule does not
    apply: its guard. Several patterns are several ways to write the same."""

    name: str
    patterns: tuple[Call, ...]
    replacement: Callable[[Match], fx.Node | None]


@dataclass(slots=True)
class Ledger:
    """The names of the rules that are left out, how often rules may act in all, and which did."""

    skip: Collection[str] = ()
    fuel: int | None = None
    done: list[str] = field(default_factory=list)

    def permits(self, name: str) -> bool:
        return name not in self.skip and (self.fuel is None or len(self.done) < self.fuel)


def rewrite(graph: fx.Graph, rules: Sequence[Rule], ledger: Ledger | None = None) -> int:
    """Apply to every node the first rule that fits; how many were replaced."""
    ledger = Ledger() if ledger is None else ledger
    before, constants = len(ledger.done), Constants(graph)
    tried: defaultdict[str, list[tuple[Rule, Call]]] = defaultdict(list)
    for rule in rules:
        for pattern in rule.patterns:
            for name in pattern.names:
                tried[name].append((rule, pattern))
    for node in list(graph.nodes):
        for rule, pattern in tried.get(op_of(node) or "", ()):
            if not ledger.permits(rule.name):
                continue
            if node.prev.next is node and _replaced(node, rule, pattern, constants):
                ledger.done.append(rule.name)
                break
    if len(ledger.done) > before:
        erase_unused(constants.used)
    return len(ledger.done) - before


def rewrite_module(gm: fx.GraphModule, rules: Sequence[Rule], ledger: Ledger | None = None) -> int:
    """The same for a graph that may be run as it is."""
    done = rewrite(gm.graph, rules, ledger)
    if done:
        gm.recompile()
    return done


def _replaced(node: fx.Node, rule: Rule, pattern: Call, constants: Constants) -> bool:
    for match in pattern.match(node, Match(constants, {})):
        new = rule.replacement(match) if match.is_alone() else None
        if new is None:
            continue
        if not new.users:  # it has been made for this
            new.meta = {**new.meta, **node.meta}
        node.replace_all_uses_with(new)
        erase_unused(match.inside)
        return True
    return False
