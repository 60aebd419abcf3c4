"""Memory layouts of matrix products' operands.

In: a `MaterializationPlan` whose outputs are decided. Out: other strides for some values.
Invariant: only values that no other library call sees and that are not returned; their readers go
by the strides.

A product takes a transposed operand as it is. A value computed from transposed memory is therefore
best left transposed: then the loop that computes it reads and writes along the same dimension.
"""

from __future__ import annotations

from flambeau_inductor.indexing import decide_equal, hint, simplify
from flambeau_inductor.ir.tensors import (
    Argument,
    LibraryCall,
    Literal,
    Node,
    Pointwise,
    Position,
    Shape,
    View,
    dim_ranges,
    dims_of,
    dot,
)
from flambeau_inductor.schedule.fuse.emit import Emitter
from flambeau_inductor.schedule.materialize.plan import (
    MaterializationPlan,
    NodeStorage,
    layout_of,
    root_of,
)


def product_layouts(plan: MaterializationPlan) -> None:
    """Swap the two innermost dimensions of operands that read their sources so."""
    seen_by: dict[Node, list[tuple[LibraryCall, Node]]] = {}
    for item in plan.order:
        if isinstance(item, LibraryCall):
            for node in _nodes((*item.args, *(v for _, v in item.kwargs))):
                seen_by.setdefault(root_of(node), []).append((item, node))
    for node, uses in seen_by.items():
        free = isinstance(node.define, Pointwise) and not plan.has_memory(node)
        if not free or len(node.shape) < 2 or any(hint(n) < 2 for n in node.shape[-2:]):
            continue
        if not all(call.any_strides for call, _ in uses) or decide_equal(node.numel, 0):
            continue
        if _reads_transposed(plan, node):
            before = plan.graph.stride_of(node)
            plan.graph.strides[node] = _swapped(node.shape)
            if any(layout_of(plan.graph, seen) is None for _, seen in uses):
                plan.graph.strides[node] = before


def _nodes(arguments: tuple[Argument, ...]) -> list[Node]:
    found: list[Node] = []
    for argument in arguments:
        if isinstance(argument, Node):
            found.append(argument)
        elif isinstance(argument, tuple):
            found.extend(_nodes(argument))
    return found


def _swapped(shape: Shape) -> Shape:
    """Dense strides, the last dimension but one innermost."""
    strides: list[int] = [0] * len(shape)
    step = 1
    for dim in (len(shape) - 2, len(shape) - 1, *range(len(shape) - 3, -1, -1)):
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def _reads_transposed(plan: MaterializationPlan, node: Node) -> bool:
    """Whether more bytes come in along the last dimension but one than along the last.

    What the value is made of is taken as if it were in memory, copies looked through.
    """

    def where(other: Node) -> NodeStorage | None:
        define = other.define
        if isinstance(define, Literal | Position | View):
            return None
        if isinstance(define, Pointwise) and define.op == "clone":
            return None
        return NodeStorage(other.name, plan.graph.stride_of(other))

    emitter = Emitter(where, dict(dim_ranges(node.shape)))
    emitter.define(node, dims_of(len(node.shape)), None)
    last, other = dims_of(len(node.shape))[-1].name, dims_of(len(node.shape))[-2].name
    balance = 0
    for source, index in emitter.reads:
        flat = simplify(dot(index, plan.graph.stride_of(source)), emitter.ranges)
        along, across = flat.coefficient(last), flat.coefficient(other)
        if along == 1:
            balance -= source.nbytes
        elif across == 1 and along != 0:
            balance += source.nbytes
    return balance > 0
