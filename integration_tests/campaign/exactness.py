"""Operators that eager computes exactly, and those that a statement calls.

In: a statement and its namespace. Out: the overloads that eager calls, whether their results are
exact, whether each element depends on one element of each operand.
Invariant: what is listed is one correctly rounded operation of IEEE arithmetic, a choice, a copy or
a move; all on integers is exact whether listed or not.
"""

from __future__ import annotations

from typing import Any

import torch
from flambeau_prims.ops.pointwise import POINTWISE
from torch.utils._python_dispatch import TorchDispatchMode

EXACT = frozenset(
    """
    add sub rsub mul div neg abs maximum minimum clamp clamp_min clamp_max fmax fmin eq ne lt
    le gt ge logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor
    bitwise_not floor ceil trunc fix round sign sgn signbit copysign where masked_fill fill copy
    clone _to_copy cat stack hstack vstack dstack index select gather take take_along_dim flip roll
    rot90 sort argsort topk kthvalue max min amax amin aminmax argmax argmin cummax cummin any all
    floor_divide remainder fmod frac nan_to_num heaviside nextafter isnan isinf isfinite isposinf
    isneginf arange zeros ones full zeros_like ones_like full_like scalar_tensor tril triu
    constant_pad_nd repeat expand unfold index_select index_fill index_copy index_put masked_select
    masked_scatter scatter slice_scatter select_scatter diagonal_scatter as_strided_scatter view
    view_as_real view_as_complex real imag reshape permute transpose t squeeze unsqueeze slice
    as_strided alias detach diagonal split split_with_sizes chunk unbind diag diag_embed
    contiguous zero relu threshold hardtanh reflection_pad1d reflection_pad2d reflection_pad3d
    replication_pad1d replication_pad2d replication_pad3d max_pool2d_with_indices
    max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d max_pool2d max_unpool2d
    max_unpool3d pixel_shuffle pixel_unshuffle channel_shuffle nonzero unique bucketize searchsorted
    embedding im2col upsample_nearest1d upsample_nearest2d upsample_nearest3d ldexp median
    nanmedian mode isin tril_indices triu_indices count_nonzero combinations meshgrid block_diag
    empty_like empty new_empty _unsafe_view lift_fresh _local_scalar_dense new_full new_zeros
    new_ones equal conj _conj _neg_view resolve_conj positive msort repeat_interleave put_ put
    broadcast_to movedim swapaxes narrow expand_as complex
    """.split()
)
NOT_IF_COMPLEX = frozenset("mul div abs sgn sign".split())
# of two zeros the sign of either: it depends on where in a vector of eager's they stand
EITHER_ZERO = frozenset("maximum minimum fmax fmin clamp clamp_min clamp_max softshrink".split())
# their loops end where a value is NaN: of NaN the result of a degree of 2 and more is what the
# memory held
UNSET_OF_NAN = frozenset(
    f"special_{name}"
    for letter in "tuvw"
    for name in (f"chebyshev_polynomial_{letter}", f"shifted_chebyshev_polynomial_{letter}")
) | {"special_laguerre_polynomial_l", "special_legendre_polynomial_p"}
# by vectors eager has NaN of a quotient that is too large, and the remainder of an element alone
REMAINDERS = frozenset("remainder fmod".split())
# sums of all that they are given along a dimension, in an order of the kernel's own: that of a
# matrix product, and whether a variance takes an infinite element by itself, no one has promised
IN_ANY_ORDER = frozenset(
    """sum nansum mean var std var_mean std_mean mm bmm addmm baddbmm addbmm mv addmv dot vdot
    view _unsafe_view t transpose permute expand squeeze unsqueeze""".split()
)
PLAIN_SUMS = frozenset("add sub rsub".split())
SUMS_WITH_FUNCTIONS = frozenset("logaddexp logaddexp2".split())
ROUNDING = torch.finfo(torch.float64).eps


class Overloads(TorchDispatchMode):
    """Notes what is called under it."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[Any] = []
        self.scaled = False
        self.decimals = False
        self.unset: list[torch.Tensor] = []  # which elements eager leaves undefined, of a result
        self.alone: list[
            torch.Tensor
        ] = []  # what elements are by themselves, and NaN of all others
        self.cancelled: list[torch.Tensor] = []  # what a rounded operand brings into a sum
        self._rounded: list[torch.Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.called.append(func)
        alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
        self.scaled |= base(func) in PLAIN_SUMS and not (type(alpha) in (int, float) and alpha == 1)
        self.decimals |= base(func) == "round" and (bool(kwargs) or len(args) > 1)
        if base(func) in UNSET_OF_NAN:
            x, degree = (torch.as_tensor(each) for each in args[:2])
            self.unset.append(x.isnan() & (degree >= 2))
        operands = [a.clone() for a in map(torch.as_tensor, args[:2])] if _of_two(func) else []
        result = func(*args, **kwargs)
        if base(func) in REMAINDERS:
            self.alone.append(_remainders(base(func), operands, result))
        self._follow(func, args, operands, result)
        return result

    def _follow(self, func: Any, args: Any, operands: list[torch.Tensor], result: Any) -> None:
        """Of a sum with what a function was rounded to, directly or by exact operations since, the
        rounding of the greater operand: it stays where the sum cancels the value."""
        rounded = any(a is r for a in args for r in self._rounded)
        if not isinstance(result, torch.Tensor) or not result.dtype.is_floating_point:
            return
        if rounded and base(func) in PLAIN_SUMS:
            a, b = (each.to(torch.float64).abs() for each in operands)
            room = 2 * torch.finfo(result.dtype).eps * torch.maximum(a, b)
            self.cancelled.append(room.expand(result.shape))
        if rounded or base(func) not in EXACT:
            self._rounded.append(result)


def _of_two(func: Any) -> bool:
    return base(func) in REMAINDERS | PLAIN_SUMS


def _remainders(name: str, operands: list[torch.Tensor], result: torch.Tensor) -> torch.Tensor:
    """The remainders of finite operands that are NaN in a vector, each computed by itself."""
    alone = torch.full_like(result, float("nan"))
    if result.dtype.is_floating_point:
        a, b = (each.to(result).expand_as(result) for each in operands)
        lost = result.isnan() & a.isfinite() & b.isfinite() & (b != 0)
        single = [getattr(torch, name)(*each) for each in zip(a[lost], b[lost], strict=True)]
        alone[lost] = torch.stack(single) if single else result[lost]
    return alone


def base(func: Any) -> str:
    name = str(func._schema.name).partition("::")[2]
    return name if name in EXACT else name.rstrip("_")


def exact(noted: Overloads, tensors: list[torch.Tensor]) -> bool:
    """Whether eager computes what was noted exactly, on operands and results `tensors`."""
    if all(not t.dtype.is_floating_point and not t.dtype.is_complex for t in tensors):
        return True
    if noted.scaled or noted.decimals:
        return False
    names = {base(func) for func in noted.called}
    if any(t.dtype.is_complex for t in tensors) and names & NOT_IF_COMPLEX:
        return False
    return names <= EXACT


def either_zero(noted: Overloads) -> bool:
    """Whether the sign of a zero may be that of either operand."""
    return any(base(func) in EITHER_ZERO for func in noted.called)


class OtherZeros(TorchDispatchMode):
    """What such operators give has zeros of the other sign under it."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if base(func) not in EITHER_ZERO or not result.dtype.is_floating_point:
            return result
        turned = torch.where(result == 0, -result, result)
        return result.copy_(turned) if func._schema.is_mutable else turned


def but_unset(noted: Overloads, want: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """`want` with the elements of `got` that eager leaves undefined; with all where they went on
    into another result; with those that are what eager has of an element alone."""
    for alone in noted.alone:
        if alone.shape == want.shape and alone.dtype == want.dtype:
            zeros = alone.signbit() == got.signbit()
            want = torch.where(want.isnan() & (alone == got) & zeros, got, want)
    for unset in noted.unset:
        if unset.any():
            want = torch.where(unset, got, want) if unset.shape == want.shape else got
    return want


def eagers_error(noted: Overloads) -> float:
    """How far eager's own float64 is off, relative to 1 or the value if that is greater: where it
    approximates a function the product is right if it is nearer to the truth, and what a sum with a
    rounded function cancels leaves that function's rounding."""
    names = {base(func).removeprefix("special_") for func in noted.called}
    cancels = names & SUMS_WITH_FUNCTIONS or (names & PLAIN_SUMS and names - EXACT)
    errors = [POINTWISE[name].error for name in names & POINTWISE.keys()]
    return max([*errors, ROUNDING if cancels else 0.0])


def pointwise(noted: Overloads) -> bool:
    """Whether no element of a result depends on several of one operand."""
    moves = EXACT - frozenset("sort topk median".split())
    return all(torch.Tag.pointwise in func.tags or base(func) in moves for func in noted.called)


def in_any_order(noted: Overloads) -> bool:
    """Whether operands rolled along every dimension give the result so, but for the order in which
    its terms are added."""
    return {base(func) for func in noted.called} <= IN_ANY_ORDER


def seeded(noted: Overloads) -> bool:
    return any(torch.Tag.nondeterministic_seeded in func.tags for func in noted.called)
