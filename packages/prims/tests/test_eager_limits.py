"""What eager refuses is refused, in its words: every operation of one tensor, every dtype."""

import pytest
import torch
import torch.nn.functional as F
from flambeau_prims.conformance import Decomposing
from flambeau_prims.eager_limits import EVERYWHERE, OF_OVERLOADS, ON_CPU

aten = torch.ops.aten
DTYPES = (
    torch.bool, torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.complex64,
)  # fmt: skip
OF_ONE_TENSOR = """abs acos acosh angle asin asinh atan atanh bitwise_not ceil cos cosh deg2rad
    digamma erf erfc erfinv exp exp2 expm1 floor frac i0 isfinite isinf isnan isneginf isposinf
    lgamma log log10 log1p log2 logical_not logit nan_to_num neg nanmean nansum reciprocal relu
    round rsqrt sgn sigmoid sign signbit sin sinh sqrt square tan tanh trunc""".split()
OF_NETWORKS = """relu6 gelu silu mish softplus selu elu celu hardtanh hardswish hardsigmoid
    logsigmoid hardshrink softshrink tanhshrink softsign leaky_relu""".split()
FUNCTIONS = {
    **{name: getattr(torch, name) for name in OF_ONE_TENSOR},
    **{name: getattr(F, name) for name in OF_NETWORKS},
    "threshold": lambda x: F.threshold(x, 1, 2),
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(0),
    "erfcx": torch.special.erfcx,
}


def outcome(function, x):
    """The result's dtype, or what is raised."""
    try:
        return function(x.clone()).dtype
    except (RuntimeError, NotImplementedError, TypeError) as error:
        return type(error), str(error).splitlines()[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_eager(name):
    for dtype in DTYPES:
        x = torch.tensor([1, 0, 1, 1]).to(dtype)
        expected = outcome(FUNCTIONS[name], x)
        with Decomposing():
            assert outcome(FUNCTIONS[name], x) == expected, dtype


def test_names_are_of_operations():
    for name in (*EVERYWHERE, *ON_CPU):
        assert hasattr(aten, name), name
    for overload in OF_OVERLOADS:
        name, _, kind = overload.partition(".")
        assert kind in getattr(aten, name).overloads(), overload


@pytest.mark.parametrize("name", ["clamp_min", "clamp_max"])
@pytest.mark.parametrize("bound", ["tensor", "number"])
def test_bounds_of_truth_values(name, bound):
    x = torch.tensor([True, False, True])
    call = lambda x: getattr(torch, name)(x, x.flip(0) if bound == "tensor" else True)  # noqa: E731
    expected = outcome(call, x)
    with Decomposing():
        assert outcome(call, x) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_deviations_beyond_the_root_of_the_greatest_number(dtype):
    x = torch.tensor([[1e20, 2e20, 3e20], [1e30, -1e30, 0.0], [1.0, 2.0, 3.0]]).to(dtype)
    for call in (lambda x: x.std(1), lambda x: torch.std_mean(x, 1)[0], lambda x: x.std(1).exp()):
        with Decomposing():
            found = call(x)
        torch.testing.assert_close(found, call(x))
    assert x.std(1).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_zeros_of_softshrink_keep_their_sign_in_half_precision(dtype):
    x = torch.tensor([-0.0, -0.3, 0.3, 0.0, float("nan"), 2.0, -2.0]).to(dtype)
    with Decomposing():
        found = F.softshrink(x)
    expected = F.softshrink(x)
    torch.testing.assert_close(found, expected, equal_nan=True)
    kept = ~x.isnan()
    assert torch.equal(found.signbit()[kept], expected.signbit()[kept])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_dtypes_of_huber_loss(reduction):
    kinds = (torch.float32, torch.float64, torch.float16)
    for a, b in ((a, b) for a in kinds for b in kinds):
        x, y = torch.rand(4).to(a), torch.rand(4).to(b)
        expected = F.huber_loss(x, y, reduction=reduction)
        with Decomposing():
            assert F.huber_loss(x, y, reduction=reduction).dtype == expected.dtype, (a, b)
