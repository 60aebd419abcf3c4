"""Sample calls derived from a primitive's schema, shape rule and tags.

In: a primitive. Out: calls that its rule accepts, in the dtypes that it accepts.
Invariant: the rule alone decides what is a valid call; whatever it accepts is offered, so a rule
that accepts too much shows as a failing case.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from flambeau_prims._op import Prim
from flambeau_prims._torch_compat import Parameter, parameters
from flambeau_prims.conformance.samples.registry import Call, Case, accepts
from flambeau_prims.conformance.samples.tensors import (
    BF16,
    BOOL,
    C64,
    CPU,
    DTYPES,
    F32,
    F64,
    I64,
    extremes,
    hermitian,
    layouts,
    signed,
    special,
    tensor,
)
from flambeau_prims.ops.pointwise import POINTWISE

# Integer operations that are undefined, or a hardware trap, on the ends of the range.
_NO_EXTREMES = frozenset(
    {
        *("trunc_div", "floor_div", "remainder", "fmod", "pow", "shift_left", "shift_right"),
        *("gcd", "lcm"),
    }
)
_CAST_TARGETS = (F32, F64, BF16, I64, torch.uint8, BOOL, C64)


def pointwise(prim: Prim, g: Generator) -> Iterator[Case]:
    """Every dtype in every layout; special values; integers that wrap."""
    wanted = parameters(prim.overload)
    for dtype in DTYPES:
        if not _takes(prim, wanted, dtype, g):
            continue
        short = str(dtype).removeprefix("torch.")
        first, second = layouts(dtype, g), layouts(dtype, g)
        for label, a in first.items():
            # operands that disagree about the layout, where there is another of this shape
            b = second["permuted" if label in ("contiguous", "strided") else label]
            for extra, (args, kwargs) in enumerate(_filled(wanted, (a, b, a), dtype, g)):
                if accepts(prim, args, kwargs):
                    yield Case(prim, f"{prim.name}-{short}-{label}-{extra}", args, kwargs)
        for args, kwargs in _at_the_ends(prim, wanted, dtype, g):
            yield Case(prim, f"{prim.name}-{short}-special", args, kwargs, special=True)


def _takes(prim: Prim, wanted: Sequence[Parameter], dtype: torch.dtype, g: Generator) -> bool:
    if prim.dtypes is not None and dtype not in prim.dtypes:
        return False
    x = tensor((2,), dtype, g)
    return any(accepts(prim, a, k) for a, k in _filled(wanted, (x, x, x), dtype, g))


def _at_the_ends(
    prim: Prim, wanted: Sequence[Parameter], dtype: torch.dtype, g: Generator
) -> Iterator[Call]:
    if dtype.is_floating_point:
        values = special(dtype)
        if prim.name in ("fmod", "remainder", "floor_div"):  # quotients overflow at the ends
            values = values[:9]
        function = POINTWISE.get(prim.name)
        low, high = (function and function.domain) or (-math.inf, math.inf)
        if "special" in prim.tags:  # what these do far out, or with NaN, is the library's choice
            values = torch.tensor([0.0, 1.0, 0.5, 2.5], dtype=dtype)
        values = values[((values >= low) & (values <= high)) | (low == -math.inf)]
    elif dtype.is_complex or dtype == BOOL or prim.name in _NO_EXTREMES:
        return
    else:
        values = extremes(dtype)
    # every pair of values; a third operand goes round the other way
    a, b = (x.reshape(-1) for x in torch.meshgrid(values, values, indexing="ij"))
    for args, kwargs in itertools.islice(_filled(wanted, (a, b, b.flip(0)), dtype, g), 1):
        if prim.name == "cast":  # out of range of the target is undefined
            kwargs["dtype"] = F64 if dtype.is_floating_point else I64
        if accepts(prim, args, kwargs):
            yield args, kwargs


def _filled(
    wanted: Sequence[Parameter], operands: Sequence[Tensor], dtype: torch.dtype, g: Generator
) -> Iterator[Call]:
    """Calls with `operands` for tensors, in order, and some values for the other parameters."""
    remaining = iter(operands)
    choices: list[list[Any]] = []
    for parameter in wanted:
        if parameter.type == "Tensor":
            x = next(remaining, operands[0])
            # a condition, or the like: a bool tensor where the operands' dtype will not do
            choices.append([tensor(tuple(x.shape), BOOL, g)] if parameter.name == "cond" else [x])
        else:
            choices.append(_values(parameter, dtype))
    for values in itertools.product(*choices):
        yield _split(wanted, values)


def _split(wanted: Sequence[Parameter], values: Sequence[Any]) -> Call:
    pairs = list(zip(wanted, values, strict=True))
    named = {p.name: value for p, value in pairs if p.keyword_only}
    return tuple(value for p, value in pairs if not p.keyword_only), named


def _values(parameter: Parameter, dtype: torch.dtype) -> list[Any]:
    """Some values of a parameter that is no tensor."""
    if parameter.type.endswith("?"):
        return [None]
    by_type: dict[str, list[Any]] = {
        "dtype": list(_CAST_TARGETS),
        "Device": [CPU],
        "bool": [False, True],
        "int": [1, 0, 2],
        "SymInt": [1, 2],
        "float": [0.5, 1.0],
        "Scalar": [2, 0.5],
        "str": [""],
    }
    return by_type.get(parameter.type, [])  # lists differ in meaning: calls are written by hand


_SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "linalg": ((3, 3), (2, 4, 4), (0, 3, 3)),
    "": ((3, 4, 5), (7,), (6, 1), (), (2, 0, 3)),
}


def calls(prim: Prim, g: Generator) -> Iterator[Call]:
    """Calls of a primitive that is not pointwise, as far as the schema lets one guess them."""
    wanted = parameters(prim.overload)
    square = "linalg" in prim.tags
    for dtype in DTYPES:
        if prim.dtypes is not None and dtype not in prim.dtypes:
            continue
        for shape in _SHAPES["linalg" if square else ""]:
            if square:
                batch, n = shape[:-2], shape[-1]
                inexact = dtype in (F32, F64) or dtype.is_complex
                operands = [hermitian(batch, n, dtype, g)] * 3 if inexact else []
            else:
                operands = [signed(shape, dtype, g) for _ in range(3)]
            if not operands:
                continue
            if operands[0].ndim > 1 and not square:
                operands[1] = operands[1].mT.contiguous().mT
            yield from _accepted(prim, wanted, operands, dtype)


def _accepted(
    prim: Prim, wanted: Sequence[Parameter], operands: Sequence[Tensor], dtype: torch.dtype
) -> Iterator[Call]:
    remaining = iter(operands)
    ndim = operands[0].ndim
    choices: list[list[Any]] = []
    for p in wanted:
        if p.type == "Tensor":
            choices.append([next(remaining, operands[0])])
        elif p.name in ("dims", "dim") and p.type in ("int[]", "SymInt[]"):
            choices.append([[ndim - 1], list(range(ndim)), [0]] if ndim else [[]])
        elif p.name in ("dim", "dim1", "dim2", "axis"):
            choices.append(list(range(ndim)) or [0])
        else:
            choices.append(_values(p, dtype))
    for values in itertools.product(*choices):
        args, kwargs = _split(wanted, values)
        if accepts(prim, args, kwargs):
            yield args, kwargs
