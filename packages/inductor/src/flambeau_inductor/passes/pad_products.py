"""Padding of matrix products in half precision whose rows the library reads or stores slowly.

In: a graph of primitives. Out: the same, where products on GPUs multiply operands with rows of
whole pieces of 16 bytes: zeros along the inner dimension of both, rows and columns of the result
that nobody sees. Invariant: a pad is zeros in both operands where it is multiplied; what is
returned has the strides it had; of all alternatives (the library as it is, the library with whole
pieces in all three matrices, the template with whole pieces in the rows of its operands) the one
that takes least by the model of the machine is prepared here, copies counted.

Operands that loops compute are computed into rows of that length, so that they cost nothing, and
whoever else reads them reads them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from flambeau_prims import PRIMS
from torch import fx

from flambeau_inductor.ir.nodes import name_of
from flambeau_inductor.node_queries import escaping, has_tag, readers, static_shape, strides, val_of
from flambeau_inductor.passes.epilogues import COMPUTING
from flambeau_inductor.passes.rewriter import Ledger
from flambeau_inductor.templates.gemm.problem import (
    PIECE,
    copy_seconds,
    library_seconds,
    missing,
    template_seconds,
)
from flambeau_inductor.templates.gemm.tiles import GemmShape
from flambeau_inductor.tuning import Tuning, tuning_of

NAME = "pad_products"
PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm"})
HALF = frozenset({torch.float16, torch.bfloat16})
BY_MEMORY = frozenset({"as_strided", "restride", "as_strided_scatter"})
"""Primitives that count elements of their operand in memory, where a pad would be counted too."""


@dataclass(frozen=True, slots=True)
class _Lacks:
    """What rows, columns and inner dimension of a product lack of whole pieces."""

    rows: int = 0
    columns: int = 0
    inner: int = 0


@dataclass(frozen=True, slots=True)
class _OddProduct:
    """A product: `added`, if any, comes before its two matrices, whose rows lie along their last
    dimension but where `transposed`."""

    node: fx.Node
    added: fx.Node | None
    left: fx.Node
    right: fx.Node
    shape: GemmShape
    transposed: tuple[bool, bool]
    operands: _Lacks
    """What the rows of the operands lack."""

    @property
    def all(self) -> _Lacks:
        """The same, and what the rows of the result lack."""
        columns = max(self.operands.columns, missing(self.shape.columns, self.shape.itemsize))
        return _Lacks(self.operands.rows, columns, self.operands.inner)

    @property
    def own(self) -> tuple[_Lacks, _Lacks]:
        """What the rows of each operand lack, by itself."""
        lacks, (left, right) = self.operands, self.transposed
        return (
            _Lacks(rows=lacks.rows) if left else _Lacks(inner=_lacks(self.left, left)),
            _Lacks(inner=_lacks(self.right, right)) if right else _Lacks(columns=lacks.columns),
        )


def pad_products(graph: fx.Graph, ledger: Ledger) -> int:
    """Pad what is worth it; how many products are others now."""
    calls = [node for node in graph.nodes if name_of(node) in PRODUCTS]
    if not any(map(_on_a_gpu, calls)):
        return 0
    tuning = tuning_of(val_of(node).device for node in calls)
    if not tuning.machine.multiplies_half:
        return 0
    padding, before = _Padding(graph, tuning, escaping(graph)), len(ledger.done)
    # readers first: whether a product's reader computes an operand in longer rows is known then
    for node in reversed(calls):
        call = None if counted_in_memory(node) else _read(node)
        if call is not None and ledger.permits(NAME) and padding.padded(call):
            ledger.done.append(NAME)
    return len(ledger.done) - before


def _on_a_gpu(node: fx.Node) -> bool:
    return bool(getattr(val_of(node), "device", torch.device("cpu")).type == "cuda")


def _read(node: fx.Node) -> _OddProduct | None:
    """A product whose matrices have rows that are not of whole pieces."""
    *added, left, right = (arg for arg in node.args if isinstance(arg, fx.Node))
    shapes = [static_shape(part) for part in (left, right)]
    made = val_of(node)
    if None in shapes or not _on_a_gpu(node) or made.dtype not in HALF:
        return None
    (*batch, rows, inner), columns = shapes[0], shapes[1][-1]  # type: ignore[misc, index]
    shape = GemmShape(rows, columns, inner, prod(batch), made.dtype.itemsize)
    if not all((rows, columns, inner, shape.batch)):
        return None
    transposed = _is_transposed(left), _is_transposed(right)
    of_left, of_right = (_lacks(*each) for each in zip((left, right), transposed, strict=True))
    along_inner = (of_left * (not transposed[0]), of_right * transposed[1])
    lacks = _Lacks(of_left * transposed[0], of_right * (not transposed[1]), max(along_inner))
    call = _OddProduct(node, next(iter(added), None), left, right, shape, transposed, lacks)
    return call if call.all != _Lacks() else None


def counted_in_memory(node: fx.Node) -> bool:
    """Whether somebody counts elements of a value, or of a view of it, in memory."""
    return any(
        name_of(user) in BY_MEMORY or (has_tag(user, "view") and counted_in_memory(user))
        for user in node.users
    )


def _is_transposed(matrix: fx.Node) -> bool:
    """Whether neighbours in memory are neighbours along the last dimension but one."""
    return strides(val_of(matrix))[-1] != 1 and strides(val_of(matrix))[-2] == 1


def _lacks(matrix: fx.Node, transposed: bool) -> int:
    """What rows of a matrix in memory lack of whole pieces: one piece where only the step from row
    to row does."""
    value = val_of(matrix)
    row, step = (-2, -1) if transposed else (-1, -2)
    size, itemsize = value.shape[row], value.dtype.itemsize
    apart = strides(value)[step] if value.shape[step] > 1 else 0
    odd = missing(size, itemsize)
    return odd if odd or not missing(apart, itemsize) else PIECE // itemsize


@dataclass(slots=True)
class _Padding:
    graph: fx.Graph
    tuning: Tuning
    returned: set[fx.Node]
    made: dict[tuple[fx.Node, tuple[int, ...], bool], fx.Node] = field(default_factory=dict)
    """Pads by the keys of their places."""
    seen: dict[fx.Node, fx.Node] = field(default_factory=dict)
    """Parts of pads, and the values that they are."""

    def padded(self, call: _OddProduct) -> bool:
        """Whether a product has become another one."""
        tuning, shape, lacks = self.tuning, call.shape, call.all
        whole = GemmShape(
            shape.rows + lacks.rows, shape.columns + lacks.columns, shape.inner + lacks.inner,
            shape.batch, shape.itemsize,
        )  # fmt: skip
        as_it_is = library_seconds(shape, aligned=False, tuning=tuning)
        library = library_seconds(whole, aligned=True, tuning=tuning)
        library += self._copies(call, (lacks, lacks)) + self._read_on(call)
        template = template_seconds(shape, tuning) + self._copies(call, call.own)
        if min(library, template) > as_it_is - tuning.launch:
            return False
        if template < library:
            return self._with_rows(call)
        return self._whole(call)

    # --- what it costs ------------------------------------------------------------------------

    def _copies(self, call: _OddProduct, lacks: tuple[_Lacks, _Lacks]) -> float:
        left, right = lacks
        total = self._copy(call.left, (left.rows, left.inner))
        total += self._copy(call.right, (right.inner, right.columns))
        if call.added is not None and left is right and _row(call.added) is None:
            total += self._copy(call.added, (left.rows, left.columns))
        return total

    def _copy(self, matrix: fx.Node, more: tuple[int, int]) -> float:
        if not any(more):
            return 0.0
        place = self._place_of(matrix, more)
        if place.key in self.made or self._is_computed(place.base):
            return 0.0
        value = val_of(matrix)
        return copy_seconds(prod(value.shape), value.dtype.itemsize, self.tuning)

    def _is_computed(self, base: fx.Node) -> bool:
        """Whether a loop computes a value, for whoever reads it with its pad."""
        if any(base is padded for padded, *_ in self.made):
            return False  # it is computed in rows of another length
        while has_tag(base, "view"):
            if len(base.users) > 1 or base in self.returned:
                return False
            base = base.all_input_nodes[0]
        return base not in self.returned and any(has_tag(base, tag) for tag in COMPUTING)

    def _read_on(self, call: _OddProduct) -> float:
        """What readers take more for reading the whole result, with its pad, from memory."""
        within = call.all.rows and call.shape.batch > 1  # the first rows of one matrix are dense
        if not call.all.columns and not within:
            return 0.0
        of, value = [*readers(call.node)], val_of(call.node)
        copied = copy_seconds(prod(value.shape), value.dtype.itemsize, self.tuning)
        if any(not any(has_tag(reader, tag) for tag in COMPUTING) for reader in of):
            return copied
        return copied if len(of) == 1 and self._is_epilogue(of[0]) else 0.0

    def _is_epilogue(self, reader: fx.Node) -> bool:
        """Whether a template could compute what reads its result, and whatever comes after that."""
        while has_tag(reader, "pointwise") and name_of(reader) != "pad":
            after = [*readers(reader)]
            if len(after) != 1 or not has_tag(after[0], "pointwise"):
                return not any(has_tag(each, tag) for each in after for tag in COMPUTING)
            (reader,) = after
        return False

    # --- what is made -------------------------------------------------------------------------

    def _whole(self, call: _OddProduct) -> bool:
        """All three matrices with rows of whole pieces."""
        lacks, node = call.all, call.node
        pairs = [
            (call.left, (lacks.rows, lacks.inner)), (call.right, (lacks.inner, lacks.columns))
        ]  # fmt: skip
        if call.added is not None:
            pairs.insert(0, (call.added, (lacks.rows, lacks.columns)))
        operands = [self._longer(node, matrix, more) for matrix, more in pairs]
        with self.graph.inserting_before(node):
            whole = self._call(node, node.target, *operands, *node.args[len(operands) :])
            seen = self._first(whole, node)
        node.replace_all_uses_with(seen)
        self.graph.erase_node(node)
        return True

    def _with_rows(self, call: _OddProduct) -> bool:
        """The same product of operands with rows of whole pieces."""
        left, right = call.own
        pairs = (call.left, (left.rows, left.inner)), (call.right, (right.inner, right.columns))
        operands = [self._longer(call.node, matrix, more) for matrix, more in pairs]
        with self.graph.inserting_before(call.node):
            seen = [
                self._first(longer, matrix)
                for longer, (matrix, _) in zip(operands, pairs, strict=True)
            ]
        for (matrix, _), each in zip(pairs, seen, strict=True):
            call.node.replace_input_with(matrix, each)
        return call.own != (_Lacks(), _Lacks())

    def _place_of(self, matrix: fx.Node, more: tuple[int, int]) -> _Place:
        """What a matrix is a view of, as far as a pad of that shows as a pad of the matrix."""
        rank = len(val_of(matrix).shape)
        amounts = (0,) * (rank - 2) + more
        back: list[tuple[str, tuple[int, ...]]] = []
        while True:
            matrix = self.seen.get(matrix, matrix)
            given: Any = matrix.args
            if name_of(matrix) == "permute":
                source, dims = given
                amounts = tuple(amounts[dims.index(i)] for i in range(len(dims)))
                back.append(("permute", tuple(dims)))
            elif name_of(matrix) == "reshape" and not any(amounts[:-1]):
                source, shape, before = given[0], val_of(matrix).shape, static_shape(given[0])
                if not before or before[-1] != shape[-1]:
                    break
                back.append(("reshape", (*shape[:-1], shape[-1] + amounts[-1])))
                amounts = (0,) * (len(before) - 1) + amounts[-1:]
            else:
                break
            matrix = source
        rank = len(amounts)
        swapped = rank > 1 and _is_transposed(matrix)
        if swapped:
            amounts = (*amounts[:-2], amounts[-1], amounts[-2])
            back.append(("permute", _swap(rank)))
        return _Place(matrix, amounts, swapped, tuple(back))

    def _longer(self, node: fx.Node, matrix: fx.Node, more: tuple[int, int]) -> fx.Node:
        """An operand of `node` with so many more rows and columns of zeros."""
        if not any(more):
            return matrix
        if (row := _row(matrix)) is not None:
            shape = tuple(val_of(matrix).shape)
            wide = self._longer_row(node, row, more[1])
            with self.graph.inserting_before(node):
                sizes = [shape[0] + more[0], shape[1] + more[1]]
                return self._call(node, PRIMS["broadcast_in_dim"].overload, wide, sizes, [1])
        place = self._place_of(matrix, more)
        made = self.made.get(place.key)
        if made is None:
            made = self.made[place.key] = self._padded(node, place)
        elif node < made:  # a copy for a later product, which is early enough here
            node.prepend(made)
            if place.swapped:
                made.prepend(made.all_input_nodes[0])
        with self.graph.inserting_before(node):
            return self._viewed(made, place.back)

    def _longer_row(self, node: fx.Node, row: fx.Node, more: int) -> fx.Node:
        with self.graph.inserting_before(node):
            return self._call(node, PRIMS["pad"].overload, row, [0], [more], 0.0)

    def _padded(self, node: fx.Node, place: _Place) -> fx.Node:
        """The pad of a value: of one that a loop computes where it is computed, and whoever reads
        the value reads it there."""
        base = place.base
        computed, users = self._is_computed(base), list(base.users)
        swap = (("permute", _swap(len(place.amounts))),) if place.swapped else ()
        with self.graph.inserting_before(base.next if computed else node):
            source = self._viewed(base, swap)
            low, high = [0] * len(place.amounts), [*place.amounts]
            made = self._call(node, PRIMS["pad"].overload, source, low, high, 0.0)
            if computed and users and not counted_in_memory(base):
                seen = self._viewed(self._first(made, source), swap)
                self.seen[seen] = base
                for user in users:
                    user.replace_input_with(base, seen)
        return made

    def _viewed(self, node: fx.Node, views: Sequence[tuple[str, tuple[int, ...]]]) -> fx.Node:
        for name, argument in reversed(views):
            node = self._call(node, PRIMS[name].overload, node, list(argument))
        return node

    def _first(self, longer: fx.Node, value: fx.Node) -> fx.Node:
        """What of `longer` is `value`: by its metadata, that value."""
        shape = val_of(value).shape
        if longer is value or tuple(val_of(longer).shape) == tuple(shape):
            return longer
        zeros, ones = [0] * len(shape), [1] * len(shape)
        made = self._call(value, PRIMS["slice"].overload, longer, zeros, [*shape], ones)
        made.meta["val"] = val_of(value)
        return made

    def _call(self, origin: fx.Node, target: Any, *args: Any) -> fx.Node:
        made = self.graph.call_function(target, args)
        made.meta = {k: v for k, v in origin.meta.items() if k == "stack_trace"}
        val_of(made)
        return made


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a matrix comes from: `base` is padded by these `amounts`, with its last two dimensions
    swapped if `swapped`, and `back` are the views of that which lead to the matrix, the last
    first."""

    base: fx.Node
    amounts: tuple[int, ...]
    swapped: bool
    back: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def key(self) -> tuple[fx.Node, tuple[int, ...], bool]:
        return self.base, self.amounts, self.swapped


def _swap(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _row(x: fx.Node) -> fx.Node | None:
    """The row that all rows of a matrix are."""
    if name_of(x) != "broadcast_in_dim":
        return None
    given: Any = x.args
    row, sizes, dims = given[:3]
    whole = tuple(dims) == (len(sizes) - 1,) == (1,) and static_shape(row) == (sizes[1],)
    return row if whole else None  # type: ignore[no-any-return]
