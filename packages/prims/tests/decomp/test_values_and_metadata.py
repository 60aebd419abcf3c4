"""ATen operations computed through prims: values, shapes, dtypes and strides against eager."""

import pytest
import torch
import torch.nn.functional as F
from flambeau_prims import decompositions
from flambeau_prims.conformance import Decomposing

aten = torch.ops.aten
HALF = (torch.float16, torch.bfloat16)

UNARY = {
    name: getattr(torch, name)
    for name in (
        "abs neg sign ceil floor round trunc frac exp exp2 expm1 log log2 log10 log1p sqrt rsqrt"
        " reciprocal sin cos tan asin acos atan sinh cosh tanh asinh atanh erf erfc erfinv lgamma"
        " digamma sigmoid logical_not isnan isinf isfinite square nan_to_num sum mean amax argmax"
        " any all var std prod logsumexp softmax log_softmax cumsum triu tril"
    ).split()
    if name not in ("amax", "logsumexp", "softmax", "log_softmax", "cumsum")
} | {
    "amax": lambda x: torch.amax(x, 0),
    "max_dim": lambda x: torch.max(x, 1),
    "min_dim_keep": lambda x: torch.min(x, 0, keepdim=True),
    "sum_dim": lambda x: x.sum(0, keepdim=True),
    "sum_dtype": lambda x: x.sum(1, dtype=torch.float64),
    "mean_dim": lambda x: x.mean((0, 1), keepdim=True),
    "var_mean": lambda x: torch.var_mean(x, 1, correction=0, keepdim=True),
    "norm": lambda x: x.norm(dim=1),
    "norm_1": lambda x: torch.linalg.vector_norm(x, 1, 0),
    "norm_inf": lambda x: torch.linalg.vector_norm(x, float("inf"), (0, 1)),
    "norm_3": lambda x: torch.linalg.vector_norm(x, 3.0, 0),
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "softmax_masked": lambda x: x.masked_fill(x < 0.9, float("-inf")).softmax(1),
    "cumsum": lambda x: x.cumsum(1),
    "sort": lambda x: torch.sort(x, dim=1, stable=True),
    "topk": lambda x: torch.topk(x, 2, 0).values,
    "argmin_keep": lambda x: x.argmin(1, keepdim=True),
    "pow_1": lambda x: x**1.0,
    "pow_2": lambda x: x**2,
    "pow_half": lambda x: x**0.5,
    "pow_2.5": lambda x: x**2.5,
    "rpow": lambda x: 2.0**x,
    "rsub": lambda x: 1.5 - x,
    "rdiv": lambda x: 1 / x,
    "add_alpha": lambda x: torch.add(x, x, alpha=2),
    "mod": lambda x: x % 0.3,
    "fmod": lambda x: torch.fmod(x - 0.5, 0.3),
    "floordiv": lambda x: (x - 0.5) // 0.3,
    "clamp": lambda x: x.clamp(0.2, 0.6),
    "clamp_max": lambda x: x.clamp(max=0.5),
    "relu": lambda x: F.relu(x - 0.5),
    "relu6": lambda x: F.relu6(x * 10 - 3),
    "hardtanh": lambda x: F.hardtanh(x - 0.5, -0.2, 0.3),
    "hardswish": lambda x: F.hardswish(x * 10 - 5),
    "hardsigmoid": lambda x: F.hardsigmoid(x * 10 - 5),
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "leaky_relu": lambda x: F.leaky_relu(x - 0.5, 0.1),
    "elu": lambda x: F.elu(x - 0.5, 0.7),
    "selu": lambda x: F.selu(x - 0.5),
    "softplus": lambda x: F.softplus(x * 30, 2.0),
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
    "glu": lambda x: F.glu(x, 0),
    "threshold": lambda x: F.threshold(x, 0.5, 0.1),
    "lerp": lambda x: torch.lerp(x, x * 2, 0.3),
    "where": lambda x: torch.where(x > 0.5, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x > 0.5, 2.0),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
    "addcdiv": lambda x: torch.addcdiv(x, x, x + 1, value=0.5),
    "to_float": lambda x: x.to(torch.float32),
    "to_int": lambda x: (x * 10).to(torch.int64),
    "to_bool": lambda x: (x > 0.5).to(torch.bool),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "rms_norm": lambda x: F.rms_norm(x, (x.shape[-1],)),
}

SHAPES = {
    "view": lambda x: x.reshape(2, 2, 6),
    "expand": lambda x: x[:, None].expand(-1, 3, -1),
    "permute": lambda x: x.permute(1, 0),
    "squeeze": lambda x: x[None, :, :, None].squeeze(),
    "squeeze_dim": lambda x: x[None].squeeze(0),
    "select": lambda x: x[-1],
    "slice": lambda x: x[1:-1:2, -3:],
    "slice_empty": lambda x: x[3:1],
    "split": lambda x: x.split(3, 1),
    "split_sizes": lambda x: x.split([1, 3], 0),
    "chunk": lambda x: x.chunk(4, 1),
    "unbind": lambda x: x.unbind(1),
    "cat": lambda x: torch.cat([x, x.long()], 1),
    "cat_legacy": lambda x: torch.cat([torch.empty(0), x]),
    "stack": lambda x: torch.stack([x, x], 1),
    "repeat": lambda x: x.repeat(2, 1, 3),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll((1, -2), (0, 1)),
    "roll_flat": lambda x: x.roll(5),
    "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=3.0),
    "pad_negative": lambda x: F.pad(x, (-1, 2, -1, 0)),
    "triu": lambda x: x.triu(1),
    "tril": lambda x: x.tril(-1),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:, :2], 1, 2, 6, 2),
    "select_scatter": lambda x: torch.select_scatter(x, x[0], 0, -1),
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.t().contiguous(),
    "zeros_like": lambda x: torch.zeros_like(x),
    "full_like": lambda x: torch.full_like(x, 2, dtype=torch.float64),
    "new_full": lambda x: x.new_full((2, 3), 1.5),
    "arange": lambda x: torch.arange(1, 10, 3, dtype=x.dtype),
    "arange_float": lambda x: torch.arange(0.0, 1.0, 0.3),
    "eye": lambda x: torch.eye(3, 4) + x[0, 0],
    "gather": lambda x: x.gather(1, torch.tensor([[0], [2], [1], [5]])),
    "index_select": lambda x: x.index_select(1, torch.tensor([5, 0])),
    "index": lambda x: x[torch.tensor([0, -1]), torch.tensor([1, 2])],
    "index_mask": lambda x: x[x > 0.5],
    "index_put": lambda x: x.index_put((torch.tensor([0, 0]),), x[:2], accumulate=True),
    "index_put_mask": lambda x: x.index_put((x > 0.5,), torch.tensor(0.25).to(x.dtype)),
    "index_add": lambda x: x.index_add(1, torch.tensor([0, 0]), x[:, :2], alpha=2),
    "index_copy": lambda x: x.index_copy(0, torch.tensor([3, 0]), x[:2]),
    "scatter": lambda x: x.scatter(1, torch.tensor([[0], [2], [1], [5]]), 9.0),
    "scatter_add": lambda x: x.scatter_add(0, torch.zeros(2, 6, dtype=torch.int64), x[:2]),
    "masked_select": lambda x: x.masked_select(x > 0.5),
    "matmul": lambda x: x @ x.t(),
    "addmm": lambda x: torch.addmm(x[0], x, torch.ones(6, 6, dtype=x.dtype), beta=0.5, alpha=2),
    "baddbmm": lambda x: torch.baddbmm(x[None], x[None], torch.ones(1, 6, 6, dtype=x.dtype)),
    "mv": lambda x: x.mv(x[0]),
    "dot": lambda x: x[0].dot(x[1]),
    "linear": lambda x: F.linear(x[None], x, x[:, 0]),
    "outer": lambda x: torch.outer(x[0], x[1]),
    "embedding": lambda x: F.embedding(torch.tensor([[0, 3], [1, 1]]), x),
}


def flat(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def close(got, expected, exact, dtype):
    assert got.shape == expected.shape and got.dtype == expected.dtype
    if not got.dtype.is_floating_point:
        assert torch.equal(got, expected)
        return
    # no worse than eager against float64, but for one rounding
    eps = torch.finfo(got.dtype).eps
    rough = {torch.float64: 64, torch.float32: 64}.get(dtype, 4)
    scale = exact.abs().nan_to_num(0, 0, 0).clamp(min=1.0)
    allowed = (expected.double() - exact).abs().nan_to_num(0) * 2 + rough * eps * scale
    error = (got.double() - exact).abs()
    same = got.double() == expected.double()
    both_nan = got.isnan() & expected.isnan()
    assert bool((same | both_nan | (error <= allowed)).all()), (error - allowed).max()


def same_strides(a, b):
    pairs = zip(a.shape, a.stride(), b.stride(), strict=True)
    return a.numel() == 0 or all(n <= 1 or p == q for n, p, q in pairs)


def compare(function, x, needs_decomposing=True):
    expected = flat(function(x))
    exact = flat(function(x.double())) if x.dtype.is_floating_point else expected
    with Decomposing() as seen:
        got = flat(function(x))
    assert seen.decomposed or not needs_decomposing
    assert len(got) == len(expected)
    for g, e, r in zip(got, expected, exact, strict=True):
        close(g, e, r.double() if g.dtype.is_floating_point else r, x.dtype)
        assert same_strides(g, e), (g.stride(), e.stride())


def sample(dtype, layout):
    torch.manual_seed(0)
    x = (torch.rand(4, 6, dtype=torch.float64) * 0.9 + 0.05).to(dtype)
    return x.t().contiguous().t() if layout == "transposed" else x


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("name", sorted(UNARY))
def test_values(name, layout):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        if name == "prod" and dtype in HALF:
            continue  # eager rounds after every factor
        compare(UNARY[name], sample(dtype, layout), name not in ("square", "to_float"))


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("name", sorted(SHAPES))
def test_shapes(name, layout):
    for dtype in (torch.float32, torch.bfloat16):
        compare(SHAPES[name], sample(dtype, layout), name not in ("view",))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integers(dtype):
    x = torch.arange(1, 25).reshape(4, 6).remainder(5).to(dtype)
    calls = {
        "exp": torch.exp,
        "sigmoid": torch.sigmoid,
        "sum": torch.sum,
        "sum_dim": lambda y: y.sum(1),
        "any": lambda y: y.any(0),
        "all": lambda y: y.all(1),
        "cumsum": lambda y: y.cumsum(0),
        "add_float": lambda y: y + 1.5,
        "div": lambda y: y / 3,
        "compare": lambda y: y < 2.5,
        "where": lambda y: torch.where(y > 1, y, 7),
        "logical": lambda y: torch.logical_and(y, y - 1 if y.dtype != torch.bool else y),
        "mean_of_float": lambda y: y.float().mean(),
    }
    if dtype != torch.bool:
        calls |= {
            "floor": torch.floor,
            "floor_divide": lambda y: y // 3,
            "trunc": lambda y: torch.div(y, 2, rounding_mode="trunc"),
            "remainder": lambda y: y % 3,
            "square": lambda y: y**2,
            "bits": lambda y: (y & 3) | (y << 1) ^ ~y,
            "clamp": lambda y: y.clamp(1, 3),
            "max": lambda y: y.max(1),
            "amax": lambda y: y.amax(),
        }
    for name, call in calls.items():
        expected, (got, seen) = call(x), _through(call, x)
        assert seen.decomposed, name
        for g, e in zip(flat(got), flat(expected), strict=True):
            assert g.dtype == e.dtype and g.shape == e.shape, name
            assert torch.allclose(g.double(), e.double()), name


def _through(call, x):
    with Decomposing() as seen:
        return call(x), seen


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,)])
def test_edges(shape):
    calls = [
        lambda x: x.sum(),
        lambda x: x + 1,
        lambda x: x.softmax(-1),
        lambda x: x.log_softmax(0),
        lambda x: x.cumsum(0),
        lambda x: F.gelu(x) * x,
        lambda x: x.reshape(-1),
        lambda x: torch.stack([x, x]),
        lambda x: x.expand(2, *x.shape),
        lambda x: torch.where(x > 0, x, x.new_zeros(())),
        lambda x: torch.cat([x.reshape(-1), x.reshape(-1)]),
        lambda x: F.mse_loss(x, x * 2, reduction="sum"),
    ]
    x = torch.rand(shape)
    for call in calls:
        compare(call, x)


def test_zero_dim_operands_promote_as_numbers():
    x, zero_d = torch.ones(3, dtype=torch.bfloat16), torch.tensor(2.5, dtype=torch.float64)
    for call in (lambda: x + zero_d, lambda: zero_d * x, lambda: torch.maximum(x, zero_d)):
        expected = call()
        with Decomposing():
            got = call()
        assert got.dtype == expected.dtype == torch.bfloat16 and torch.equal(got, expected)


def test_images():
    torch.manual_seed(0)
    for memory_format in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 4, 12, 12).contiguous(memory_format=memory_format)
        calls = [
            lambda x: F.conv2d(x, torch.ones(6, 4, 3, 3), torch.ones(6), padding=1),
            lambda x: F.conv_transpose2d(x, torch.ones(4, 2, 3, 3), stride=2),
            lambda x: F.max_pool2d(x, 3, 2, 1),
            lambda x: F.avg_pool2d(x, 2, ceil_mode=True),
            lambda x: F.adaptive_avg_pool2d(x, 1),
            lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
            lambda x: F.interpolate(x, scale_factor=2),
            lambda x: F.interpolate(x, size=(7, 9)),
            lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
            lambda x: F.interpolate(x, size=(5, 30), mode="bilinear", align_corners=True),
            lambda x: F.batch_norm(x, torch.ones(4), torch.ones(4) * 2, torch.ones(4)),
            lambda x: F.batch_norm(x, None, None, training=True),
            lambda x: F.group_norm(x, 2, torch.arange(4.0)),
        ]
        for call in calls:
            expected = call(x)
            got, seen = _through(call, x)
            assert seen.decomposed
            assert torch.allclose(got, expected, atol=2e-5, rtol=1e-4)
            assert same_strides(got, expected), (got.shape, got.stride(), expected.stride())


def test_attention():
    q, k, v = (torch.randn(2, 4, 6, 8) for _ in range(3))
    mask = torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf"))
    for kw in ({}, {"is_causal": True}, {"attn_mask": mask}, {"scale": 0.2}):
        expected = F.scaled_dot_product_attention(q, k, v, **kw)
        with Decomposing() as seen:
            got = F.scaled_dot_product_attention(q, k, v, **kw)
        assert torch.allclose(got, expected, atol=1e-5) and seen.decomposed
        assert got.stride() == expected.stride()


def test_random_stays_with_torch_by_default():
    x = torch.ones(50)
    torch.manual_seed(1)
    expected = F.dropout(x, 0.3), torch.rand(3), torch.randn(3)
    torch.manual_seed(1)
    with Decomposing():
        got = F.dropout(x, 0.3), torch.rand(3), torch.randn(3)
    assert all(torch.equal(g, e) for g, e in zip(got, expected, strict=True))


def test_a_number_from_the_cpu_fills_a_tensor_elsewhere():
    x, number = torch.empty(3, device="meta"), torch.tensor(2.0)
    rule = decompositions()[torch.ops.aten.fill.Tensor]
    assert rule(x, number).device == x.device


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8])
@pytest.mark.parametrize("shape", [(32, 16, 8), (17, 40, 24)])
def test_products_of_small_integers(kind, shape):
    rows, inner, columns = shape
    limits = torch.iinfo(kind)
    a = torch.randint(limits.min, limits.max + 1, (rows, inner), dtype=kind)
    b = torch.randint(-128, 128, (inner, columns), dtype=torch.int8)
    with Decomposing():
        found = torch._int_mm(a, b)
    assert torch.equal(found, torch._int_mm(a, b))
