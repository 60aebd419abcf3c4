"""Graphs through the whole package, held to eager, in poisoned memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import CompiledGraph, Options
from tests.lowering.test_programs import CASES
from tests.poison import poisoned_memory
from torch import fx
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("poisoned_memory")
assert poisoned_memory  # the fixture is found by its name in this module

ATEN = torch.ops.aten
CHECKED = Options(verify=True)


def lowered(function: Callable[..., Any], inputs: list[torch.Tensor]) -> fx.GraphModule:
    return flambeau_prims.lower(fx.symbolic_trace(function), inputs)


def elsewhere(tensor: torch.Tensor) -> torch.Tensor:
    """The same view of a copy of the tensor's storage."""
    storage = tensor.untyped_storage().clone()
    layout = (tensor.storage_offset(), tensor.shape, tensor.stride())
    return torch.empty(0, dtype=tensor.dtype).set_(storage, *layout)


def run(
    function: Callable[..., Any],
    inputs: list[torch.Tensor],
    rtol: float = 2e-5,
    options: Options = CHECKED,
) -> CompiledGraph:
    """Compile, call twice on fresh inputs, compare values and strides with eager's."""
    compiled = flambeau_inductor.compile(lowered(function, inputs), inputs, options=options)
    for turn in range(2):
        fresh = [elsewhere(t) if turn else t for t in inputs]
        wanted = function(*fresh)
        wanted = wanted if isinstance(wanted, tuple | list) else (wanted,)
        boxed = list(fresh)
        results = compiled(boxed)
        assert boxed == []
        for want, got in zip(wanted, results, strict=True):
            assert want.stride() == got.stride()
            torch.testing.assert_close(got, want, rtol=rtol, atol=rtol, equal_nan=True)
    return compiled


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", CASES)
def test_programs_of_every_lowering(name: str):
    torch.manual_seed(0)
    function, make = CASES[name]
    run(function, list(make()))


def test_layer_norm_and_gelu_are_one_kernel():
    def function(x, w, b):
        return F.gelu(F.layer_norm(x, (64,), w, b))

    compiled = run(function, [torch.randn(50, 64), torch.randn(64), torch.randn(64)])
    assert compiled.report.kernels == 1


def test_layer_norm_backward():
    def function(grad, x, mean, rstd, w, b):
        return ATEN.native_layer_norm_backward(grad, x, [64], mean, rstd, w, b, [True, True, True])

    x, w, b = torch.randn(50, 64), torch.randn(64), torch.randn(64)
    _, mean, rstd = ATEN.native_layer_norm(x, [64], w, b, 1e-5)
    run(function, [torch.randn(50, 64), x, mean, rstd, w, b])


def test_cross_entropy_forward_and_backward():
    def forward(x, target):
        return F.cross_entropy(x, target)

    def backward(grad, logp, target, weight):
        g = ATEN.nll_loss_backward(grad, logp, target, None, 1, -100, weight)
        return ATEN._log_softmax_backward_data(g, logp, 1, torch.float32)

    x, target = torch.randn(37, 101), torch.randint(0, 101, (37,))
    run(forward, [x, target])
    run(backward, [torch.tensor(0.7), x.log_softmax(1), target, torch.tensor(37.0)])


def test_mlp_with_its_products_in_the_library():
    def function(x, w1, b1, w2):
        return F.silu(F.linear(x, w1, b1)) @ w2

    compiled = run(
        function, [torch.randn(9, 32), torch.randn(48, 32), torch.randn(48), torch.randn(48, 16)]
    )
    assert sum(compiled.report.externs.values()) == 2
    assert compiled.report.kernels == 1


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_convolution_batch_norm_relu(layout: torch.memory_format):
    def function(x, w, mean, var, gamma, beta):
        y = F.conv2d(x, w, padding=1)
        return F.relu(F.batch_norm(y, mean, var, gamma, beta))

    x = torch.randn(2, 3, 9, 9).to(memory_format=layout)
    w = torch.randn(8, 3, 3, 3).to(memory_format=layout)
    stats = [torch.randn(8), torch.rand(8) + 0.5, torch.randn(8), torch.randn(8)]
    compiled = run(function, [x, w, *stats], rtol=1e-4)
    assert compiled.report.externs == {"aten.convolution.default": 1}


def test_convolution_backward_gives_three_results():
    def function(grad, x, w):
        return ATEN.convolution_backward(
            grad, x, w, [8], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]
        )

    run(function, [torch.randn(2, 8, 9, 9), torch.randn(2, 3, 9, 9), torch.randn(8, 3, 3, 3)], 1e-4)


def test_attention():
    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    run(function, [torch.randn(2, 4, 17, 16) for _ in range(3)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype):
    def function(x, w):
        return torch.softmax(x * w, -1)

    run(function, [torch.randn(17, 40, dtype=dtype), torch.randn(40, dtype=dtype)], rtol=1e-2)


def test_an_index_out_of_range_raises_what_eager_raises():
    def function(table, index):
        return F.embedding(index, table) * 2

    table, index = torch.randn(10, 4), torch.tensor([1, 9])
    compiled = run(function, [table, index])
    with pytest.raises(IndexError, match="index out of range"):
        compiled([table, torch.tensor([1, 10])])
    with pytest.raises(IndexError, match="index out of range"):
        compiled([table, torch.tensor([-1, 2])])


def test_inputs_with_an_offset_and_strides():
    base = torch.randn(20, 30)
    run(lambda x, y: torch.tanh(x) + y, [base[3:9, 4:14], base.t()[5:11, :10]])
    run(lambda x: x.sum(0), [torch.randn(5, 1).expand(5, 7)])


def test_sizes_of_zero():
    run(lambda x: (x + 1, x.sum(), x.sum(1)), [torch.randn(4, 0)])


@pytest.mark.parametrize("threads", [1, 2])
def test_threads(threads: int):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        run(lambda x: torch.softmax(x, 1).sum(0), [torch.randn(600, 500)], rtol=1e-4)
    finally:
        torch.set_num_threads(before)


def test_several_kernels_that_begin_elsewhere_in_one_buffer():
    def function(x):
        steps = [x.select(1, k) for k in range(5)]
        state = steps[0]
        for step in steps[1:]:
            state = torch.mm(state, state).tanh() * step
        return state, x.roll(1, 1).flip(2), x.sum((0, 1))

    gm = lowered(function, [torch.randn(4, 5, 4)])
    compiled = flambeau_inductor.compile(gm, [torch.randn(4, 5, 4)], options=CHECKED)
    assert compiled.report.distinct_kernels < compiled.report.kernels
    for x in (torch.randn(4, 5, 4), elsewhere(torch.randn(4, 6, 4)[:, 1:].contiguous())):
        for got, want in zip(compiled([x]), function(x), strict=True):
            torch.testing.assert_close(got, want)


NO_NUMBER, ENDLESS = float("nan"), float("inf")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 1,
        lambda x: x / 1,
        lambda x: torch.addcmul(x, x, x),
        lambda x: x + complex(NO_NUMBER, 1),
        lambda x: x * complex(-0.0, ENDLESS),
    ],
)
def test_complex_numbers_times_one_and_infinite_ones(function: Callable[..., Any]) -> None:
    """One times an infinite number has a part that is none; constants keep both their parts."""
    x = torch.tensor([complex(1, -ENDLESS), complex(ENDLESS, 2), complex(1, 2), complex(0, -0.0)])
    compiled = flambeau_inductor.compile(lowered(function, [x]), [x], options=CHECKED)
    (given,) = compiled([x])
    parts = torch.view_as_real(given), torch.view_as_real(function(x))
    torch.testing.assert_close(*parts, equal_nan=True)
