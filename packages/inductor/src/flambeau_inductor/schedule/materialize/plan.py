"""The materialisation plan, as data.

In: nothing (these are the data, and questions about tensor definitions). Out:
`MaterializationPlan`.
Invariant: anchors are never views; `layout_of` is exact or None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from flambeau_inductor.indexing import (
    Expr,
    Size,
    decide_equal,
    decide_less,
    is_long,
    is_size,
    plain,
    simplify,
    symbols_in,
)
from flambeau_inductor.ir.loops import Scalar
from flambeau_inductor.ir.program import ComputedNumber, Layout, leaves
from flambeau_inductor.ir.tensors import (
    Argument,
    Attribute,
    Choose,
    Gather,
    IndexCheck,
    IndexLookup,
    Input,
    LibraryCall,
    Node,
    Pointwise,
    Reduction,
    Result,
    Scatter,
    Shape,
    TensorGraph,
    TensorScan,
    View,
    dim_ranges,
    dims_of,
    dot,
)
from flambeau_inductor.reachability import reached


@dataclass(frozen=True, slots=True)
class StorageView:
    """Memory of `node` seen through `layout` (None: as it is)."""

    node: Node
    layout: Layout | None = None


class NodeStorage(NamedTuple):
    """Where the elements of a node are: in a buffer, by strides, from an element on."""

    buffer: str
    stride: Shape
    offset: Size = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """An anchor's elements are among those of `whole`, from `offset` on."""

    whole: Node
    offset: Size


PlannedArgument = Argument | StorageView | tuple["PlannedArgument", ...]


@dataclass(slots=True)
class MaterializationPlan:
    """What has memory, and how it is seen."""

    graph: TensorGraph
    order: list[Node | LibraryCall] = field(default_factory=list)
    anchors: set[Node] = field(default_factory=set)
    arguments: dict[LibraryCall, tuple[PlannedArgument, ...]] = field(default_factory=dict)
    keywords: dict[LibraryCall, tuple[tuple[str, PlannedArgument], ...]] = field(
        default_factory=dict
    )
    outputs: list[StorageView | Scalar | None] = field(default_factory=list)
    checks: dict[Node, list[IndexCheck]] = field(default_factory=dict)
    live: set[Node | LibraryCall] = field(default_factory=set)
    pieces: dict[Node, Piece] = field(default_factory=dict)
    """Anchors without memory of their own."""

    joined: dict[Node, LibraryCall] = field(default_factory=dict)
    """Values that are made of such anchors alone: by what stands for them in the order."""

    def has_memory(self, node: Node) -> bool:
        given = isinstance(node.define, Input | Attribute | Result)
        return given or node in self.anchors or node in self.joined

    def anchor(self, node: Node) -> None:
        """Give a node memory, if it has none."""
        if not self.has_memory(node):
            self.anchors.add(node)

    def maker(self, node: Node) -> LibraryCall | None:
        """The call that a value is there after."""
        define = node.define
        return define.call if isinstance(define, Result) else self.joined.get(node)

    def results(self, call: LibraryCall) -> list[Node | None]:
        """The values that are there after a call."""
        found = self.graph.results.get(call)
        return [n for n, c in self.joined.items() if c is call] if found is None else found

    def memory_of(self, node: Node) -> Node:
        """The node whose memory an anchor's elements are in."""
        if isinstance(node.define, Scatter):
            return node.define.base
        piece = self.pieces.get(node)
        return node if piece is None else piece.whole

    def is_piece(self, argument: PlannedArgument) -> bool:
        """Whether an operand is memory that another one's result has."""
        return isinstance(argument, StorageView) and argument.node in self.pieces


def root_of(node: Node) -> Node:
    """The node that a view looks at; any other node itself."""
    return node.define.base if isinstance(node.define, View) else node


def operands(node: Node) -> list[Node]:
    """Nodes that the definition reads, as it names them."""
    define = node.define
    if isinstance(define, View | Reduction | TensorScan):
        return [define.base]
    if isinstance(define, Pointwise):
        return list(define.args)
    if isinstance(define, Choose):
        return [*(b for _, b in define.branches), define.other]
    if isinstance(define, Scatter | Gather):
        written = [define.src] if isinstance(define, Scatter) else []
        looked_up = [p.node for p in define.index if isinstance(p, IndexLookup)]
        return [define.base, *written, *looked_up]
    return []


def children(node: Node) -> list[Node]:
    """Nodes that the definition reads, views looked through."""
    return [root_of(o) for o in operands(node)]


def layout_of(graph: TensorGraph, node: Node) -> Layout | None:
    """`node` as a strided view of its root's memory; None where strides cannot say it."""
    root = root_of(node)
    if node is root:
        return graph.layout(root)
    define = node.define
    assert isinstance(define, View)
    if decide_equal(node.numel, 0):
        return Layout(node.shape, node.stride, node.dtype, node.device)
    flat = simplify(dot(define.index, graph.stride_of(root)), dim_ranges(node.shape))
    steps: list[Size] = []
    for d, size in zip(dims_of(len(node.shape)), node.shape, strict=True):
        step = flat.coefficient(d.name)
        if step is None or decide_less(step, 0):
            return None
        steps.append(step if is_long(size) else node.stride[len(steps)])
    offset = simplify(flat.substitute({d.name: 0 for d in dims_of(len(node.shape))}), {})
    if not is_size(offset):
        return None
    return Layout(node.shape, tuple(steps), node.dtype, node.device, plain(offset))


def operands_of(made: MaterializationPlan, call: LibraryCall) -> list[Node]:
    """Nodes whose memory the call reads."""
    given = leaves((made.arguments[call], tuple(v for _, v in made.keywords[call])))
    return [each.node for each in given if isinstance(each, StorageView)]


def data_sizes_in(number: object) -> set[str]:
    """The symbols that depend on data in a number, and all symbols of one that Python computes."""
    if isinstance(number, ComputedNumber):
        return set(_NAMES.findall(number.text))
    return {s.name for s in symbols_in(number) if s.by_data} if isinstance(number, Expr) else set()


def data_sizes_of(made: MaterializationPlan, node: Node) -> set[str]:
    """The symbols that depend on data and that computing a node takes: those of its sizes, of what
    is computed with it, of what it reads of others' memory, of checks of what it reads, and of the
    memory that it is a part of, which is allocated for the first part."""
    piece, owner = made.pieces.get(node), made.memory_of(node)
    found = data_sizes_in(0 if piece is None else piece.offset)
    found |= set().union(*map(data_sizes_in, (*owner.shape, *made.graph.stride_of(owner))))

    def computed_with(one: Node) -> list[Node]:
        return operands(one) if one is node or not made.has_memory(one) else []

    for one in reached([node], computed_with):
        define = one.define
        index = getattr(define, "index", ())
        places = index if isinstance(index, tuple) else (index,)
        numbers = (*one.shape, *one.stride, *made.graph.stride_of(one), *places)
        checks = (check for x in (one, *operands(one)) for check in made.checks.get(x, ()))
        for number in (*numbers, *(check.size for check in checks)):
            found |= data_sizes_in(number)
    return found


def data_sizes_of_call(made: MaterializationPlan, call: LibraryCall) -> set[str]:
    """Those that a call is given, as numbers and as sizes of what it reads."""
    found: set[str] = set()
    for each in leaves((made.arguments[call], tuple(v for _, v in made.keywords[call]))):
        numbers: tuple[object, ...] = (each,)
        if isinstance(each, StorageView):
            layout = each.layout or made.graph.layout(each.node)
            numbers = (*layout.shape, *layout.stride, layout.offset)
        for number in numbers:
            found |= data_sizes_in(number)
    return found


_NAMES = re.compile(r"\bsize\d+\b")
