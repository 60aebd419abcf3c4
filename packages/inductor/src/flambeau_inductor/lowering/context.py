"""Context of lowering rules: node construction, views, metadata, choices of library.

In: the graph being built, the values of FX nodes. Out: nodes, and the layouts of values. Invariant:
a node made here is in the graph's order; a view of a view is one view, a view of a constant is a
constant, but for a part of it that the caller sees; lowering neither measures nor looks at the
disk: without anybody to ask, the library is torch's own choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from flambeau_prims import NotYetSymbolic, TensorMeta
from torch import fx

from flambeau_inductor.indexing import Expr, Size, is_long, plain, same_sizes, simplify, surely_less
from flambeau_inductor.ir.loops import Scalar
from flambeau_inductor.ir.nodes import value_of
from flambeau_inductor.ir.program import (
    NOTHING,
    Asked,
    CallWithEpilogue,
    ComputedNumber,
    Layout,
    SizeOfResult,
    each_leaf,
)
from flambeau_inductor.ir.tensors import (
    Argument,
    Definition,
    Gather,
    Index,
    IndexCheck,
    IndexLookup,
    Input,
    LibraryCall,
    Literal,
    Node,
    NumberTensor,
    Pointwise,
    Position,
    Result,
    Shape,
    TensorGraph,
    View,
    at,
    dim_ranges,
    dims_of,
    flat_strides,
    viewed,
)
from flambeau_inductor.lowering.sizes import GraphSizes
from flambeau_inductor.options import Fuel
from flambeau_inductor.tuning import host_tuning

CPU = torch.device("cpu")
Sizes = tuple[int, int, int]
"""Rows, terms and columns of a matrix product."""


@dataclass(frozen=True, slots=True)
class LibraryChoices:
    """`onednn_products`: whether oneDNN multiplies float32 matrices of these sizes, of at least so
    many operations, faster than the BLAS. `epilogues`: whether oneDNN should apply a function (a
    key of `epilogues.FUNCTIONS`) to what it computes. By default both are torch's own choice."""

    onednn_products: Callable[[Sizes], bool] = lambda sizes: False
    least_operations: int = field(default_factory=lambda: host_tuning().onednn_operations)
    epilogues: Callable[[str], bool] = lambda function: False


class LoweringError(Exception):
    """A rule cannot express this call; the library runs it instead, and the reason is kept."""


@dataclass(slots=True)
class Context:
    """State of one lowering: the graph built so far and the FX node being lowered.

    `after`: the function that the library is to apply to what it computes, if there is one.
    `written_parts`: FX nodes that write a part of a tensor which nobody needs as it was before, and
    whether nobody reads it. `seen`: whether the caller sees the node's memory. `metas`, `values`:
    of the results of the node, as sizes here and as in the graph; `first_alone`: nobody reads
    another one than the first. `read`: floats that depend on data.
    """

    graph: TensorGraph
    fuel: Fuel
    sizes: GraphSizes
    choices: LibraryChoices
    deterministic: bool
    written_parts: Mapping[str, bool] = field(default_factory=dict)
    origin: str = ""
    seen: bool = False
    metas: tuple[Layout | None, ...] = ()
    values: Sequence[Any] = ()
    first_alone: bool = True
    read: list[NumberTensor] = field(default_factory=list)
    counter: int = 0
    seen_checks: set[tuple[int, Size, bool]] = field(default_factory=set)
    after: CallWithEpilogue | None = None

    def node(
        self,
        shape: Sequence[Size],
        dtype: torch.dtype,
        device: torch.device,
        define: Definition,
        stride: Sequence[Size] | None = None,
    ) -> Node:
        """A new node; strides are row-major unless given."""
        name = self.origin if self.counter == 0 else f"{self.origin}.{self.counter}"
        self.counter += 1
        sizes: Shape = tuple(map(plain, shape))  # type: ignore[arg-type]
        steps = flat_strides(sizes) if stride is None else tuple(stride)
        made = Node(name, sizes, dtype, device, define, steps, (self.origin,))
        self.graph.order.append(made)
        return made

    def result(self, layout: Layout, define: Definition) -> Node:
        """A new node in a layout."""
        return self.node(layout.shape, layout.dtype, layout.device, define, layout.stride)

    @property
    def meta(self) -> Layout:
        """Metadata of the FX node's first result, which is a tensor."""
        meta = self.metas[0]
        assert meta is not None
        return meta

    def point(self, op: str, args: Sequence[Node], dtype: torch.dtype | None = None) -> Node:
        """A pointwise node on nodes of one shape."""
        first = args[0]
        for other in args:
            if not same_sizes(other.shape, first.shape):
                raise LoweringError(f"{op}: shapes {first.shape} and {other.shape} differ")
        return self.node(
            first.shape, dtype or first.dtype, first.device, Pointwise(op, tuple(args))
        )

    def literal(
        self, value: Scalar | Expr, shape: Sequence[Size], dtype: torch.dtype, device: torch.device
    ) -> Node:
        """A constant tensor; a size that is left open is one too."""
        if isinstance(value, NumberTensor):
            there = self.number(value.value.text, device)
            return self.view(self.cast(there.node, dtype), shape, ())
        if isinstance(value, Expr):
            if dtype == torch.bool:
                raise LoweringError("whether an open size is zero")
            kind = torch.float64 if dtype == torch.float64 else torch.int64
            return self.cast(self.node(shape, kind, device, Position(value)), dtype)
        return self.node(shape, dtype, device, Literal(convert(value, dtype)))

    def like(self, value: Scalar | Expr, node: Node) -> Node:
        """A constant of the shape and dtype of `node`."""
        return self.literal(value, node.shape, node.dtype, node.device)

    def cast(self, node: Node, dtype: torch.dtype) -> Node:
        """`node` as `dtype`; itself if it is that already."""
        return node if node.dtype == dtype else self.point("cast", (node,), dtype)

    def view(self, base: Node, shape: Sequence[Size], index: Index) -> Node:
        """A node of `shape` whose element is that of `base` at `index` (of `d0, d1, ...`)."""
        sizes: Shape = tuple(map(plain, shape))
        ranges = dim_ranges(sizes)
        index = tuple(simplify(e, ranges) for e in index)
        if same_sizes(sizes, base.shape) and _is_identity(index, sizes):
            return base
        define = base.define
        part = self.seen and surely_less(prod(sizes), base.numel)
        if isinstance(define, Literal) and not part:
            return self.node(sizes, base.dtype, base.device, define)
        if isinstance(define, Position):
            moved = simplify(at((define.index,), index)[0], ranges)
            return self.node(sizes, base.dtype, base.device, Position(moved))
        if isinstance(define, View):
            through = viewed(base, index, ranges)
            return self.view(through.base, sizes, through.index)
        return self.node(sizes, base.dtype, base.device, View(base, index))

    def gather(
        self, base: Node, shape: Sequence[Size], index: tuple[Expr | IndexLookup, ...]
    ) -> Node:
        """A node of `shape` reading `base` at looked-up positions."""
        if isinstance(base.define, View) and any(isinstance(e, IndexLookup) for e in index):
            # Coordinates of the view that are plain dimensions carry over; others are opaque.
            if (carried := _through_view(base.define, index)) is not None:
                return self.gather(base.define.base, shape, carried)
        return self.node(shape, base.dtype, base.device, Gather(base, index))

    def number(self, text: str, device: torch.device = CPU) -> NumberTensor:
        """A float that is known when the program runs, in the memory of a device: before all else,
        or, where it depends on data, from here on."""
        for known in (*self.graph.scalars, *self.read):
            if known.value.text == text and known.node.device == device:
                return known
        if self.sizes.depend_on_data(text):
            place = self._computed(text, torch.float64, device)
            self.read.append(NumberTensor(place, ComputedNumber(text)))
            return self.read[-1]
        position = -1 - len(self.graph.scalars)
        node = self.node((), torch.float64, device, Input(position))
        made = NumberTensor(node, ComputedNumber(text))
        self.graph.scalars.append(made)
        return made

    def compute_size(self, text: str, name: str) -> None:
        """A size by this name of what Python computes by this text, from here on."""
        self.read_number(self._computed(text, torch.int64, CPU), name)

    def _computed(self, text: str, dtype: torch.dtype, device: torch.device) -> Node:
        """A tensor of no dimension with what Python computes by this text."""
        layout = Layout((), (), dtype, device)
        kind = (("dtype", dtype), ("device", device))
        of = (ComputedNumber(text),)
        (place,) = self.call("aten.scalar_tensor.default", of, kind, metas=(layout,))
        assert place is not None
        return place

    def read_number(self, place: Node | None, name: str) -> None:
        """Read the number in a tensor, which is known by this name from here on."""
        self.call("aten._local_scalar_dense.default", (place,), metas=())
        call = self.graph.order[-1]
        assert isinstance(call, LibraryCall)
        self.graph.sized[call] = (SizeOfResult(name),)

    @property
    def epilogue(self) -> Asked:
        """The function that oneDNN applies before it stores a result, as its operators take it."""
        return NOTHING if self.after is None else self.after.asked

    def check(self, node: Node, size: Size, wrap: bool, error: str, message: str) -> None:
        """Ask that every element of `node` be a valid position before anyone reads through it."""
        key = (id(node), size, wrap)
        if key not in self.seen_checks:
            self.seen_checks.add(key)
            check = IndexCheck(size, wrap, error, message)
            self.graph.checks.setdefault(node, []).append(check)

    def call(
        self,
        target: str,
        args: Sequence[Argument],
        kwargs: Sequence[tuple[str, Argument]] = (),
        *,
        metas: Sequence[Layout | None] | None = None,
        **how: bool,
    ) -> list[Node | None]:
        """A library call and its result nodes, laid out as `metas` (the FX node's) say; `how` is it
        called (see `LibraryCall`)."""
        after = self.after
        also = after.names if after is not None and tuple(args[-3:]) == after.asked else ()
        given, named = each_leaf(_as_argument, (tuple(args), tuple(kwargs)))
        origins = (self.origin, *also)
        made = LibraryCall(self.origin, target, given, named, origins=origins, **how)
        self.graph.order.append(made)
        results = self.graph.results[made] = [
            None if meta is None else self.result(meta, Result(made, position))
            for position, meta in enumerate(self.metas if metas is None else metas)
        ]
        own = [node.shape if node is not None else () for node in results]
        if metas is None:
            own = [tuple(map(self.sizes.own, getattr(v, "shape", ()))) for v in self.values]
        sizes = tuple(
            SizeOfResult(name, position, dim)
            for position, node in enumerate(results)
            if node is not None
            for name, dim in self.sizes.made(own[position])
        )
        if sizes:
            self.graph.sized[made] = sizes
        return results


def _as_argument(value: Argument) -> Argument:
    return value.value if isinstance(value, NumberTensor) else value


def convert(value: Scalar, dtype: torch.dtype) -> Scalar:
    """A Python number as the kind of number that `dtype` holds."""
    if isinstance(value, Expr | NumberTensor):
        return value
    if isinstance(value, complex) or dtype.is_complex:
        raise LoweringError("complex numbers have no kernels")
    if dtype == torch.bool:
        return bool(value)
    if dtype.is_floating_point:
        return float(value)
    return int(value)


def _is_identity(index: Index, shape: Shape) -> bool:
    own = zip(index, dims_of(len(shape)), shape, strict=True)
    return all(not is_long(size) or e == d for e, d, size in own)


def _through_view(
    view: View, index: tuple[Expr | IndexLookup, ...]
) -> tuple[Expr | IndexLookup, ...] | None:
    """`index` into a view as an index into its base, where each lookup stays one coordinate."""
    plain = {f"d{i}": e for i, e in enumerate(index) if not isinstance(e, IndexLookup)}
    looked_up = {f"d{i}": e for i, e in enumerate(index) if isinstance(e, IndexLookup)}
    result: list[Expr | IndexLookup] = []
    for e in view.index:
        names = e.vars & looked_up.keys()
        if not names:
            result.append(e.substitute(plain))
        elif len(names) == 1 and e.key in names:
            result.append(looked_up[e.key])
        else:
            return None
    return tuple(result)


def meta_of(value: Any, where: str, open_sizes: GraphSizes | None = None) -> Layout | None:
    """The metadata of a tensor-like value; None for anything else."""
    if value is None or isinstance(value, bool | int | float | complex | str):
        return None
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise NotYetSymbolic(f"{where}: a symbolic number in the graph")
    if not isinstance(value, torch.Tensor | TensorMeta):
        raise LoweringError(f"{where}: a value of type {type(value).__name__}")
    if isinstance(value, torch.Tensor) and value.layout != torch.strided:
        raise LoweringError(f"{where}: a {value.layout} tensor")
    stride: Sequence[Any] = value.stride() if callable(value.stride) else value.stride
    sizes = (*value.shape, *stride)
    shape: tuple[Any, ...] = tuple(value.shape)
    if not all(isinstance(n, int) for n in sizes):
        if open_sizes is None:
            raise NotYetSymbolic(f"{where}: a symbolic size among {sizes}")
        shape = tuple(map(open_sizes.size, shape))
        stride = tuple(map(open_sizes.size, stride))
    return Layout(shape, tuple(stride), value.dtype, torch.device(value.device))


def metas_of(node: fx.Node, open_sizes: GraphSizes | None = None) -> tuple[Layout | None, ...]:
    """Layoutdata of a node's results; a single result is a tuple of one."""
    return tuple(meta_of(v, node.name, open_sizes) for v in values_of(node))


def values_of(node: fx.Node) -> Sequence[Any]:
    """A node's results as the graph describes them; a single one is a tuple of one."""
    value = value_of(node)
    return value if isinstance(value, tuple | list) else (value,)
