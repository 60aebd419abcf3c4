"""Memory orders that materialisation chooses, of products' operands and of what only loops see.

In: a plan. Out: strides, in its graph. Invariant: an operand that is computed from transposed
memory stays transposed, as products take it; what only loops see lies as most of what it is
computed from does.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau_inductor.indexing import Size, decide_equal, hint, plain, simplify
from flambeau_inductor.ir.program import leaves
from flambeau_inductor.ir.tensors import (
    LibraryCall,
    Literal,
    Node,
    Pointwise,
    Position,
    Reduction,
    Shape,
    View,
    dim_ranges,
    dims_of,
    dot,
    flat_strides,
)
from flambeau_inductor.schedule.fuse.emit import Emitter, Where
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
            for node in leaves((*item.args, *(value for _, value in item.kwargs))):
                if isinstance(node, Node):
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


def _swapped(shape: Shape) -> Shape:
    """Dense strides, the last dimension but one innermost."""
    strides: list[int] = [0] * len(shape)
    step = 1
    for dim in (len(shape) - 2, len(shape) - 1, *range(len(shape) - 3, -1, -1)):
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def _reads_transposed(plan: MaterializationPlan, node: Node) -> bool:
    """Whether more bytes come in along the last dimension but one than along the last."""
    dims = (len(node.shape) - 2, len(node.shape) - 1)

    def where(other: Node) -> NodeStorage | None:
        define = other.define
        if isinstance(define, Literal | Position | View):
            return None
        if isinstance(define, Pointwise) and define.op == "clone":
            return None
        return NodeStorage(other.name, plan.graph.stride_of(other))

    before, last = _votes(_sources(plan, node, where, dims), dims).values()
    return before > last


Steps = tuple[int | None, ...]
"""The strides of a source along each dimension of a value that is computed from it; None where the
step differs from place to place."""


def _sources(
    plan: MaterializationPlan, node: Node, where: Where, moving: Sequence[int]
) -> list[tuple[Node, Steps]]:
    """What `node` is computed from that is stepped through along all dimensions `moving`, and its
    steps along all dimensions of `node`."""
    dims = dims_of(len(node.shape))
    emitter = Emitter(where=where, ranges=dict(dim_ranges(node.shape)))
    emitter.define(node, dims, None)
    flat = (
        (source, simplify(dot(index, plan.graph.stride_of(source)), emitter.ranges))
        for source, index in emitter.reads
    )
    found = ((source, tuple(at.coefficient(dim.name) for dim in dims)) for source, at in flat)
    return [(source, steps) for source, steps in found if all(steps[k] != 0 for k in moving)]


def _votes(sources: list[tuple[Node, Steps]], dims: Sequence[int]) -> dict[int, int]:
    """The bytes that lie along each of these dimensions."""
    return {k: sum(s.nbytes for s, steps in sources if steps[k] == 1) for k in dims}


def loop_layouts(plan: MaterializationPlan, asked: set[Node]) -> None:
    """Neighbours in memory along the dimension along which most bytes lie that a value is computed
    from, where eager has it in another order, but nobody sees it (it is not `asked` for); along the
    last dimension where as much lies along it, and a row is reduced."""

    def where(other: Node) -> NodeStorage | None:
        stored = plan.has_memory(other)
        return NodeStorage(other.name, plan.graph.stride_of(other)) if stored else None

    reduced = _reduced_rows(plan, where)
    for node in plan.order:
        if not isinstance(node, Node) or node not in plan.anchors or node in asked:
            continue
        if not isinstance(node.define, Pointwise):
            continue
        strides = plan.graph.stride_of(node)
        long = [k for k, size in enumerate(node.shape) if hint(size) > 1]
        inner = [k for k in long if hint(strides[k]) == 1]
        if len(inner) != 1 or len(long) < 2:
            continue
        last = len(node.shape) - 1
        sources = _sources(plan, node, where, long)
        votes = _votes(sources, long)
        most = max(long, key=lambda k: (votes[k], k == last and node in reduced, k == inner[0]))
        if most == last != inner[0]:
            plan.graph.strides[node] = flat_strides(node.shape)
        elif most != inner[0]:
            along = [each for each in sources if each[1][most] == 1]
            _, steps = max(along, key=lambda each: each[0].nbytes)
            known = {k: step for k in long if isinstance(step := steps[k], int) and step > 0}
            if len(known) == len(long):
                order = sorted(known, key=lambda k: known[k], reverse=True)
                plan.graph.strides[node] = _in_order(node.shape, order)


def _in_order(shape: Shape, order: list[int]) -> Shape:
    """Dense strides, these dimensions outermost first; the others have one element."""
    strides: list[Size] = [1] * len(shape)
    step: Size = 1
    for dim in reversed(order):
        strides[dim] = step
        step = plain(step * shape[dim])
    return tuple(strides)


def _reduced_rows(plan: MaterializationPlan, where: Where) -> set[Node]:
    """What is read along its last dimension for a reduction over that."""
    found: set[Node] = set()
    for node in plan.anchors:
        define = node.define
        if isinstance(define, Reduction):
            dims = dims_of(len(define.base.shape))
            emitter = Emitter(where=where, ranges=dict(dim_ranges(define.base.shape)))
            emitter.read(define.base, dims, None)
            along = {dims[k].name for k in define.dims}
            found |= {n for n, index in emitter.reads if index and index[-1].vars & along}
    return found
