"""Numbers beside tensors: rounded where eager's kernels round them, on a CPU and on a GPU.

On a CPU the decompositions are held to eager, bit by bit. What kernels for a GPU do otherwise is
stated here as arithmetic on a CPU, and the decompositions for a GPU are run there.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from flambeau_prims.conformance import Decomposing
from flambeau_prims.conformance.samples.special_values import same, special
from flambeau_prims.decomp import emit

NUMBERS = (0.1, -7.3, 3, 255, 0.0, -0.0, 1e-40, math.nan)
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
WITH_NUMBER = {
    "add": torch.add,
    "sub": torch.sub,
    "rsub": torch.rsub,
    "mul": torch.mul,
    "div": torch.div,
    "floor_divide": torch.floor_divide,
    "from floor_divide": lambda x, n: n // x,
    "trunc": lambda x, n: torch.div(x, n, rounding_mode="trunc"),
    "copysign": torch.copysign,
    **{name: getattr(torch, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "clamp": lambda x, n: torch.clamp(x, n, 2.5),
    "clamp_min": torch.clamp_min,
    "clamp_max": torch.clamp_max,
    "threshold": lambda x, n: F.threshold(x, n, 0.25),
    "pad": lambda x, n: F.pad(x, (1, 1), value=n),
}


def unrounded(name, x, y, given):
    """Where the primitive `fmod`, run by eager, is NaN for a large quotient, and no kernel's is."""
    if "floor_divide" not in name:
        return torch.zeros_like(given, dtype=torch.bool)
    a, b = (y, x) if name.startswith("from") else (x, y)
    a, b = (torch.as_tensor(v, dtype=torch.float32).expand(x.shape).contiguous() for v in (a, b))
    return given.isnan() & torch.fmod(a, b).isnan()


@pytest.mark.parametrize("name", sorted(WITH_NUMBER))
def test_as_eager_on_a_cpu(name):
    for dtype in FLOATS:
        x = special(dtype, 200)
        for number in NUMBERS:
            expected = WITH_NUMBER[name](x, number)
            with Decomposing() as seen:
                given = WITH_NUMBER[name](x, number)
            assert seen.decomposed
            right = same(expected, given) | unrounded(name, x, number, given)
            assert bool(right.all()), (dtype, number, expected[~right][:3], given[~right][:3])


POWERS = {"pow 3": 3, "pow 2": 2, "pow -1": -1, "pow -2": -2, "pow 1": 1}
ONE = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "softshrink": F.softshrink,
    "nextafter": lambda x: torch.nextafter(x, x.flip(0)),
    "floor_divide": lambda x: torch.floor_divide(x, x.flip(0)),
    "linspace": lambda x: torch.linspace(-3.3, 7.1, 100, dtype=x.dtype),
    "norm of one": lambda x: torch.linalg.vector_norm(x[:, None], dim=1),
    **{name: lambda x, n=power: x**n for name, power in POWERS.items()},
}


@pytest.mark.parametrize("name", sorted(ONE))
def test_steps_are_rounded_as_in_eager(name):
    for dtype in FLOATS:
        x = special(dtype, 200)
        expected = ONE[name](x)
        with Decomposing():
            given = ONE[name](x)
        # of softshrink the sign of a zero depends on where in a vector it stands
        right = same(expected, given, zeros=name == "softshrink")
        right |= unrounded(name, x, x.flip(0), given)
        assert bool(right.all()), (dtype, x[~right][:3], expected[~right][:3], given[~right][:3])


def on_gpu(function, *operands):
    """What the decompositions for a GPU make of a function of CPU tensors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emit, "on_gpu", lambda *some: any(not emit.is_number(x) for x in some))
        with Decomposing():
            return function(*operands)


def by_reciprocal(x, number):
    """The product with the reciprocal, both in the dtype that is computed in, rounded once."""
    wide = x.double() if x.dtype == torch.float64 else x.float()
    return (wide * (torch.ones((), dtype=wide.dtype) / number)).to(x.dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float64], ids=str)
def test_division_by_a_number_on_a_gpu_multiplies(dtype):
    x = special(dtype, 200)
    for number in (255, -7.3, 0.1, 3):
        assert bool(same(by_reciprocal(x, number), on_gpu(torch.div, x, number)).all())
        whole = on_gpu(lambda y, n=number: torch.div(y, n, rounding_mode="trunc"), x)
        wide = x.double() if dtype == torch.float64 else x.float()
        assert bool(same(by_reciprocal(wide, number).trunc().to(dtype), whole).all())


def test_bounds_on_a_gpu():
    x = torch.tensor([-0.0, 0.0, 1e-40, -2.0, 3.0, math.nan])
    positive = torch.tensor([0.0, 0.0, 1e-40, 0.0, 3.0, math.nan])
    for bounded in (F.relu, lambda y: y.clamp(min=0.0)):  # a CPU's maximum is either of two zeros
        assert bool(same(positive, on_gpu(bounded, x), zeros=True).all())
    assert bool(same(x, on_gpu(lambda y: y.clamp(min=math.nan), x)).all())
    assert bool(on_gpu(lambda y: y.clamp(math.nan, 1.0), x).isnan().all())
    below = torch.tensor([-0.0, -0.0, -0.0, -2.0, -0.0, math.nan])
    assert bool(same(below, on_gpu(lambda y: y.clamp(max=-0.0), x), zeros=True).all())


def test_quotients_of_half_precision_on_a_gpu():
    """Values of an H200: the whole number is rounded, nothing before it."""
    rows = [(10.0, -0.10009765625, -100.0), (-121856.0, 255, -480.0), (1024.0, 1.5, 680.0)]
    for a, b, wanted in rows:
        x = torch.tensor([a], dtype=torch.bfloat16)
        y = b if isinstance(b, int) else torch.tensor([b], dtype=torch.bfloat16)
        assert on_gpu(torch.floor_divide, x, y).item() == wanted


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_truncated_quotient_is_rounded_as_often_as_eager_does(dtype):
    torch.manual_seed(0)
    x, y = (torch.randn(600) * 50).to(dtype), torch.randn(600).to(dtype)
    for a, b in [
        (x, y),
        (x[::2], y[::2]),
        (x, y[3]),
        (x, y[3:4]),
        (x[5], y),
        (x[5], y[3]),
        (x, 0.7),
    ]:
        expected = torch.div(a, b, rounding_mode="trunc")
        with Decomposing():
            found = torch.div(a, b, rounding_mode="trunc")
        assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, *FLOATS, torch.complex64])
@pytest.mark.parametrize("number", [3, 0, 2.5, True])
def test_a_number_is_copied(dtype, number):
    for x in (torch.zeros(2, 3), torch.zeros(3, 2).t(), torch.zeros(())):
        x = x.to(dtype)
        expected = x.clone().copy_(number)
        with Decomposing():
            found = torch.ops.aten.copy.default(x, number)
        assert torch.equal(found, expected) and found.dtype == expected.dtype
        assert found.stride() == expected.stride()


@pytest.mark.parametrize("name", ["_softmax_backward_data", "_log_softmax_backward_data"])
def test_a_softmax_gradient_keeps_its_dtype(name):
    op = getattr(torch.ops.aten, name).default
    for dtype in (*FLOATS, torch.float64):
        for told in (*FLOATS, torch.float64):
            grad, output = torch.randn(2, 3).to(dtype), torch.randn(2, 3).softmax(1).to(dtype)
            if (dtype, told) == (torch.float32, torch.float16):
                continue  # of a GPU alone
            expected = op(grad, output, 1, told)
            with Decomposing():
                found = op(grad, output, 1, told)
            assert found.dtype == expected.dtype
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, *FLOATS])
@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, 0.0), (-2.5, 3.7), (0, 6)], ids=str)
def test_bounds_are_of_the_dtype_of_what_they_bound(dtype, bounds):
    x = torch.arange(-5, 6).to(dtype)
    expected = F.hardtanh(x, *bounds)
    with Decomposing():
        found = F.hardtanh(x, *bounds)
    assert torch.equal(found, expected) and found.dtype == expected.dtype
