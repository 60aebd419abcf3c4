"""The materialisation pass.

In: a tensor graph. Out: a `MaterializationPlan`: the values computed into memory ("anchors"), how
each operand of a library call and each output is seen, in program order. Invariant: anchors are
never views; what a library call or the caller sees is an input, a call's result, or an anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import (
    Size,
    at_most,
    bounds,
    decide_equal,
    hint,
    is_long,
    is_open,
    plain,
    same,
    same_sizes,
    surely_less,
)
from flambeau_inductor.ir.loops import Scalar
from flambeau_inductor.ir.program import Layout, each_leaf
from flambeau_inductor.ir.tensors import (
    Argument,
    Choose,
    Gather,
    IndexCheck,
    IndexLookup,
    LibraryCall,
    Literal,
    Node,
    Output,
    Pointwise,
    Position,
    Reduction,
    Scatter,
    Shape,
    TensorScan,
    View,
    dim_ranges,
    dims_of,
    spread,
    viewed,
)
from flambeau_inductor.lowering.context import LoweringError
from flambeau_inductor.lowering.rules.pointwise import is_expensive
from flambeau_inductor.reachability import reached
from flambeau_inductor.schedule.materialize.concat_in_place import (
    is_concatenation,
    joined_in_place,
    with_pieces,
)
from flambeau_inductor.schedule.materialize.memory_order import loop_layouts, product_layouts
from flambeau_inductor.schedule.materialize.plan import (
    MaterializationPlan,
    StorageView,
    children,
    layout_of,
    operands,
    operands_of,
    root_of,
)
from flambeau_inductor.schedule.tensor_program import TensorProgram
from flambeau_inductor.scheduling_limits import Limits


def materialize(context: PassContext, program: TensorProgram) -> tuple[TensorProgram, int]:
    """Decide what gets memory; values of `again` only where somebody outside of loops sees them."""
    if program.plan is not None:
        return program, 0
    graph, limits = program.graph, context.limits
    made = MaterializationPlan(graph, list(graph.order))
    wholes: dict[Node, Node] = {}
    for output in graph.outputs:
        made.outputs.append(_plan_output(made, output, wholes))
    product_layouts(made)
    # the pieces of concatenations last: some are in memory for another call
    for call in sorted(
        (c for c in graph.order if isinstance(c, LibraryCall)), key=is_concatenation
    ):
        _plan_call(made, call, with_pieces(made, call, limits))
    for call in joined_in_place(made, limits):
        _plan_call(made, call, call.args)
    _drop_dead(made)
    for item in list(made.order):
        if isinstance(item, Node) and isinstance(item.define, Gather | Scatter):
            for part in item.define.index:
                if isinstance(part, IndexLookup):
                    _plan_check(made, part.node)
    for item in made.order:
        if isinstance(item, Node) and isinstance(item.define, Scatter):
            made.anchors.update((item, item.define.base))
            graph.strides[item.define.base] = graph.stride_of(item)
    asked = set(made.anchors)
    _choose_anchors(made, limits, program.again)
    loop_layouts(made, asked)
    return replace(program, plan=made), len(made.anchors)


def _copy(made: MaterializationPlan, node: Node, stride: Shape | None = None) -> Node:
    define, steps = Pointwise("clone", (node,)), node.stride if stride is None else stride
    copy = replace(node, name=f"{node.name}.copy", define=define, stride=steps)
    made.order.insert(made.order.index(node) + 1, copy)
    made.anchors.add(copy)
    return copy


def _needs_copy(root: Node) -> bool:
    return isinstance(root.define, Literal | Position)


def _plan_call(made: MaterializationPlan, call: LibraryCall, args: tuple[Argument, ...]) -> None:
    planned = partial(each_leaf, partial(_plan_argument, made, call))
    made.arguments[call] = planned(args)
    made.keywords[call] = tuple((key, planned(value)) for key, value in call.kwargs)


def _plan_argument(
    made: MaterializationPlan, call: LibraryCall, argument: Argument
) -> Argument | StorageView:
    if not isinstance(argument, Node):
        return argument
    node = argument
    if call.any_strides:
        node = _through_copies(made, node)
    root = root_of(node)
    layout = layout_of(made.graph, node)
    if layout is None or _needs_copy(root):
        return StorageView(_copy(made, node))
    made.anchor(root)
    seen = None if call.any_strides else made.graph.seen.get(node)
    if seen is not None and _same_strides(layout, seen):  # the operator may read them
        layout = replace(layout, stride=seen)
    return StorageView(root, None if node is root else layout)


def _through_copies(made: MaterializationPlan, node: Node) -> Node:
    """What `node` is a mere reordering of, if a matrix product can read that directly: a copy, or
    one of several that undo each other."""
    seen = node
    while (source := _copied(made, seen)) is not None:
        seen = source
        layout = layout_of(made.graph, seen)
        if layout is None or len(layout.stride) < 2:
            continue
        if 1 in layout.stride[-2:] and 0 not in layout.stride:
            node = seen
    return node


def _copied(made: MaterializationPlan, node: Node) -> Node | None:
    """What `node` shows a copy of, shown alike; None if it is of no copy, or of one with memory."""
    copy = root_of(node)
    define = copy.define
    if not isinstance(define, Pointwise) or define.op != "clone" or copy in made.anchors:
        return None
    source = define.args[0]
    if isinstance(node.define, View):
        shown = viewed(source, node.define.index, dim_ranges(node.shape))
        source = replace(node, define=shown)
    return None if _needs_copy(root_of(source)) else source


def _plan_check(made: MaterializationPlan, node: Node) -> None:
    root = root_of(node)
    for check in made.graph.checks.get(node, ()):
        if _needs_copy(root):
            _check_now(root, check)
            continue
        made.anchor(root)
        layout = None if node is root else layout_of(made.graph, node)
        if layout is None and not same(node.numel, root.numel):
            raise LoweringError(f"{node.name}: positions that are part of {root.name}, unordered")
        found, planned = made.checks.setdefault(root, []), replace(check, layout=layout)
        if planned not in found:
            found.append(planned)


def _check_now(root: Node, check: IndexCheck) -> None:
    """Check positions that are known already. A bad one is left to eager, which raises."""
    define = root.define
    if isinstance(define, Position):
        ranges = dim_ranges(root.shape)
        low, high = bounds(define.index, ranges)
        most = at_most(define.index, {name: top for name, (_, top) in ranges.items()})
        if is_open(root.shape) and most is not None:
            high = plain(most)  # type: ignore[assignment]
    else:
        assert isinstance(define, Literal)
        low = high = int(define.value)
    least = -check.size if check.wrap else 0
    if root.numel and not (surely_less(least - 1, low) and surely_less(high, check.size)):
        raise LoweringError(f"{root.name}: positions {low} to {high} of {check.size}")


def _plan_output(
    made: MaterializationPlan, output: Output, wholes: dict[Node, Node]
) -> StorageView | Scalar | None:
    """How an output is seen. wholes: copies of constants that outputs are parts of."""
    node = output.value
    if not isinstance(node, Node):
        return node
    root = root_of(node)
    graph = made.graph
    if (define := node.define) is not root.define and surely_less(node.numel, root.numel):
        if _needs_copy(root):  # who sees a part sees where it lies in all of it
            root = wholes[root] if root in wholes else wholes.setdefault(root, _copy(made, root))
            assert isinstance(define, View)
            node = replace(node, define=View(root, define.index))
    if not _needs_copy(root):
        if node is root and not made.has_memory(root) and not _overlaps(node.shape, output.stride):
            graph.strides[root] = output.stride
            made.anchors.add(root)
            return StorageView(root)
        layout = layout_of(graph, node)
        if layout is not None and _same_strides(layout, output.stride):
            made.anchor(root)
            if node is root and same_sizes(layout.stride, output.stride):
                return StorageView(root)
            seen = Layout(layout.shape, output.stride, layout.dtype, layout.device, layout.offset)
            return StorageView(root, seen)
    if _overlaps(node.shape, output.stride):
        return _overlapping(made, node, output.stride)
    return StorageView(_copy(made, node, output.stride))


def _overlapping(made: MaterializationPlan, node: Node, stride: Shape) -> StorageView:
    """An output that repeats elements (stride 0): one copy of each, seen through the strides."""
    if isinstance(node.define, Literal):  # one number, however often it is seen
        reach = 1 + sum((n - 1) * step for n, step in zip(node.shape, stride, strict=True))
        flat = replace(node, name=f"{node.name}.all", shape=(reach,), stride=(1,))
        made.order.insert(made.order.index(node) + 1, flat)
        seen = Layout(node.shape, stride, node.dtype, node.device)
        return StorageView(_copy(made, flat), seen)
    shape = tuple(1 if step == 0 else size for size, step in zip(node.shape, stride, strict=True))
    if _overlaps(shape, stride):
        raise NotImplementedError(f"{node.name}: an output of shape {node.shape}, strides {stride}")
    define = viewed(node, spread(shape, dims_of(len(shape))))
    view = replace(node, name=f"{node.name}.part", shape=shape, define=define, origins=())
    made.order.insert(made.order.index(node) + 1, view)
    seen = Layout(node.shape, stride, node.dtype, node.device)
    return StorageView(_copy(made, view, stride), seen)


def _overlaps(shape: Shape, stride: Shape) -> bool:
    reach: Size = 0
    pairs = [(s, n) for n, s in zip(shape, stride, strict=True) if is_long(n)]
    if any(decide_equal(n, 0) for n in shape):
        return False
    for step, size in sorted(pairs, key=lambda pair: (hint(pair[0]), hint(pair[1]))):
        if not surely_less(reach, step):
            return True
        reach += step * (size - 1)
    return False


def _same_strides(layout: Layout, stride: Shape) -> bool:
    if any(decide_equal(size, 0) for size in layout.shape):
        return True
    steps = zip(layout.shape, layout.stride, stride, strict=True)
    return all(same(a, b) or decide_equal(size, 1) for size, a, b in steps)


def _drop_dead(made: MaterializationPlan) -> None:
    def needed(item: Node | LibraryCall) -> Sequence[Node | LibraryCall]:
        if isinstance(item, LibraryCall):
            return operands_of(made, item)
        return children(item) if (call := made.maker(item)) is None else [call]

    ends: list[Node | LibraryCall] = [o.node for o in made.outputs if isinstance(o, StorageView)]
    ends.extend(
        c for c in made.order if isinstance(c, LibraryCall) and (c.impure or c in made.graph.sized)
    )
    live = {*reached(ends, needed)}
    made.order = [
        item
        for item in made.order
        if item in live or (isinstance(item, Node) and root_of(item) in live)
    ]
    made.anchors &= live
    made.live = live


@dataclass(slots=True)
class _Cost:
    ops: int = 0
    expensive: int = 0
    loads: frozenset[Node] = frozenset()
    looked_up: bool = False


def _choose_anchors(made: MaterializationPlan, limits: Limits, again: frozenset[Node]) -> None:
    readers: dict[Node, list[Node]] = {}
    for item in made.order:
        if isinstance(item, Node) and not isinstance(item.define, View):
            # Once for each different view: x + x reads x once, x + x.t() twice.
            for operand in set(operands(item)):
                readers.setdefault(root_of(operand), []).append(item)
    costs = {node: _Cost(0, 0, frozenset((node,))) for node in made.joined}
    for item in made.order:
        if not isinstance(item, Node) or isinstance(item.define, View):
            continue
        if isinstance(item.define, Reduction | TensorScan):
            made.anchors.add(item)
        cost = _cost(item, costs)
        wanted = not made.has_memory(item) and item not in again
        if wanted and _worth_memory(item, cost, readers, limits):
            kept = _before_widening(item)
            made.anchor(kept)
            if kept is not item:
                costs[kept] = _Cost(0, 0, frozenset((kept,)))
                cost = _cost(item, costs)
        costs[item] = _Cost(0, 0, frozenset((item,))) if made.has_memory(item) else cost


def _before_widening(node: Node) -> Node:
    """What takes fewer bytes than its cast `node`, which its readers compute; or `node`."""
    define = node.define
    if not isinstance(define, Pointwise) or define.op != "cast":
        return node
    (source,) = define.args
    narrower = source.dtype.itemsize < node.dtype.itemsize
    own = not isinstance(source.define, View | Literal | Position)
    return source if narrower and own else node


def _cost(node: Node, costs: dict[Node, _Cost]) -> _Cost:
    below = [costs[c] for c in children(node)]
    define = node.define
    own = expensive = 0
    if isinstance(define, Pointwise) and define.op != "clone":
        own, expensive = 1, int(is_expensive(define.op))
    elif isinstance(define, Choose):
        own = 3 * len(define.branches)
    elif isinstance(define, Gather | Scatter):
        own = 2
    return _Cost(
        own + sum(c.ops for c in below),
        expensive + sum(c.expensive for c in below),
        frozenset().union(*(c.loads for c in below)),
        isinstance(define, Gather) or any(c.looked_up for c in below),
    )


def _worth_memory(node: Node, cost: _Cost, readers: dict[Node, list[Node]], limits: Limits) -> bool:
    if isinstance(node.define, Literal | Position):
        return False
    users = readers.get(node, [])
    if cost.ops > limits.chain_ops or len(cost.loads) > limits.loop_buffers // 2:
        return True
    if cost.expensive:
        if len(users) > 1:
            return True
        own = limits.amplification * hint(node.numel)
        return any(hint(_points(u)) > own for u in users)
    if node.device.type in limits.recompute_on and cost.ops >= limits.vector_ops:
        rows = limits.vector_rows * hint(node.numel)
        if any(hint(_points(u)) >= rows and _is_multiplied(u, readers) for u in users):
            return True  # a vector that a matrix is multiplied by
    if len(users) <= 1:
        return False
    waits = cost.looked_up and node.device.type in limits.recompute_on  # for a read, to read
    if waits and len(users) >= limits.looked_up_readers and node.nbytes <= limits.row_bytes:
        return True
    big = [n for n in cost.loads if n.nbytes * 4 > node.nbytes]
    return cost.ops > limits.inline_ops or len(big) > limits.inline_loads


def _is_multiplied(node: Node, readers: dict[Node, list[Node]], steps: int = 3) -> bool:
    """Whether a sum over it is formed, at most so many steps later: a cast, a product, the sum."""
    if isinstance(node.define, Reduction):
        return True
    return steps > 1 and any(_is_multiplied(r, readers, steps - 1) for r in readers.get(node, []))


def _points(node: Node) -> Size:
    define = node.define
    if isinstance(define, Scatter):
        return define.src.numel
    return define.base.numel if isinstance(define, Reduction) else node.numel
