"""Gradients: autograd above, the decompositions below it, against eager in float64."""

import pytest
import torch
import torch.nn.functional as F
from flambeau_prims.conformance import Decomposing

torch.manual_seed(0)
TARGET = torch.tensor([1, 0, 4, -100])
BOXES = torch.rand(4, 6, dtype=torch.float64)


def p(*shape):
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(shape, dtype=torch.float64, generator=generator)


ELEMENTWISE = {
    name: getattr(F, name)
    for name in "relu relu6 gelu silu mish elu selu hardswish hardsigmoid softplus logsigmoid "
    "leaky_relu hardtanh tanhshrink".split()
} | {
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "glu": lambda x: F.glu(x, -1),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.3], dtype=x.dtype)),
    "elu_inplace": lambda x: F.elu(x * 1.0, 0.5, inplace=True),
    "pow": lambda x: (x.abs() + 0.1) ** 2.5,
    "sqrt_log": lambda x: (x.abs() + 0.1).sqrt().log(),
    "atan2": lambda x: torch.atan2(x, x.cos()),
    "erf": torch.erf,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "where": lambda x: torch.where(x > 0, x * 2, x.exp()),
    "lerp": lambda x: torch.lerp(x, x.sin(), 0.7),
    "maximum": lambda x: torch.maximum(x, x.sin()),
}

STRUCTURED = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(0),
    "logsumexp": lambda x: x.logsumexp(1),
    "sum_mean": lambda x: x.sum(1) * x.mean(1),
    "var": lambda x: x.var(1) + x.std(1),
    "norm": lambda x: x.norm(dim=1),
    "amax": lambda x: x.amax(1),
    "max": lambda x: x.max(0).values,
    "prod": lambda x: x.prod(1),
    "cumsum": lambda x: x.cumsum(1),
    "sort": lambda x: x.sort(1).values * 2,
    "topk": lambda x: x.topk(2).values,
    "layer_norm": lambda x: F.layer_norm(x, (6,), p(6), p(6)),
    "layer_norm_2": lambda x: F.layer_norm(x, (4, 6)),
    "rms_norm": lambda x: F.rms_norm(x, (6,), p(6)),
    "group_norm": lambda x: F.group_norm(x.reshape(2, 4, 3), 2, p(4), p(4)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, p(6), p(6), training=True),
    "batch_norm_eval": lambda x: F.batch_norm(x, p(6), p(6).abs(), p(6), p(6)),
    "instance_norm": lambda x: F.instance_norm(x.reshape(2, 3, 4)),
    "cross_entropy": lambda x: F.cross_entropy(x, TARGET),
    "cross_entropy_sum": lambda x: F.cross_entropy(x, TARGET, p(6).abs(), reduction="sum"),
    "cross_entropy_none": lambda x: F.cross_entropy(x, TARGET, reduction="none"),
    "cross_entropy_smooth": lambda x: F.cross_entropy(x, TARGET, label_smoothing=0.1),
    "cross_entropy_2d": lambda x: F.cross_entropy(
        x.reshape(2, 3, 2, 2), torch.tensor([[[0, 1]] * 2] * 2)
    ),
    "nll_one": lambda x: F.nll_loss(x[0], torch.tensor(2)),
    "mse": lambda x: F.mse_loss(x, BOXES),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, BOXES, beta=0.3),
    "huber": lambda x: F.huber_loss(x, BOXES, delta=0.3, reduction="sum"),
    "bce": lambda x: F.binary_cross_entropy(x.sigmoid(), BOXES, p(6).abs()),
    "bce_logits": lambda x: F.binary_cross_entropy_with_logits(x, BOXES, pos_weight=p(6).abs()),
    "kl_div": lambda x: F.kl_div(x.log_softmax(1), BOXES, reduction="batchmean"),
    "l1": lambda x: F.l1_loss(x, BOXES),
    "embedding": lambda x: F.embedding(torch.tensor([[0, 3, 3], [1, 2, 0]]), x, padding_idx=1),
    "linear": lambda x: F.linear(x, p(5, 6), p(5)),
    "matmul": lambda x: x @ x.t(),
    "bmm": lambda x: torch.bmm(x.reshape(2, 3, 4), x.reshape(2, 4, 3)),
    "addmm": lambda x: torch.addmm(p(6), x, p(6, 6), beta=2, alpha=3),
    "slices": lambda x: x[1:3, ::2] * x[-1, 0],
    "select": lambda x: x[2] * x[:, 1].sum(),
    "index": lambda x: x[torch.tensor([0, 0, 2])],
    "gather": lambda x: x.gather(1, torch.tensor([[0, 1], [2, 2], [1, 0], [5, 5]])),
    "cat_split": lambda x: torch.cat([a * i for i, a in enumerate(x.split([1, 2, 3], 1))], 1),
    "stack_unbind": lambda x: torch.stack(x.unbind(0)[::-1]),
    "expand": lambda x: x[:, None].expand(4, 3, 6) * p(4, 3, 6),
    "repeat": lambda x: x.repeat(2, 2) * p(8, 12),
    "pad": lambda x: F.pad(x, (1, -1, 2, 0)),
    "flip_roll": lambda x: x.flip(1).roll(2, 0),
    "tril": lambda x: x.tril() * x,
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.5),
    "conv1d": lambda x: F.conv1d(x.reshape(2, 3, 4), p(5, 3, 2), p(5), padding=1),
    "conv2d": lambda x: F.conv2d(x.reshape(1, 2, 3, 4), p(4, 1, 2, 2), p(4), groups=2),
    "conv_t": lambda x: F.conv_transpose2d(x.reshape(1, 2, 3, 4), p(2, 3, 2, 2), stride=2),
    "max_pool": lambda x: F.max_pool2d(x.reshape(1, 2, 3, 4), 2, 1),
    "avg_pool": lambda x: F.avg_pool2d(x.reshape(1, 2, 3, 4), 2, 1, 1, count_include_pad=False),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x.reshape(1, 2, 3, 4), 1),
    "adaptive_3_2": lambda x: F.adaptive_avg_pool2d(x.reshape(1, 2, 3, 4), (3, 2)),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.reshape(1, 2, 3, 4)] * 3),
    "attention_causal": lambda x: F.scaled_dot_product_attention(
        *[x.reshape(1, 2, 3, 4)] * 3, is_causal=True
    ),
    "bf16_round_trip": lambda x: x.to(torch.float32).to(torch.float64) * 2,
}


def gradients(function, x, cotangent=None):
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    out = function(x)
    cotangent = p(*out.shape) if cotangent is None else cotangent
    (grad,) = torch.autograd.grad(out, x, cotangent.to(out.dtype))
    return out.detach(), grad


@pytest.mark.parametrize("name", sorted(ELEMENTWISE) + sorted(STRUCTURED))
def test_gradients(name):
    function = {**ELEMENTWISE, **STRUCTURED}[name]
    base = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for x in (base, base.t().contiguous().t()):
        expected = gradients(function, x)
        with Decomposing() as seen:
            got = gradients(function, x)
        assert seen.decomposed
        for g, e in zip(got, expected, strict=True):
            assert g.shape == e.shape and g.dtype == e.dtype
            torch.testing.assert_close(g, e, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", sorted(ELEMENTWISE))
def test_kinks(name):
    """At 0 and at the corners the one-sided derivatives are eager's."""
    x = torch.tensor([-3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0, 20.0], dtype=torch.float64)
    cotangent = torch.ones(10 if name != "glu" else 5, dtype=torch.float64)
    expected = gradients(ELEMENTWISE[name], x, cotangent)
    with Decomposing():
        got = gradients(ELEMENTWISE[name], x, cotangent)
    for g, e in zip(got, expected, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-7, atol=1e-8, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["gelu", "silu", "softmax", "layer_norm_2", "sum_mean", "tanh"])
def test_half_precision_is_no_worse_than_eager(name, dtype):
    function = {**ELEMENTWISE, **STRUCTURED}[name]
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(5)).to(dtype)
    exact = gradients(function, x.double())
    eager = gradients(function, x)
    with Decomposing():
        got = gradients(function, x)
    for g, e, r in zip(got, eager, exact, strict=True):
        assert g.dtype == e.dtype == dtype
        ours = (g.double() - r).square().mean().sqrt()
        theirs = (e.double() - r).square().mean().sqrt()
        assert ours <= 2 * theirs + torch.finfo(dtype).eps


def test_running_statistics_are_written():
    def run():
        bn = torch.nn.BatchNorm2d(3, momentum=0.3)
        x = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(1))
        bn(x).square().sum().backward()
        return bn.running_mean, bn.running_var, bn.weight.grad, bn.bias.grad

    expected = run()
    with Decomposing() as seen:
        got = run()
    assert any("batch_norm" in name for name in seen.decomposed)
    for g, e in zip(got, expected, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-4)
        assert e.abs().sum() > 0


def test_ignored_targets_give_no_nan():
    """With every target ignored the loss is 0 / 0, but the gradient is 0, as in eager."""
    x = torch.randn(2, 3)
    target = torch.tensor([-100, -100])

    def loss(y):
        return F.cross_entropy(y, target)

    expected = gradients(loss, x, torch.ones(()))
    with Decomposing():
        got = gradients(loss, x, torch.ones(()))
    assert got[0].isnan() and expected[0].isnan()
    torch.testing.assert_close(got[1], expected[1], equal_nan=True)
