"""Building blocks of decompositions: promoted and broadcast primitives.

In: tensors (real, fake, or traced values) and Python numbers. Out: calls of prims on them.
Invariant: only shape, strides, dtype and device of an operand are looked at, never its elements,
and nothing but prims is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

import flambeau_prims.ops  # noqa: F401 - defines the prims that are looked up below
from flambeau_prims._op import PRIMS, require
from flambeau_prims._torch_compat import OpOverload, surely
from flambeau_prims.promotion import (
    Promotion,
    broadcast_shapes,
    compute_dtype,
    dtypes_of,
    is_inexact,
    same_shape,
    trailing_dims,
)
from flambeau_prims.shape_rules import (
    Size,
    Sizes,
    TensorMeta,
    channels_last_strides,
    contiguous_strides,
    dense_order,
    elementwise_strides,
    is_channels_last,
    is_contiguous,
    preserved_strides,
    product,
    suggests_channels_last,
)

Number: TypeAlias = bool | int | float | complex
Operand: TypeAlias = Tensor | Number


class _Prims:
    def __init__(self, overloads: dict[str, OpOverload]) -> None:
        self.__dict__.update(overloads)

    if TYPE_CHECKING:  # a few return tuples of tensors, which indexing serves as well

        def __getattr__(self, name: str) -> Callable[..., Tensor]: ...


p = _Prims({name: prim.overload for name, prim in PRIMS.items()})
"""The prims by name: `p.add(a, b)`."""

# float literals that a decomposition's formula needs stay Python numbers until they meet a tensor
NUMBERS = (bool, int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)


def is_symbolic(value: object) -> bool:
    """A number that is not known while a graph is made."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def is_one(value: object) -> bool:
    """Whether a number is 1; one that is not known yet is taken for another."""
    return not is_symbolic(value) and value == 1


def is_number(value: object) -> bool:
    """A Python number or a symbolic one, as opposed to a tensor."""
    return isinstance(value, NUMBERS)


def canonical(dim: int, ndim: int) -> int:
    """`dim` counted from the front; a 0-d tensor has one dimension for this purpose."""
    span = max(ndim, 1)
    if not -span <= dim < span:
        raise IndexError(f"Dimension out of range (expected {-span} to {span - 1}, got {dim})")
    return dim % span


def canonical_dims(dims: int | Sequence[int] | None, ndim: int) -> list[int]:
    """Sorted dimensions counted from the front; None or none given mean all."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return list(range(ndim))
    given = [dims] if isinstance(dims, int) else dims
    found = sorted(canonical(d, ndim) for d in given)
    if len(set(found)) != len(found):
        raise RuntimeError(f"dim appears multiple times in the list of dims {list(given)}")
    return found if ndim else []


def contiguous(x: Tensor) -> bool:
    """Whether `x` is row-major."""
    return is_contiguous(x.shape, x.stride())


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` in `dtype`; `x` itself if it is so already."""
    return x if x.dtype == dtype else p.cast(x, dtype=dtype)


def widen(*xs: Tensor) -> Any:
    """The tensors in the dtype they are computed with (float32 for half precision)."""
    wide = tuple(cast(x, compute_dtype(x.dtype)) for x in xs)
    return wide if len(wide) > 1 else wide[0]


def expand(x: Tensor, shape: Sizes) -> Tensor:
    """`x` broadcast to `shape`, aligned at the right."""
    if same_shape(x.shape, shape):
        return x
    return p.broadcast_in_dim(x, list(shape), trailing_dims(x.ndim, len(shape)))


def filled(like: Tensor, shape: Sizes, value: Any = 0, dtype: torch.dtype | None = None) -> Tensor:
    """A row-major tensor of a number, on the device and of the dtype of `like`."""
    return p.full(list(shape), value, dtype=dtype or like.dtype, device=like.device)


def counted(count: Size, device: torch.device, start: Size = 0, step: Size = 1) -> Tensor:
    """So many whole numbers, from `start` on by steps."""
    return p.iota(count, start, step, dtype=torch.int64, device=device)


def const(value: Any, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor of the shape of `like` filled with a number."""
    if contiguous(like):
        return filled(like, like.shape, value, dtype)
    # Strides of 0, so that the layout of a pointwise result follows `like` alone.
    return p.broadcast_in_dim(filled(like, [], value, dtype), list(like.shape), [])


def first_of_one(x: Tensor) -> tuple[Tensor, Tensor]:
    """A 0-d tensor and its position in itself: what selecting from it gives."""
    return p.clone(x), filled(x, [], 0, torch.int64)


def fits(model: Tensor, *others: Tensor) -> bool:
    """Whether what these tensors broadcast to has the shape of the first: eager writes to it."""
    return same_shape(broadcast_shapes(*(x.shape for x in (model, *others))), model.shape)


def meet(*operands: Any) -> list[Tensor]:
    """Operands as tensors of one shape; numbers take the dtype of the first tensor."""
    tensors = [x for x in operands if not is_number(x)]
    shape = broadcast_shapes(*(x.shape for x in tensors))
    if all(same_shape(x.shape, shape) for x in tensors):
        model = tensors[0]
        return [const(x, model) if is_number(x) else x for x in operands]
    placed = [x if is_number(x) else expand(x, shape) for x in operands]
    model = next(x for x in placed if not is_number(x))
    return [const(x, model) if is_number(x) else x for x in placed]


def _meeting(name: str) -> Callable[..., Tensor]:
    op = PRIMS[name].overload

    def call(*operands: Operand) -> Tensor:
        return op(*meet(*operands))  # type: ignore[no-any-return]

    call.__name__ = name
    call.__doc__ = f"`{name}` of operands of one dtype that broadcast; numbers are allowed."
    return call


add, sub, mul, div = map(_meeting, ("add", "sub", "mul", "div"))


def fused(a: Operand, b: Operand, c: Operand) -> Tensor:
    """`a b + c`, of floats rounded once, as eager's kernels are contracted where one has both."""
    x, y, z = meet(a, b, c)
    if x.dtype.is_floating_point:
        return p.fma(x, y, z)
    product = p.mul(x, y)
    return sum_of_parts(z, product) if x.dtype.is_complex else p.add(product, z)


def sum_of_parts(a: Tensor, b: Tensor) -> Tensor:
    """A sum of complex numbers, each part by itself; `add` multiplies what it adds by one, which
    makes NaN of the other part of an infinite one."""
    return p.complex(*(p.add(part(a), part(b)) for part in (p.real, p.imag)))


maximum, minimum = map(_meeting, ("maximum", "minimum"))
eq, ne, lt, le, gt, ge = map(_meeting, ("eq", "ne", "lt", "le", "gt", "ge"))
logical_and, logical_or = map(_meeting, ("logical_and", "logical_or"))


def where(condition: Tensor, a: Operand, b: Operand) -> Tensor:
    """`where` of operands that broadcast; a number takes the dtype of the other operand."""
    model = b if is_number(a) else a
    operands = [filled(model, [], x) if is_number(x) else x for x in (a, b)]  # type: ignore[arg-type]
    return p.where(*meet(condition, *operands))


def on_gpu(*operands: Any) -> bool:
    """Whether eager computes an operation on these operands with a kernel for CUDA."""
    return any(not is_number(x) and x.device.type == "cuda" for x in operands)


VECTORS = 64
"""Bytes that one step of eager's loops over vectors takes on a CPU."""


def by_vectors(x: Tensor) -> bool:
    """Whether eager's kernel for a CPU takes elements of `x` by vectors, whose comparisons put NaN
    on another side than those of the few elements after the last step."""
    size = product(x.shape)
    return x.device.type == "cpu" and (is_symbolic(size) or size * x.dtype.itemsize >= VECTORS)


def home_of(tensors: Sequence[Tensor]) -> torch.device:
    """The device of a result: that of the operands, of which scalars of the CPU's follow others."""
    sized = [x.device for x in tensors if x.ndim]
    scalars = [x.device for x in tensors if not x.ndim]
    return next((d for d in (*sized, *scalars) if d.type != "cpu"), tensors[0].device)


def brought(x: Tensor, home: torch.device) -> Tensor:
    """A 0-d tensor on the device of the others; any other operand stays where it is."""
    moved: Tensor = p.device_put(x, device=home) if x.device != home and x.ndim == 0 else x
    return moved


def is_host_scalar(x: Any, *others: Any) -> bool:
    """Whether eager hands an operand to a kernel for CUDA as a number: it is one, or a 0-d tensor
    of the CPU's."""
    return on_gpu(*others) and (is_number(x) or (x.ndim == 0 and x.device.type == "cpu"))


def elementwise(
    op: Callable[..., Tensor],
    operands: Sequence[Any],
    promotion: Promotion = Promotion.SAME,
    *,
    narrow: bool = False,
    last_unrounded: bool = False,
    parameters: bool = False,
) -> Tensor:
    """A pointwise ATen operation: promote, broadcast, compute wide, round once.

    A 0-d CPU tensor among operands of another device is moved there, as eager does. A tensor is
    converted to the common dtype before it is widened, which rounds a wider 0-d one and integers;
    not so what a kernel for a GPU is handed as a number, nor, with `last_unrounded`, a last operand
    of one element, which some kernels for a CPU take in the dtype that they compute in. With
    `narrow`, and in comparisons, a number is rounded to the operands' common dtype first, where
    eager's kernel takes it in that one; else it stays in the dtype that is computed in. Whole
    numbers wrap around in the common dtype. `parameters`: eager's kernel takes the numbers as
    parameters, not as operands.
    """
    compute, result = dtypes_of(operands, promotion)
    common = dtypes_of(operands, Promotion.SAME)[1]
    taken = result if promotion is Promotion.FLOAT else common
    narrow = (narrow or promotion is Promotion.BOOL) and common != compute
    tensors = [x for x in operands if not is_number(x)]
    home = home_of(tensors)
    placed: list[Any] = []
    for place, x in enumerate(operands):
        if is_number(x):
            placed.append(wrapped(_as_kind(x, compute), compute))
            if narrow and common.is_floating_point:
                rounded = p.full([], placed.pop(), dtype=common, device=home)
                placed.append(cast(rounded, compute))
            continue
        last = last_unrounded and place == len(operands) - 1 and is_one(x.numel())
        if compute != taken and not last and not is_host_scalar(x, *operands):
            x = _rounded(brought(x, home), taken)
        placed.append(cast(brought(x, home), compute))
    value = cast(op(*meet(*placed)), result)
    return laid_out_by(tensors if parameters else operands, value, taken)


def laid_out_by(operands: Sequence[Any], x: Tensor, common: torch.dtype | None = None) -> Tensor:
    """`x`, laid out as a kernel of eager's that takes these operands lays out its result."""
    return with_strides(x, operand_strides(x.shape, operands, common))


def operand_strides(
    shape: Sizes, operands: Sequence[Any], common: torch.dtype | None = None
) -> Sizes:
    """Strides of the result of a kernel of eager's that takes these operands: whatever a formula
    leads with, they decide, in their order, each as it is, but that for a CPU they are converted to
    their `common` dtype first, if they have one."""
    metas, alike = [], True
    for x in operands:
        if is_number(x):
            alike = alike and not shape
            continue
        own = TensorMeta.of(x)
        if x.device.type == "cpu" and x.dtype != (common or x.dtype):
            own = own.like(stride=preserved_strides(own))
        if not same_shape(own.shape, shape):
            alike = False
            new = len(shape) - own.ndim
            sizes = zip(own.shape, shape[new:], own.stride, strict=True)
            steps = [step if surely(n == m) or not surely(n == 1) else 0 for n, m, step in sizes]
            own = own.like(shape, [*[0] * new, *steps])
        metas.append(own)
    return elementwise_strides(metas, alike)


def with_strides(x: Tensor, wanted: Sizes) -> Tensor:
    """`x` with these strides, copied if need be."""
    shape = list(x.shape)
    if not _differing(x.stride(), shape, wanted):
        return x
    if not all(_unstepped(x.stride(), shape, wanted)):
        meta = TensorMeta(tuple(shape), tuple(wanted), x.dtype, x.device)
        x = p.clone(x) if is_contiguous(shape, wanted) else p.clone(x, order=dense_order(meta))
    return (
        p.reshape(x, shape, stride=list(wanted))
        if differ_unstepped(x.stride(), shape, wanted)
        else x
    )


def no_elements(shape: Sizes) -> bool:
    """Whether a size is known to be 0."""
    return any(isinstance(n, int) and n == 0 for n in shape)


def differ_unstepped(usual: Sizes, shape: Sizes, wanted: Sizes) -> bool:
    """Whether strides differ in dimensions that nothing is stepped along, which distinguish formats
    all the same."""
    return any(_unstepped(usual, shape, wanted))


def _differing(usual: Sizes, shape: Sizes, wanted: Sizes) -> list[Size]:
    """The sizes of the dimensions along which strides differ."""
    steps = zip(shape, usual, wanted, strict=True)
    return [n for n, a, b in steps if not surely(a == b)]


def _unstepped(usual: Sizes, shape: Sizes, wanted: Sizes) -> list[bool]:
    """Of each dimension along which strides differ, whether nothing is stepped along it. Only there
    open sizes are queried: they are then guarded to be 1, or 0, or another number."""
    differing = _differing(usual, shape, wanted)
    free = bool(differing) and any(surely(n == 0) for n in shape)
    return [free or surely(n == 1) for n in differing]


#: whole numbers that every floating dtype holds
_SMALL = (torch.bool, torch.int8, torch.uint8)


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` with the precision of `dtype`, a half one; as it is where nothing would be lost."""
    return x if x.dtype in _SMALL else cast(x, dtype)


def wrapped(value: Any, dtype: torch.dtype) -> Any:
    """A whole number as an integer dtype keeps it, which counts round; any other is its own."""
    if not isinstance(value, int) or is_inexact(dtype) or dtype == torch.bool:
        return value
    limits = torch.iinfo(dtype)
    return (value - limits.min) % (1 << limits.bits) + limits.min


def _as_kind(value: Any, dtype: torch.dtype) -> Any:
    """A Python number in the kind of `dtype`, so that `full` states what it means."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    if dtype == torch.bool:
        return bool(value)
    if dtype.is_complex:
        return complex(value)
    return float(value) if dtype.is_floating_point else int(value)


def spread(row: Tensor, shape: Sizes, dims: Sequence[int]) -> Tensor:
    """A reduction's result broadcast back over the dimensions it was reduced over."""
    gone = set(dims)
    kept = [d for d in range(len(shape)) if d not in gone]
    return row if not gone else p.broadcast_in_dim(row, list(shape), kept)


def keep_dims(row: Tensor, shape: Sizes, dims: Sequence[int], keepdim: bool) -> Tensor:
    """A reduction's result with size-1 dimensions put back if `keepdim`."""
    if not keepdim or not dims:
        return row
    gone = set(dims)
    kept = [1 if d in gone else size for d, size in enumerate(shape)]
    made = spread(row, kept, dims)
    return with_strides(made, contiguous_strides(kept)) if no_elements(kept) else made


def count(shape: Sizes, dims: Sequence[int]) -> Size:
    """Number of elements that a reduction over `dims` combines."""
    return product([shape[d] for d in dims])


def as_number(size: Size) -> Any:
    """A size to compute with: a float, or the symbol that it is."""
    return size if is_symbolic(size) else float(size)


def layout_order(x: Tensor) -> list[int]:
    """Dimensions from outermost to innermost in a dense copy that keeps the layout of `x`."""
    return dense_order(TensorMeta.of(x))


def laid_out_as(model: Tensor, x: Tensor) -> Tensor:
    """`x`, copied if need be into the layout that a copy of `model` would have. Of another shape it
    is as it was: eager resizes by its operands what it made like the model."""
    alike = same_shape(x.shape, model.shape)
    return with_strides(x, preserved_strides(TensorMeta.of(model))) if alike else x


def in_image_format(model: Tensor, x: Tensor) -> Tensor:
    """`x` channels-last if `model` suggests that, else row-major, as library kernels write."""
    if model.ndim not in (4, 5) or not suggests_channels_last(TensorMeta.of(model)):
        return in_format(x, torch.contiguous_format)
    return in_format(x, torch.channels_last if model.ndim == 4 else torch.channels_last_3d)


def copy_in_format(x: Tensor, memory_format: torch.memory_format | None) -> Tensor:
    """A dense copy of `x` in a memory format; None means that `x` keeps its layout."""
    if memory_format in (None, torch.preserve_format):
        made = p.clone(x) if contiguous(x) else p.clone(x, order=layout_order(x))
        return laid_out_as(x, made)
    if memory_format == torch.contiguous_format:
        return p.clone(x)
    order = {torch.channels_last: [0, 2, 3, 1], torch.channels_last_3d: [0, 2, 3, 4, 1]}
    if memory_format not in order or len(order[memory_format]) != x.ndim:
        raise RuntimeError(f"memory format {memory_format} of a {x.ndim}-d tensor")
    return p.clone(x, order=order[memory_format])


def in_format(x: Tensor, memory_format: torch.memory_format | None) -> Tensor:
    """`x` in the format, dimensions of size 1 included; a copy where it is in another."""
    if memory_format in (None, torch.preserve_format):
        return x
    if memory_format == torch.contiguous_format:
        return with_strides(x, contiguous_strides(x.shape))
    if is_channels_last(x.shape, x.stride()):
        return with_strides(x, channels_last_strides(x.shape))
    return copy_in_format(x, memory_format)


def fitting(value: Number, dtype: torch.dtype) -> Number:
    """The number; PrimError where eager's kernel refuses it, as no element of this dtype is near.

    An open number is not checked: a guard on its range would make it a constant.
    """
    if (
        isinstance(value, bool | complex | torch.SymFloat | torch.SymInt)
        or dtype.is_complex
        or dtype == torch.bool
    ):
        return value
    if dtype.is_floating_point:
        least, most = torch.finfo(dtype).min, torch.finfo(dtype).max
        fits = least <= value <= most or (type(value) is float and not math.isfinite(value))
    else:
        most = torch.iinfo(dtype).max
        least = torch.iinfo(dtype).min
        if not least and isinstance(value, int):
            least = -most  # eager counts down from the largest
        fits = least <= value <= most
    require(bool(fits), f"full: {value} is no {dtype}")
    return value
