"""Reductions in Triton, by one block or a loop over blocks, and online softmax.

In: a `Reduce`, the source of its operand spread over the block `[XBLOCK, RBLOCK]`, and the mask of
the reduction dimension (None where no block hangs over). Out: source lines. Invariant: masked
elements count as the kind's identity, and the result has shape `[XBLOCK, 1]`.

In `sum(exp(x - max(x)))` each lane of a block keeps a maximum and a sum of its own, and scales the
sum when the maximum grows (M. Milakov and N. Gimelshein: Online normalizer calculation for softmax,
2018). A row without a finite maximum gives NaN, as `exp(x - max)` does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flambeau_inductor.codegen.triton.dtypes import HALF, register
from flambeau_inductor.errors import TritonUnsupported
from flambeau_inductor.ir.loops import Loop, Point, Reduce


@dataclass(frozen=True, slots=True)
class ReductionKind:
    """`combine(a, b)` of two values, `over(v)` along the last axis, and the neutral value."""

    combine: str
    over: str
    neutral: str


FLOATING: dict[str, ReductionKind] = {
    "sum": ReductionKind("{0} + {1}", "tl.sum({0}, 1)", "0.0"),
    "prod": ReductionKind("{0} * {1}", "tl.reduce({0}, 1, fm.product)", "1.0"),
    "max": ReductionKind("fm.maximum({0}, {1})", "tl.reduce({0}, 1, fm.maximum)", "float('-inf')"),
    "min": ReductionKind("fm.minimum({0}, {1})", "tl.reduce({0}, 1, fm.minimum)", "float('inf')"),
}

INTEGER: dict[str, ReductionKind] = {
    "sum": ReductionKind("{0} + {1}", "tl.sum({0}, 1)", "0"),
    "prod": ReductionKind("{0} * {1}", "tl.reduce({0}, 1, fm.product)", "1"),
    "max": ReductionKind("fm.integer_maximum({0}, {1})", "tl.max({0}, 1)", "{low}"),
    "min": ReductionKind("fm.integer_minimum({0}, {1})", "tl.min({0}, 1)", "{high}"),
}

BOOLEAN: dict[str, ReductionKind] = {
    **dict.fromkeys(("any", "max"), ReductionKind("{0} | {1}", "tl.max({0}, 1)", "0")),
    **dict.fromkeys(("all", "min"), ReductionKind("{0} & {1}", "tl.min({0}, 1)", "1")),
}

ARG = {"argmax": "fm.argmax_step", "argmin": "fm.argmin_step"}
NO_INDEX = "9223372036854775807"


def whole(
    reduce: Reduce, operand: torch.dtype, value: str, name: str, mask: str | None, length: str
) -> list[str]:
    """Lines that leave the reduction of a whole row in one block in `name`."""
    if reduce.kind == "welford":
        return _two_passes(value, name, mask, _share(name, length, reduce.dtype))
    if reduce.kind in ARG:
        # A masked element loses every tie: its index is larger than any other.
        index = "rindex"
        if mask is not None:
            index = f"tl.where({mask}, rindex.to(tl.int64), {NO_INDEX})"
        held = f"{value}.to({_holding(operand)})"
        if mask is not None:
            held = f"tl.where({mask}, {held}, {_arg_neutral(reduce, operand)})"
        return [
            f"{name}_value = {held}",
            f"{name}_index = tl.broadcast_to({index}, {name}_value.shape).to(tl.int64)",
            *_best(reduce, name, name),
        ]
    kind, held = _kind(reduce), _hold(reduce, value)
    if mask:
        held = f"tl.where({mask}, {held}, {kind.neutral})"
    return [f"{name} = {_release(reduce, kind.over.format(held) + '[:, None]')}"]


def start(reduce: Reduce, operand: torch.dtype, name: str, shape: str) -> list[str]:
    """Lines before the loop over blocks."""
    if reduce.kind == "welford":
        dtype = register(reduce.dtype)
        return [f"{name}_{part} = tl.zeros({shape}, {dtype})" for part in ("n", "mean", "m2")]
    if reduce.kind in ARG:
        neutral = _arg_neutral(reduce, operand)
        return [
            f"{name}_value = tl.full({shape}, {neutral}, {_holding(operand)})",
            f"{name}_index = tl.full({shape}, {NO_INDEX}, tl.int64)",
        ]
    return [f"{name} = tl.full({shape}, {_kind(reduce).neutral}, {_holding(reduce.dtype)})"]


def step(reduce: Reduce, name: str, value: str, mask: str | None) -> list[str]:
    """Lines inside the loop over blocks."""
    if reduce.kind == "welford":
        # an element that is masked is so in the last step alone: all others have the same count
        update = [
            f"{name}_k = {name}_n + 1.0",
            f"{name}_share = 1.0 / tl.cast(r_offset // RBLOCK + 1, {register(reduce.dtype)})",
            f"{name}_d = {value} - {name}_mean",
            f"{name}_next = {name}_mean + {name}_d * {name}_share",
            f"{name}_sq = {name}_m2 + {name}_d * ({value} - {name}_next)",
        ]
        pairs = (("n", "k"), ("mean", "next"), ("m2", "sq"))
        if mask is None:
            return update + [f"{name}_{old} = {name}_{new}" for old, new in pairs]
        return update + [
            f"{name}_{old} = tl.where({mask}, {name}_{new}, {name}_{old})" for old, new in pairs
        ]
    if reduce.kind in ARG:
        function = ARG[reduce.kind]
        index = f"rindex.to(tl.int64) + tl.zeros_like({name}_index)"
        best = f"{name}_value, {name}_index"
        pair = f"{name}_v, {name}_i = {function}({best}, {name}_new, {index})"
        held = f"{name}_new = {value}.to({name}_value.dtype)"
        if mask is None:
            return [held, pair, f"{name}_value, {name}_index = {name}_v, {name}_i"]
        return [
            held,
            pair,
            f"{name}_value = tl.where({mask}, {name}_v, {name}_value)",
            f"{name}_index = tl.where({mask}, {name}_i, {name}_index)",
        ]
    kind = _kind(reduce)
    combined = kind.combine.format(name, _hold(reduce, value))
    return [f"{name} = tl.where({mask}, {combined}, {name})" if mask else f"{name} = {combined}"]


def finish(reduce: Reduce, name: str, result: str, length: str) -> list[str]:
    """Lines after the loop over blocks, leaving the reduction in `result`."""
    if reduce.kind == "welford":
        return [
            _share(name, length, reduce.dtype),
            f"{result}_0 = tl.sum({name}_mean * ({name}_n * {name}_share), 1)[:, None]",
            f"{name}_d = {name}_n * ({name}_mean - {result}_0)",
            *_refined(name, f"{result}_0"),
            f"{name}_d = {name}_mean - {result}_0",
            f"{result}_1 = tl.sum({name}_m2 + {name}_n * {name}_d * {name}_d, 1)[:, None]",
            f"{result} = {result}_0",
        ]
    if reduce.kind in ARG:
        return _best(reduce, name, result)
    kind = _kind(reduce)
    return [f"{result} = {_release(reduce, kind.over.format(name) + '[:, None]')}"]


def _best(reduce: Reduce, name: str, result: str) -> list[str]:
    """The index of the best of a block's values, in `result`."""
    pair = f"({name}_value, {name}_index)"
    return [
        f"{result}_best, {result} = tl.reduce({pair}, 1, {ARG[reduce.kind]})",
        f"{result} = {result}[:, None]",
    ]


def _share(name: str, length: str, dtype: torch.dtype) -> str:
    """A line that leaves what an element adds to the mean of so many: their sum may overflow where
    no mean does."""
    return f"{name}_share = 1.0 / tl.cast({length}, {register(dtype)})"


def _two_passes(value: str, name: str, mask: str | None, share: str) -> list[str]:
    def keep(text: str) -> str:
        return f"tl.where({mask}, {text}, 0.0)" if mask else text

    return [
        share,
        f"{name}_0 = tl.sum({keep(f'{value} * {name}_share')}, 1)[:, None]",
        f"{name}_d = {keep(f'{value} - {name}_0')}",
        *_refined(name, f"{name}_0"),
        f"{name}_d = {keep(f'{value} - {name}_0')}",
        f"{name}_1 = tl.sum({name}_d * {name}_d, 1)[:, None]",
        f"{name} = {name}_0",
    ]


def _refined(name: str, mean: str) -> list[str]:
    """Lines that add to a mean what the rounding of its sum left out, the mean of the deviations
    from it: equal numbers have no variance. Where their sum overflows so does the variance."""
    return [
        f"{name}_left = tl.sum({name}_d, 1)[:, None] * {name}_share",
        f"{mean} = tl.where({name}_left - {name}_left == 0, {mean} + {name}_left, {mean})",
    ]


def _kind(reduce: Reduce) -> ReductionKind:
    dtype = reduce.dtype
    table = FLOATING if dtype.is_floating_point else INTEGER
    table = BOOLEAN if dtype == torch.bool else table
    kind = table.get(reduce.kind)
    if kind is None or (dtype in HALF and reduce.kind in {"sum", "prod"}):
        raise TritonUnsupported(f"no Triton reduction of kind {reduce.kind} on {dtype}")
    if table is not INTEGER:
        return kind
    limits = torch.iinfo(dtype)
    neutral = kind.neutral.format(low=limits.min, high=limits.max)
    return ReductionKind(kind.combine, kind.over, neutral)


def _arg_neutral(reduce: Reduce, operand: torch.dtype) -> str:
    """A value that no element is worse than."""
    lowest = reduce.kind == "argmax"
    if operand.is_floating_point:
        return "float('-inf')" if lowest else "float('inf')"
    if operand == torch.bool:
        return "0" if lowest else "1"
    limits = torch.iinfo(operand)
    return str(limits.min if lowest else limits.max)


def _holding(dtype: torch.dtype) -> str:
    """Dtype in which values are kept and compared: bool in a byte, half precision in float32."""
    if dtype == torch.bool:
        return "tl.int8"
    return "tl.float32" if dtype in HALF else register(dtype)


def _hold(reduce: Reduce, value: str) -> str:
    held = _holding(reduce.dtype)
    return value if held == register(reduce.dtype) else f"{value}.to({held})"


def _release(reduce: Reduce, value: str) -> str:
    if reduce.dtype == torch.bool:
        return f"{value} != 0"
    # Triton's own reductions give integers below 32 bits back as int32
    narrow = reduce.dtype in HALF or reduce.dtype.itemsize < 4
    return f"({value}).to({register(reduce.dtype)})" if narrow else value


def online_sums(loop: Loop) -> dict[int, int]:
    """For each sum of an online softmax, the position of its maximum."""
    found: dict[int, int] = {}
    for position, instr in enumerate(loop.body):
        if not isinstance(instr, Reduce) or instr.kind != "sum" or instr.dtype != torch.float32:
            continue
        powers = loop.body[instr.arg]
        if not isinstance(powers, Point) or powers.op != "exp" or powers.dtype != torch.float32:
            continue
        moved = loop.body[powers.args[0]]
        if not isinstance(moved, Point) or moved.op != "sub" or moved.dtype != torch.float32:
            continue
        value, at = moved.args
        top = loop.body[at]
        if isinstance(top, Reduce) and top.kind == "max" and top.arg == value:
            if top.dtype == torch.float32 and at not in found.values():
                found[position] = at
    return found
