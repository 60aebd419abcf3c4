"""Pointwise functions behind convolutions and linear maps that oneDNN can apply itself.

In: a graph of primitives. Out: for each such call the function behind it, as oneDNN names it, and
the nodes that it stands for. Invariant: nobody else reads what lies between; only functions for
which oneDNN gives what eager gives, for NaN and infinities too.

oneDNN's `relu`, `hardtanh` and `hardsigmoid` are not among them: they make a number of NaN.

It is worth it only where the result goes to memory anyway: a loop that reads it would compute the
function as it reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from flambeau_inductor.ir.epilogues import LibraryEpilogue
from flambeau_inductor.passes.match import name_of, readers

Pattern = str | float | tuple[Any, ...]
"""`x` (what the call gives), a capture, a number that every element is, or a primitive with its
operands."""

SLOPE = "slope"
COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})

_CUBE = ("mul", ("mul", "x", "x"), "x")
_GELU_ERF = ("add", ("erf", ("mul", "x", 0.7071067811865476)), 1.0)


def _gelu_tanh(inner: Pattern) -> Pattern:
    return ("mul", ("mul", "x", 0.5), ("add", ("tanh", ("mul", inner, 0.7978845608028654)), 1.0))


FUNCTIONS: Mapping[str, tuple[tuple[Pattern, ...], str, str]] = {
    "hardswish": (
        (("div", ("mul", "x", ("minimum", ("maximum", ("add", "x", 3.0), 0.0), 6.0)), 6.0),),
        "hardswish",
        "",
    ),
    "leaky_relu": ((("where", ("gt", "x", 0.0), "x", ("mul", "x", SLOPE)),), "leaky_relu", ""),
    "silu": ((("mul", "x", ("sigmoid", "x")),), "swish", ""),
    "gelu": (
        (
            ("mul", ("mul", "x", 0.5), _GELU_ERF),
            # as oneDNN computes it where eager calls it, infinity included
            ("where", ("eq", "x", math.inf), math.nan, ("mul", ("mul", "x", _GELU_ERF), 0.5)),
        ),
        "gelu",
        "none",
    ),
    "gelu_tanh": (
        (
            _gelu_tanh(("fma", _CUBE, 0.044715, "x")),
            _gelu_tanh(("add", "x", ("mul", _CUBE, 0.044715))),
        ),
        "gelu",
        "tanh",
    ),
}
"""Name: the ways it is written in primitives, and oneDNN's name and form of it."""

PRODUCERS = frozenset({"convolution", "mm", "addmm"})

CALLS = PRODUCERS | {"bmm", "baddbmm", "attention", "topk", "sort"}
"""Primitives that the library runs: what they read is in memory."""


@dataclass(slots=True)
class _Match:
    x: fx.Node | None = None
    nodes: list[fx.Node] = field(default_factory=list)
    scalars: list[float] = field(default_factory=list)


def find_epilogues(graph: fx.Graph) -> dict[fx.Node, LibraryEpilogue]:
    """The function behind each call that has one, by the call."""
    order = {node: position for position, node in enumerate(graph.nodes)}
    found: dict[fx.Node, LibraryEpilogue] = {}
    for last in graph.nodes:
        for function, (patterns, _, _) in FUNCTIONS.items():
            for match in (one for each in patterns for one in _matches(each, last, _Match())):
                made = _between(function, match, last, order)
                if made is not None:
                    found.setdefault(made[0], made[1])
    return found


def _between(
    function: str, match: _Match, last: fx.Node, order: Mapping[fx.Node, int]
) -> tuple[fx.Node, LibraryEpilogue] | None:
    """The call that a match begins with, if nobody else reads what lies between."""
    seen = match.x
    if seen is None or not _in_memory(last):
        return None
    inside = {*match.nodes, seen}
    if any(user not in inside for node in inside - {last} for user in node.users):
        return None
    call = seen
    if name_of(seen) == "reshape" and isinstance(seen.args[0], fx.Node):
        call = seen.args[0]
        if len(call.users) != 1:
            return None
    if name_of(call) not in PRODUCERS or not all(slope > 0 for slope in match.scalars):
        return None
    nodes = tuple(sorted(set(match.nodes), key=order.__getitem__))
    _, name, form = FUNCTIONS[function]
    return call, LibraryEpilogue(function, (name, tuple(match.scalars), form), seen, nodes)


def _in_memory(node: fx.Node) -> bool:
    """Whether somebody reads the value from memory."""
    return any(
        reader.op == "output" or name_of(reader) in CALLS or name_of(reader) is None
        for reader in readers(node)
    )


def _matches(pattern: Pattern, node: object, so_far: _Match) -> Iterator[_Match]:
    """Every way to read `node` as `pattern`."""
    if isinstance(pattern, tuple):
        if not isinstance(node, fx.Node) or name_of(node) != pattern[0] or node.kwargs:
            return
        if len(node.args) != len(pattern) - 1:
            return
        operands = [tuple(node.args)]
        if pattern[0] in COMMUTATIVE:
            operands.append(tuple(reversed(node.args)))
        for given in operands:
            yield from _all(pattern[1:], given, _with(so_far, node))
    elif pattern == "x":
        if isinstance(node, fx.Node) and so_far.x in (None, node) and name_of(node) != "full":
            yield _Match(node, so_far.nodes, so_far.scalars)
    elif isinstance(node, fx.Node) and name_of(node) == "full":
        value = node.args[1]
        same = pattern in (SLOPE, value) or (pattern != pattern and value != value)  # NaN
        if isinstance(value, int | float) and same:
            more = [float(value)] if pattern == SLOPE else []
            yield _Match(so_far.x, so_far.nodes, so_far.scalars + more)


def _all(patterns: tuple[Pattern, ...], given: tuple[Any, ...], so_far: _Match) -> Iterator[_Match]:
    if not patterns:
        yield so_far
        return
    for match in _matches(patterns[0], given[0], so_far):
        yield from _all(patterns[1:], given[1:], match)


def _with(match: _Match, node: fx.Node) -> _Match:
    return _Match(match.x, [*match.nodes, node], match.scalars)
