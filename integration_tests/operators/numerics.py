"""Operators on special values: what is computed of them, compiled, against eager.

In: a dtype and a device. Out: cases, each a function of a few tensors, and what differs.
Invariant: the cases of primitives come from their registry, with the class that it states: what is
exact has eager's bits (of NaN: NaN), everything else is as near to what float64 gives as eager is,
or within a few units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from flambeau_prims.conformance.samples.special_values import SHIFTS, extremes, same, special
from flambeau_prims.conformance.samples.special_values import Extreme as Case
from flambeau_prims.ops.pointwise import FLOATS, INTS, POINTWISE
from torch import Tensor

import flambeau

aten = torch.ops.aten

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
NUMBERS = (0.1, -7.3, 255, 3, 0.5, -2, 1e10, 0.0, -0.0, 1e-40)
ULPS, TIMES = 4, 4
"""What a result that is not exact may be off by: so many units in the last place, or so many times
what eager is off by."""
NOT_ROUNDED = ("sqrt", "pow 0.5", "fmod", "remainder", "number %")
"""What vectors of eager's on a CPU have from libraries that do not round these correctly (a root
may be off by more than half a unit, the remainder of a large quotient is NaN): the right result is
one too."""


@dataclass(frozen=True)
class Difference:
    """How many elements of a case differ, and the first: operands, eager's, the compiled one's."""

    case: str
    exact: bool
    elements: int
    first: tuple[str, ...]


def _with(function: Callable[..., Tensor], number: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x, number)


def _to(function: Callable[..., Tensor], number: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: function(number, x)


WITH_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "true_divide": torch.true_divide,
    "floor_divide": torch.floor_divide, "remainder": torch.remainder, "fmod": torch.fmod,
    "div trunc": lambda x, n: torch.div(x, n, rounding_mode="trunc"),
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
    "clamp_min": torch.clamp_min, "clamp_max": torch.clamp_max,
    "threshold": lambda x, n: F.threshold(x, n, 0.25),
    "where": lambda x, n: torch.where(x > 1, x, n),
    "add alpha": lambda x, n: torch.add(x, 3, alpha=n),
    "addcdiv": lambda x, n: torch.addcdiv(x, x.flip(0), x.roll(1), value=n),
    "addcmul": lambda x, n: torch.addcmul(x, x.flip(0), x.roll(1), value=n),
    "leaky_relu": lambda x, n: F.leaky_relu(x, n),
    "copysign": torch.copysign,
    "masked_fill": lambda x, n: x.masked_fill(x > 1, n),
    "pad": lambda x, n: F.pad(x, (1, 1), value=n),
}  # fmt: skip
"""Operators of a tensor and a number."""
FROM_NUMBERS: dict[str, Callable[..., Any]] = {
    "number -": lambda n, x: n - x,
    "number /": lambda n, x: n / x,
    "number %": lambda n, x: n % x,
    "number //": lambda n, x: n // x,
}
OF_FLOATS: dict[str, Callable[[Tensor], Any]] = {
    "relu": F.relu, "relu6": F.relu6, "hardtanh": F.hardtanh, "frac": torch.frac,
    "clamp": lambda x: x.clamp(-0.3, 7.3), "clamp nan": lambda x: x.clamp(min=math.nan),
    "clamp both nan": lambda x: x.clamp(math.nan, 1.0), "nan_to_num": torch.nan_to_num,
    "1 / relu": lambda x: 1 / F.relu(x), "square": torch.square, "positive": torch.positive,
    "pow 2": lambda x: x**2, "pow 3": lambda x: x**3, "pow -1": lambda x: x**-1,
    "pow 0.5": lambda x: x**0.5, "pow -2": lambda x: x**-2, "pow 1": lambda x: x**1,
    "pow 0": lambda x: x**0, "isposinf": torch.isposinf, "deg2rad": torch.deg2rad,
    "hardshrink": F.hardshrink, "softshrink": F.softshrink, "rad2deg": torch.rad2deg,
    "sub of products": lambda x: x * x.flip(0) - x.flip(0) * x,
    "sum of products": lambda x: x * x.flip(0) + x,
    "difference of a quotient": lambda x: x / 3 - x * 7,
    "heaviside": lambda x: torch.heaviside(x, x.flip(0)), "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish, "xlogy 0": lambda x: torch.special.xlogy(x * 0, x),
    "cross": lambda x: torch.linalg.cross(
        torch.stack((x, x.flip(0), x.roll(1))), torch.stack((x.roll(2), x, x.flip(0))), dim=0
    ),
    "cross of itself": lambda x: torch.linalg.cross(*[torch.stack((x, x + 1, x * 3))] * 2, dim=0),
    "NaN to an integer": lambda x: torch.igamma(-1 - x.abs(), x).to(torch.int64),
}  # fmt: skip
"""Operators of a float tensor that are exact, one rounded operation after the other."""
NEAR: dict[str, Callable[[Tensor], Any]] = {
    "gelu": F.gelu, "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
    "mish": F.mish, "softplus": F.softplus, "selu": F.selu, "elu": F.elu, "celu": F.celu,
    "logit": torch.logit, "logsigmoid": F.logsigmoid, "i0": torch.i0, "sinc": torch.sinc,
    "tanhshrink": F.tanhshrink, "softsign": F.softsign, "pow -0.5": lambda x: x**-0.5,
    "pow 2.5": lambda x: x**2.5, "2 ** x": lambda x: 2**x, "hypot": lambda x: torch.hypot(x, x),
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(0)), "xlogy": lambda x: torch.xlogy(x, x),
    "trigamma": lambda x: torch.polygamma(1, x),
}  # fmt: skip
"""Operators of a float tensor that are not."""
GRADIENTS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "gelu": aten.gelu_backward,
    "gelu tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "silu": aten.silu_backward,
    "mish": aten.mish_backward,
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -1, 1),
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0),
    "softplus": lambda g, x: aten.softplus_backward(g, x, 1, 20),
    "elu": lambda g, x: aten.elu_backward(g, 1.0, 1.0, 1.0, False, x),
    "hardsigmoid": aten.hardsigmoid_backward,
}
"""Gradients of functions of a float tensor, by the operators that autograd calls."""
POWERS = (0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.5, True, False, 0j, 1 + 0j, 3 + 0j, -1 + 0j, 2j)
PRODUCTS = (2, 3, -2)
"""Powers that eager has from products, which its vectors round as single elements are not."""
PARTS = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -2.5, 3.0, 1e-3)
WIDER = (2.0**33 + 5, 2.0**31 + 7, 2.0**32 + 3, -(2.0**33) - 5, 2.0**40 + 2**20 + 2**14)
"""Numbers that integers of 32 and 64 bits make different narrow ones of."""


def of_operators(dtype: torch.dtype, device: str) -> Iterator[Case]:
    """Cases of ATen's operators on a tensor and numbers, in chains, and between dtypes."""
    a = special(dtype, 300).to(device)
    floats, whole = dtype in FLOATS, dtype in INTS
    for target in DTYPES:
        if target != dtype:
            kept = torch.cat([a, a.new_tensor(WIDER)]) if floats else a
            if a.device.type != "cpu" and floats and target not in FLOATS:
                kept = kept[_in_range(kept, target)]
            yield Case(f"to {target}", lambda x, t=target: x.to(t), (kept,), True)
            yield Case(f"to {target}, of one", _to_each(target), (kept,), True)
    if dtype == torch.bool:
        return
    for number in NUMBERS:
        if whole and (not isinstance(number, int) or number > 127):
            continue
        if dtype == torch.uint8 and number < 0:
            continue
        for name, function in WITH_NUMBERS.items():
            if floats or name not in ("threshold", "addcdiv", "addcmul", "leaky_relu", "copysign"):
                approximate = name in ("addcdiv", "addcmul", "add alpha")
                yield Case(
                    f"{name} {number}", _with(function, number), (a,), not approximate or whole
                )
        for name, function in FROM_NUMBERS.items():
            kept = a if floats else a[(a != 0) & (a != -1)]
            yield Case(f"{name} {number}", _to(function, number), (kept,), True)
    for count in SHIFTS if whole else ():
        if count <= torch.iinfo(dtype).max and (count >= 0 or dtype != torch.uint8):
            for name in ("bitwise_left_shift", "bitwise_right_shift"):
                yield Case(f"{name} {count}", _with(getattr(torch, name), count), (a,), True)
    yield Case("neg, widened", lambda x: (-x).to(torch.float64), (a,), True)
    yield Case("neg, compared", lambda x: torch.where(-x > 10, x, x + 1), (a,), True)
    yield Case("neg, maximum", lambda x: (-x).amax(), (a,), True, True)
    yield Case("abs of sums", lambda x: (x + x).abs().to(torch.float32), (a,), True)
    yield Case("sign of neg", lambda x: torch.sign(-x), (a,), True)
    if whole:
        yield Case("sum", lambda x: (-x).sum(), (a,), True)
        yield Case("prod", lambda x: (x + x).prod(), (a,), True)
        yield Case("cumsum", lambda x: x.cumsum(0), (a,), True)
        return
    for name, function in OF_FLOATS.items():
        # of softshrink the sign of a zero depends on where in a vector it stands
        yield Case(name, function, (a,), True, name == "softshrink")
    for name, function in NEAR.items():
        yield Case(name, function, (a,), False)
    if dtype in (torch.float32, torch.float64):
        parts = torch.cartesian_prod(a.new_tensor(PARTS), a.new_tensor(PARTS))
        for exponent in POWERS:
            exact = exponent not in PRODUCTS
            yield Case(f"complex pow {exponent}", _complex_power(exponent), (parts,), exact)
    for name, gradient in GRADIENTS.items():
        yield Case(f"gradient of {name}", gradient, (a.new_full(a.shape, 1.25), a), False)
    for start, end, steps in ((0, 1, 7), (-3.3, 7.1, 100), (0, 1, 1000), (5, -5, 11)):
        if dtype != torch.float64:
            yield Case(f"linspace {start} {end} {steps}", _linspace(start, end, steps), (a,), True)


def _to_each(target: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.stack([each.to(target) for each in x[-len(WIDER) :].unbind()])


def _complex_power(exponent: complex) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.view_as_real(torch.pow(torch.view_as_complex(x), exponent))


def _linspace(start: float, end: float, steps: int) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.linspace(start, end, steps, dtype=x.dtype, device=x.device)


def _in_range(a: Tensor, target: torch.dtype) -> Tensor:
    """Where conversion of floats to integers is defined."""
    if target == torch.bool:
        return a == a
    limits = torch.iinfo(target)
    wide = a.double()
    return (wide > max(limits.min, -(2.0**62))) & (wide < min(limits.max, 2.0**62))


def cases(dtype: torch.dtype, device: str = "cpu") -> list[Case]:
    """All cases of a dtype that eager has an answer to."""
    return [c for c in (*extremes(dtype, device), *of_operators(dtype, device)) if _runs(c)]


def _runs(case: Case) -> bool:
    try:
        case.function(*(o[:1] for o in case.operands))
    except RuntimeError:  # no kernel for the dtype, or a number that it does not hold
        return False
    return True


def compiled_together(some: Sequence[Case], **options: Any) -> list[Tensor]:
    """What each case gives in one compiled function of all of them."""
    operands = list({id(t): t for case in some for t in case.operands}.values())
    places = [[next(i for i, t in enumerate(operands) if t is o) for o in c.operands] for c in some]

    def together(*tensors: Tensor) -> list[Tensor]:
        return [
            case.function(*(tensors[i] for i in place))
            for case, place in zip(some, places, strict=True)
        ]

    return list(flambeau.compile(together, **options)(*operands))


def difference(case: Case, given: Tensor) -> Difference | None:
    """What differs in a compiled result, if anything does."""
    expected = case.function(*case.operands)
    if given.dtype != expected.dtype or given.shape != expected.shape:
        seen = (f"{expected.dtype}{list(expected.shape)}", f"{given.dtype}{list(given.shape)}")
        return Difference(case.name, case.exact, max(1, expected.numel()), seen)
    wrong = ~same(expected, given, zeros=case.zeros)
    if given.device.type == "cpu" and any(word in case.name for word in NOT_ROUNDED):
        wrong &= ~(expected.isnan() & given.isfinite())
        wrong &= ~same(_true(case).to(expected.dtype), given, zeros=case.zeros)
    if not case.exact:
        wrong &= ~_near(case, expected, given)
    if not bool(wrong.any()):
        return None
    at = int(wrong.reshape(-1).nonzero()[0])
    read = [o.reshape(-1)[at].item() for o in case.operands if o.numel() == expected.numel()]
    both = (expected.reshape(-1)[at].item(), given.reshape(-1)[at].item())
    return Difference(
        case.name, case.exact, int(wrong.sum()), tuple(_bits(v) for v in (*read, *both))
    )


def _bits(value: Any) -> str:
    return f"{value!r} ({value.hex()})" if isinstance(value, float) else repr(value)


def _true(case: Case) -> Tensor:
    wide = [o.double() if o.dtype.is_floating_point else o for o in case.operands]
    if case.name in ("sqrt", "pow 0.5"):  # torch's own of float64 is off too
        with np.errstate(invalid="ignore"):
            return torch.from_numpy(np.sqrt(wide[0].cpu().numpy())).to(wide[0].device)
    return case.function(*wide).double()


def _near(case: Case, expected: Tensor, given: Tensor) -> Tensor:
    true = _true(case)
    limits = torch.finfo(expected.dtype)
    finite = true.where(true.isfinite(), torch.zeros_like(true)).abs()
    unit = torch.exp2(torch.floor(torch.log2(finite.clamp(min=limits.smallest_normal))))
    off = (given.double() - true).abs()
    allowed = torch.maximum((expected.double() - true).abs() * TIMES, unit * (limits.eps * ULPS))
    if case.name in POINTWISE:  # of which eager's float64 is itself off by so much
        allowed = torch.maximum(allowed, finite.clamp(min=1.0) * POINTWISE[case.name].error)
    return (off <= allowed) & given.isfinite()


def differences(some: Sequence[Case], **options: Any) -> list[Difference]:
    """What differs among cases; where they do not compile together, each alone."""
    try:
        results = compiled_together(some, **options)
    except Exception as error:  # whatever a compiler raises is a difference of one case
        if len(some) == 1:
            return [Difference(some[0].name, some[0].exact, -1, (repr(error)[:300],))]
        half = len(some) // 2
        return differences(some[:half], **options) + differences(some[half:], **options)
    found = (difference(case, result) for case, result in zip(some, results, strict=True))
    return [each for each in found if each is not None]
