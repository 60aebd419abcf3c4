"""In-place concatenation: pieces written where they go.

In: concatenations that have memory. Out: anchors that store into the result's memory, and calls
that copy the other pieces into slices of it. Invariant: each element of a result is written once,
by a loop or by the library, before anything reads it.

A call stays in the plan for the readers of its result, but only copies pieces that are in memory
anyway: inputs, results of other calls, and values that a loop cannot share with a copy. It also
replaces what would be one loop that selects a piece for each element, where no loop reads it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import groupby

from flambeau_inductor.indexing import Size, decide_equal, depends_on_data, hint, same
from flambeau_inductor.ir.program import Argument as Given
from flambeau_inductor.ir.program import Extern, Layout, Ref
from flambeau_inductor.ir.tensors import (
    Argument,
    Attribute,
    Choose,
    Input,
    Joined,
    LibraryCall,
    Literal,
    Node,
    Pointwise,
    Reduction,
    Result,
    Scatter,
    TensorScan,
    View,
)
from flambeau_inductor.lowering.rules.shape import CONCATENATION
from flambeau_inductor.reachability import reached
from flambeau_inductor.schedule.materialize.plan import (
    MaterializationPlan,
    Piece,
    operands,
    root_of,
)
from flambeau_inductor.scheduling_limits import Limits
from flambeau_inductor.tuning import host_tuning

VECTOR = 64
"""Bytes of the widest vectors."""


def is_concatenation(call: LibraryCall) -> bool:
    """Whether a call of the library puts tensors one after another."""
    return call.target == CONCATENATION and not call.kwargs


def with_pieces(
    plan: MaterializationPlan, call: LibraryCall, limits: Limits
) -> tuple[Argument, ...]:
    """The arguments of `call`, in which new anchors stand for pieces that loops write in place."""
    joined = _joined(call)
    whole = None if joined is None else plan.results(call)[0]
    if joined is None or whole is None or not (chosen := _chosen(plan, joined.pieces, limits)):
        return call.args
    return (_placed(plan, whole, joined, chosen, call), joined.dim)


def joined_in_place(plan: MaterializationPlan, limits: Limits) -> Iterator[LibraryCall]:
    """Calls, yet to be planned, that replace loops which select a piece for each element; new
    anchors stand for the pieces that loops write."""
    nodes = [item for item in plan.order if isinstance(item, Node)]
    read: set[Node] = set()
    for node in nodes:
        if not isinstance(node.define, View):
            joined = _concatenated(node)
            read.update(operands(node) if joined is None else joined.pieces)
    seen, tuning = set(map(root_of, read)), host_tuning()
    for node in nodes:
        joined = _concatenated(node)
        if joined is None or decide_equal(node.numel, 0):
            continue
        shown = node in plan.anchors
        apart = shown and ((node not in seen and _pays(joined)) or _ends_rows(joined))
        if not apart and not (node in read and _selects_by_element(plan, node, joined, limits)):
            continue
        sizes = enumerate(piece.nbytes for piece in joined.pieces)
        small = {k for k, size in sizes if size < tuning.concat_copy_bytes}
        pieces = _placed(plan, node, joined, _computed(plan, joined.pieces) | small, node)
        args = (pieces, joined.dim)
        call = LibraryCall(node.name, CONCATENATION, args, out=True, origins=node.origins)
        plan.joined[node] = call
        plan.anchors.discard(node)
        plan.order[plan.order.index(node)] = call
        yield call


def _concatenated(node: Node) -> Joined | None:
    return node.define.joined if isinstance(node.define, Choose) else None


def rest(
    plan: MaterializationPlan, call: LibraryCall, args: tuple[Given, ...], whole: str
) -> list[Extern]:
    """The calls that copy what no loop writes; `args` are those of the program, `whole` the buffer
    of the result."""
    joined, (result,) = _joined(call), plan.results(call)
    planned, references = plan.arguments[call][0], args[0]
    assert joined is not None and result is not None
    assert isinstance(planned, tuple) and isinstance(references, tuple)
    if not any(map(plan.is_piece, planned)):
        return [Extern(call.target, args, (), (Ref(whole),), (), call.origins)]
    dim, step = joined.dim, plan.graph.stride_of(result)
    calls: list[Extern] = []
    begin: Size = 0
    members = zip(joined.pieces, planned, references, strict=True)
    for written, run in groupby(members, lambda each: plan.is_piece(each[1])):
        some = list(run)
        size = sum(node.shape[dim] for node, _, _ in some)
        if not written:
            shape = (*result.shape[:dim], size, *result.shape[dim + 1 :])
            into = Layout(shape, step, result.dtype, result.device, begin * step[dim])
            given = tuple(reference for _, _, reference in some)
            place = (Ref(whole, into),)
            calls.append(Extern(call.target, (given, dim), (), place, (), call.origins))
        begin += size
    return calls


def _joined(call: LibraryCall) -> Joined | None:
    if not is_concatenation(call):
        return None
    given, dim = call.args
    assert isinstance(given, tuple) and isinstance(dim, int)
    return Joined(tuple(each for each in given if isinstance(each, Node)), dim)


def _placed(
    plan: MaterializationPlan,
    whole: Node,
    joined: Joined,
    chosen: Container[int],
    place: Node | LibraryCall,
) -> tuple[Node, ...]:
    """The pieces, of which those that are `chosen` are new anchors inside the memory of `whole`:
    each after what it is a copy of, or, where data decides how much memory that is, all right
    before the `place` of the whole."""
    late = depends_on_data(whole.shape)
    before: list[Node] = []
    behind: dict[Node | LibraryCall, list[Node]] = {}
    found: list[Node] = []
    begin: Size = 0
    step = plan.graph.stride_of(whole)
    for position, node in enumerate(joined.pieces):
        made = node
        if position in chosen:
            name, define = f"{whole.name}.piece{position}", Pointwise("clone", (node,))
            made = Node(name, node.shape, node.dtype, node.device, define, step, node.origins)
            plan.anchors.add(made)
            plan.pieces[made] = Piece(whole, begin * step[joined.dim])
            own = before if late else behind.setdefault(plan.joined.get(node, node), [])
            own.append(made)
        found.append(made)
        begin += node.shape[joined.dim]
    if behind:
        plan.order = [each for item in plan.order for each in (item, *behind.get(item, ()))]
    here = plan.order.index(place)
    plan.order[here:here] = before
    return tuple(found)


def _chosen(plan: MaterializationPlan, pieces: tuple[Node, ...], limits: Limits) -> set[int]:
    """Positions of pieces that loops write; none where the calls left would cost more."""
    computed = _computed(plan, pieces)
    sizes = {hint(pieces[k].numel) for k in computed}
    tiny = {size for size in sizes if size <= limits.tiny_points}
    chosen = computed | {k for k, node in enumerate(pieces) if hint(node.numel) in tiny}
    runs = sum(not kind for kind, _ in groupby(k in chosen for k in range(len(pieces))))
    saved = sum(pieces[k].nbytes for k in chosen)
    return chosen if (runs - 1) * host_tuning().concat_call_bytes <= saved else set()


def _computed(plan: MaterializationPlan, pieces: tuple[Node, ...]) -> set[int]:
    """Positions of pieces computed for themselves alone, or in the order of their own elements."""
    roots = [root_of(node) for node in pieces]
    return {
        k
        for k, (node, root) in enumerate(zip(pieces, roots, strict=True))
        if not isinstance(root.define, Input | Attribute | Result | TensorScan | Scatter)
        and ((roots.count(root) == 1 and not plan.has_memory(root)) or same(node.numel, root.numel))
    }


def _pays(joined: Joined) -> bool:
    """Whether a loop a piece costs less than one of all; on a GPU, where it adds no launch."""
    on_cpu = joined.pieces[0].device.type == "cpu"
    return on_cpu or all(map(_stored_with_rows, joined.pieces))


def _ends_rows(joined: Joined) -> bool:
    """Whether the loop that reduces rows also computes them, and what ends them is a number."""
    first, *rest = joined.pieces
    if len(rest) != 1 or not isinstance(root_of(rest[0]).define, Literal):
        return False
    return first.device.type != "cpu" and any(
        isinstance(node.define, Reduction)
        and same(node.define.base.shape[-1], first.shape[-1])
        and node.define.dims == (len(node.define.base.shape) - 1,)
        for node in _inlined(first)
    )


def _inlined(node: Node) -> Iterator[Node]:
    """What a value is computed of, element by element."""
    return reached(
        [node], lambda item: operands(item) if isinstance(item.define, Pointwise | View) else ()
    )


def _selects_by_element(
    plan: MaterializationPlan, node: Node, joined: Joined, limits: Limits
) -> bool:
    """Whether a CPU's vectors would be put together of several pieces."""
    if node.device.type != "cpu" or hint(node.numel) <= limits.tiny_points:
        return False
    if not decide_equal(plan.graph.stride_of(node)[joined.dim], 1):
        return False
    lanes = VECTOR // node.dtype.itemsize
    whole = all(same(piece.shape[joined.dim] % lanes, 0) for piece in joined.pieces)
    return len(joined.pieces) > host_tuning().concat_pieces or not whole


def _stored_with_rows(node: Node) -> bool:
    """Whether a value is one a row: made, element by element, of what loops reduce."""
    reduces = False
    seen, work = set[Node](), [node]
    while work:
        item = work.pop()
        define = item.define
        if item in seen or isinstance(define, Literal):
            continue
        seen.add(item)
        if isinstance(define, View) and same(item.numel, define.base.numel):
            work.append(define.base)
        elif isinstance(define, Pointwise):
            work.extend(define.args)
        elif isinstance(define, Reduction):
            reduces = True
        else:
            return False
    return reduces
