"""Products in chunks, which are multiplied while others are gathered or scattered.

In: a graph of primitives with collectives of torch.distributed. Out: the same, where a product of
what is gathered over ranks, or a product that is scattered over them, is several: the next chunk is
on its way while one is multiplied (Wang et al., Overlap Communication with Dependent Computation
via Decomposition, ASPLOS 2023). Invariant: each element is the same sum over the same inner
dimension; how many chunks there are depends on sizes, group and kind of device alone, so that ranks
with the same graph start the same collectives in the same order; nothing is in chunks that the
model of the link and of the machine does not say takes less time so.

Sizes are known, and rows are gathered and scattered along the first dimension, as the collectives
do. Whoever else reads what is gathered reads it put together again, a copy that is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from flambeau_prims import PRIMS
from torch import fx

from flambeau_inductor._torch_compat import WAIT, overload_of
from flambeau_inductor.ir.nodes import value_of
from flambeau_inductor.passes.merge_collectives import ALL_GATHER, REDUCE_SCATTER
from flambeau_inductor.templates.gemm.problem import library_seconds
from flambeau_inductor.templates.gemm.tiles import GemmShape
from flambeau_inductor.tuning import tuning_of
from flambeau_inductor.tuning.machine import link_of

ADDMM, BROADCAST = PRIMS["addmm"].overload, PRIMS["broadcast_in_dim"].overload
CAT, MM = PRIMS["cat"].overload, PRIMS["mm"].overload
RESHAPE, SLICE = PRIMS["reshape"].overload, PRIMS["slice"].overload
CHUNKS = (2, 4, 8)
GAIN = 0.95
"""The most that chunks may take, as a share of what the whole takes."""


@dataclass(frozen=True)
class _Case:
    """A product and the collective before or after it. rows: of the first dimension of what one
    rank has, which are in chunks; moved: bytes that the collective moves to a rank; copied: bytes
    that are put together again."""

    call: fx.Node
    wait: fx.Node
    product: fx.Node
    ranks: int
    rows: int
    moved: int
    copied: int


def chunk_products(graph: fx.Graph) -> int:
    """Rewrite all that gains; returns how many products are in chunks."""
    changed = 0
    for find, rewrite in ((_gathered, _multiply_chunks), (_scattered, _scatter_chunks)):
        for case in [each for each in map(find, list(graph.nodes)) if each is not None]:
            chunks = _chunks(case)
            if chunks > 1:
                rewrite(graph, case, chunks)
                changed += 1
    return changed


def _chunks(case: _Case) -> int:
    """How many take least."""
    whole, best = _seconds(case, 1), 1
    least = GAIN * whole
    for count in CHUNKS:
        if case.rows % count == 0 and (taken := _seconds(case, count)) < least:
            least, best = taken, count
    return best


def _seconds(case: _Case, chunks: int) -> float:
    """What product and collective take: the longer of both hides the other but for one chunk."""
    kind = value_of(case.product).device.type
    link = link_of(kind)
    moved = link.seconds(case.moved // chunks)
    multiplied = _product_seconds(case.product, chunks)
    copied = case.copied / link.copy_rate if chunks > 1 else 0.0
    return moved + multiplied + (chunks - 1) * max(moved, multiplied) + copied


def _product_seconds(product: fx.Node, chunks: int) -> float:
    a, b = map(value_of, _matrices(product))
    rows, inner, columns = a.shape[0] // chunks, a.shape[1], b.shape[1]
    if a.device.type == "cpu":
        return float(2 * rows * inner * columns / link_of("cpu").product_rate)
    shape = GemmShape(rows, columns, inner, 1, a.dtype.itemsize)
    return library_seconds(shape, True, tuning_of([a.device]))


def _gathered(node: fx.Node) -> _Case | None:
    """The product whose left operand a collective gathers, perhaps in another shape."""
    wait = _wait_of(node, ALL_GATHER)
    if wait is None or not _is_known(node.args[0], wait):
        return None
    given: Any = node.args[0]
    ranks: Any = node.args[1]
    matrices = [each for each in wait.users if _is_flat(each, wait)]
    for left in (wait, *matrices):
        for product in filter(_is_product, left.users):
            own = _matrices(product)
            if own[0] is not left or own[1] in (wait, *matrices) or not _is_known(left, product):
                continue
            others = len(wait.users) > 1 or len(left.users) > 1
            again = _bytes(product) + _bytes(wait) * others
            rows = int(value_of(given).shape[0])
            return _Case(node, wait, product, ranks, rows, _bytes(wait), 2 * again)
    return None


def _is_flat(reader: fx.Node, wait: fx.Node) -> bool:
    return reader.target == RESHAPE and _keeps_last(value_of(reader), value_of(wait))


def _is_product(node: fx.Node) -> bool:
    """Whether a node is a product, perhaps with one row that is added to all of its own."""
    if node.target != ADDMM:
        return node.target == MM
    added: Any = node.args[0]
    return added.target == BROADCAST and list(added.args[2]) == [1]


def _matrices(product: fx.Node) -> tuple[Any, Any]:
    left, right = product.args[1:3] if product.target == ADDMM else product.args
    return left, right


def _scattered(node: fx.Node) -> _Case | None:
    """The product that a collective scatters, perhaps in another shape."""
    wait = _wait_of(node, REDUCE_SCATTER)
    given: Any = node.args[0] if wait is not None else None
    if wait is None or not _is_known(given, wait) or _only_user(given, node.target) is not node:
        return None
    product = given
    if given.target == RESHAPE and _keeps_last(value_of(given.args[0]), value_of(given)):
        product = given.args[0]
        if _only_user(product, RESHAPE) is not given:
            return None
    if not _is_product(product) or not _is_known(_matrices(product)[0], product):
        return None
    ranks: Any = node.args[2]
    rows, rest = divmod(int(value_of(given).shape[0]), ranks)
    again = _bytes(_matrices(product)[0]) + _bytes(wait)
    return None if rest else _Case(node, wait, product, ranks, rows, _bytes(given), 2 * again)


def _wait_of(node: fx.Node, target: str) -> fx.Node | None:
    """The wait of a collective of this kind, if it is its only user."""
    if node.op != "call_function" or str(node.target) != target or node.kwargs:
        return None
    return _only_user(node, overload_of(WAIT))


def _only_user(node: fx.Node, target: Any) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].target == target else None


def _is_known(*nodes: Any) -> bool:
    """Whether sizes are numbers, and elements lie in a row in memory."""
    values = [value_of(node) for node in nodes]
    known = all(isinstance(size, int) for value in values for size in value.shape)
    return known and all(value.dim() and value.is_contiguous() for value in values)


def _keeps_last(matrix: Any, other: Any) -> bool:
    """Whether a matrix has the rows of another shape, in their order."""
    return len(matrix.shape) == 2 and len(other.shape) > 1 and matrix.shape[1] == other.shape[-1]


def _bytes(node: fx.Node) -> int:
    value = value_of(node)
    return int(prod(value.shape) * value.dtype.itemsize)


class _Builder:
    """Nodes before another, with values of their sizes."""

    def __init__(self, graph: fx.Graph, before: fx.Node) -> None:
        self._graph, self._before = graph, before

    def add(
        self, target: Any, args: tuple[Any, ...], shape: Sequence[int], like: fx.Node
    ) -> fx.Node:
        with self._graph.inserting_before(self._before):
            node = self._graph.call_function(target, args)
        node.meta = {**like.meta, "val": value_of(like).new_empty(shape)}
        return node

    def reshaped(self, node: fx.Node, shape: Sequence[int]) -> fx.Node:
        return self.add(RESHAPE, (node, [*shape]), shape, node)

    def part(self, node: fx.Node, dim: int, start: int, size: int) -> fx.Node:
        """Some of the rows along a dimension."""
        ends = list(value_of(node).shape)
        begins, made = [0] * len(ends), list(ends)
        begins[dim], ends[dim], made[dim] = start, start + size, size
        return self.add(SLICE, (node, begins, ends, [1] * len(ends)), made, node)

    def product(self, like: fx.Node, left: fx.Node) -> fx.Node:
        """The same with fewer rows."""
        shape = [value_of(left).shape[0], value_of(like).shape[1]]
        if like.target == MM:
            return self.add(MM, (left, like.args[1]), shape, like)
        row: Any = like.args[0]
        added = self.add(BROADCAST, (row.args[0], shape, row.args[2]), shape, row)
        return self.add(ADDMM, (added, left, *like.args[2:]), shape, like)

    def joined(self, nodes: Sequence[fx.Node], dim: int, like: fx.Node) -> fx.Node:
        """Parts put together, in the shape of `like`."""
        made = list(value_of(nodes[0]).shape)
        made[dim] *= len(nodes)
        whole = self.reshaped(self.add(CAT, (nodes, dim), made, nodes[0]), value_of(like).shape)
        whole.meta = dict(like.meta)
        return whole


def _multiply_chunks(graph: fx.Graph, case: _Case, chunks: int) -> None:
    """Gather chunk by chunk, multiply each, and put the results together."""
    given: Any = case.call.args[0]
    first, *rest = value_of(case.wait).shape
    size, source = case.rows // chunks, _matrices(case.product)[0]
    (rows, inner), columns = value_of(source).shape, value_of(case.product).shape[1]
    start, after, then = (_Builder(graph, x) for x in (case.call, case.wait, case.product))
    waits, products = [], []
    for place in range(chunks):
        part = start.part(given, 0, place * size, size)
        shape = [first // chunks, *rest]
        call = start.add(case.call.target, (part, *case.call.args[1:]), shape, case.call)
        waits.append(after.add(case.wait.target, (call,), shape, case.wait))
    for each in waits:
        made = then.product(case.product, then.reshaped(each, [rows // chunks, inner]))
        products.append(then.reshaped(made, [case.ranks, rows // chunks // case.ranks, columns]))
    case.product.replace_all_uses_with(then.joined(products, 1, case.product))
    graph.erase_node(case.product)
    if source is not case.wait and not source.users:
        graph.erase_node(source)
    if case.wait.users:
        flat = [case.ranks, size * prod(rest)]
        case.wait.replace_all_uses_with(
            after.joined([after.reshaped(each, flat) for each in waits], 1, case.wait)
        )
    graph.erase_node(case.wait)
    graph.erase_node(case.call)


def _scatter_chunks(graph: fx.Graph, case: _Case, chunks: int) -> None:
    """Multiply chunk by chunk, scatter each, and put together what this rank has of them."""
    given: Any = case.call.args[0]
    first, *rest = value_of(given).shape
    size, left = case.rows // chunks, _matrices(case.product)[0]
    rows, inner = value_of(left).shape
    then, after = _Builder(graph, case.call), _Builder(graph, case.wait)
    apart = then.reshaped(left, [case.ranks, rows // case.ranks, inner])
    own, calls = rows // case.ranks // chunks, []
    for place in range(chunks):
        part = then.reshaped(then.part(apart, 1, place * own, own), [case.ranks * own, inner])
        made = then.reshaped(then.product(case.product, part), [first // chunks, *rest])
        shape = [size, *rest]
        calls.append(then.add(case.call.target, (made, *case.call.args[1:]), shape, case.call))
    waits = [after.add(case.wait.target, (x,), value_of(x).shape, case.wait) for x in calls]
    case.wait.replace_all_uses_with(after.joined(waits, 0, case.wait))
    for node in (case.wait, case.call, given, case.product):
        if not node.users:
            graph.erase_node(node)
