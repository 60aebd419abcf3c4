"""Programs with symbolic sizes: one compile of both halves, held to eager at many sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau_prims
import pytest
import torch
from flambeau_aot import NotYetSymbolic, Options, compile, run_as_is
from flambeau_aot._torch_compat import modes
from flambeau_aot.partition.budget import min_cut_partition
from flambeau_aot.partition.mincut import save_all
from flambeau_aot.sizes import sized
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv


def captured(function: Callable[..., Any], examples: Sequence[Tensor]) -> fx.GraphModule:
    """The function as a graph whose inputs have symbolic sizes."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    mode.static_shapes = False
    gm = fx.symbolic_trace(function)
    places = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node, example in zip(places, examples, strict=True):
        node.meta["val"] = mode.from_tensor(example, static_shapes=False)
    return gm


def environment(gm: fx.GraphModule) -> ShapeEnv:
    value = next(iter(gm.graph.nodes)).meta["val"]
    return value.fake_mode.shape_env


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "product": lambda x, w: (torch.relu(x @ w).sum(0),),
    "softmax": lambda x, w: (torch.softmax(x @ w, -1), x.mean(1)),
    "views": lambda x, w: (x.view(-1), x.t(), (x * 2).view(-1)),
    "normalised": lambda x, w: (torch.nn.functional.layer_norm(x, (4,)) @ w,),
    "joined": lambda x, w: (torch.cat([x, x * 2]).cumsum(0) @ w,),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("partition", [min_cut_partition, save_all])
@pytest.mark.parametrize("training", [False, True])
def test_one_compile(name: str, partition: Any, training: bool) -> None:
    function = FUNCTIONS[name]
    torch.manual_seed(0)

    def inputs(rows: int) -> list[Tensor]:
        return [
            torch.randn(rows, 4, requires_grad=training),
            torch.randn(4, 3, requires_grad=training),
        ]

    example = inputs(5)
    gm = captured(function, example)
    call = compile(gm, example, run_as_is, partition=partition)
    for rows in (5, 2, 7, 64, 3):
        given = inputs(rows)
        got, wanted = call(*given), function(*given)
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other)
            assert one.stride() == other.stride()
        if training:
            found = [
                torch.autograd.grad(sum((r * r).sum() for r in results), given, allow_unused=True)
                for results in (got, wanted)
            ]
            torch.testing.assert_close(found[0], found[1])


def test_nothing_is_assumed() -> None:
    example = [torch.randn(5, 4, requires_grad=True), torch.randn(4, 3, requires_grad=True)]
    gm = captured(lambda x, w: (torch.softmax(torch.relu(x @ w), -1).sum(0),), example)
    compile(gm, example, run_as_is)
    assert environment(gm).guards == []


def test_backward_is_compiled_ahead() -> None:
    kinds: list[str] = []

    def compiler(gm: fx.GraphModule, examples: list[Any], info: Any) -> Any:
        kinds.append(info.kind)
        assert sum(isinstance(example, torch.SymInt) for example in examples) == 2
        return run_as_is(gm, examples, info)

    example = [torch.randn(5, 4, requires_grad=True)]
    gm = captured(lambda x: (torch.tanh(x).sum(),), example)
    compile(gm, example, compiler, options=Options(compile_backward="lazy"))
    assert kinds == ["forward", "backward"]


def test_memory_that_is_shared_later() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        x.add_(1)
        return (x + y,)

    example = [torch.randn(5), torch.randn(5)]
    call = compile(captured(function, example), example, run_as_is)
    for size in (5, 9, 9, 3):
        whole = torch.randn(size + 1)
        again = whole.clone()
        torch.testing.assert_close(call(whole[:-1], whole[1:]), function(again[:-1], again[1:]))
        torch.testing.assert_close(whole, again)


def test_sizes_as_text() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    mode.static_shapes = False
    a, b = mode.from_tensor(torch.randn(5, 4), static_shapes=False).shape
    symbols = [a.node.expr, b.node.expr]
    made = sized(([a * b + 1, "kept"], {"half": a // 2}, (b % 3,)), symbols)
    assert made((7, 10)) == ([71, "kept"], {"half": 3}, (1,))
    with pytest.raises(NotYetSymbolic, match="not a size of an input"):
        sized(a * b, symbols[:1])


BESIDE_FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "softshrink": torch.nn.functional.softshrink,
    "hardshrink": torch.nn.functional.hardshrink,
    "multi_margin_loss": lambda x: torch.nn.functional.multi_margin_loss(
        x.reshape(-1, 3), torch.zeros(x.numel() // 3, dtype=torch.int64)
    ),
    "multilabel_margin_loss_forward": lambda x: torch.nn.functional.multilabel_margin_loss(
        x.reshape(-1, 3), torch.zeros_like(x.reshape(-1, 3), dtype=torch.int64)
    ),
    "native_batch_norm": lambda x: torch.native_batch_norm(
        x.reshape(1, 1, -1), None, None, None, None, True, 0.1, 1e-5
    )[0],
    **{
        f"{name}{n}d": lambda x, n=n, mode=mode: torch.nn.functional.interpolate(
            x.nan_to_num(0.2, 1.0, -1.0).reshape(1, 3, -1)[(..., *[None] * (n - 1))],
            size=[5] * n,
            mode=mode,
        )
        for name, mode, dims in (
            ("upsample_nearest", "nearest", (1, 2, 3)),
            ("_upsample_nearest_exact", "nearest-exact", (1, 2, 3)),
            ("upsample_bilinear", "bilinear", (2,)),
            ("upsample_bicubic", "bicubic", (2,)),
        )
        for n in dims
    },
}
"""Calls of operators with kernels of their own beside which torch has a Python form."""
OF_A_LIBRARY = {"cudnn_batch_norm"}


def test_operators_beside_forms_are_all_called() -> None:
    found = {operator.name().split("::")[1] for operator in modes.operators_with_python_forms()}
    assert found == {*BESIDE_FORMS, *OF_A_LIBRARY}


@pytest.mark.parametrize("name", BESIDE_FORMS)
def test_operators_with_kernels_are_eagers_at_open_sizes(name: str) -> None:
    """By their own values and gradients: at NaN, infinities and zeros other formulas differ."""
    function = BESIDE_FORMS[name]
    special = [0.3, -0.3, 0.0, -0.0, float("nan"), float("inf"), -float("inf"), 0.5, -0.5]
    # as many as vectors of eager's hold: an open size is taken for one of those
    x = torch.tensor([*special, 2.0, -2.0, 1e-3] * 4, requires_grad=True)
    gm = captured(lambda x: (function(x),), [x])
    (mine,) = compile(gm, [x], run_as_is, decompositions=flambeau_prims.decompositions())(x)
    eager = function(x)
    grad = torch.linspace(-1, 1, eager.numel()).reshape(eager.shape)
    torch.testing.assert_close(mine, eager, equal_nan=True)
    ours, theirs = (torch.autograd.grad(y, x, grad)[0] for y in (mine, eager))
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    # nothing is traced: the forms are where they were
    beside = modes.operators_with_python_forms()
    assert all(torch._C.DispatchKey.Autograd in operator.py_kernels for operator in beside)


LARGER: dict[str, Callable[[Tensor], Tensor]] = {
    f"{n}d, {mode}": lambda x, n=n, mode=mode: torch.nn.functional.interpolate(
        x.reshape(1, 2, -1)[(..., *[None] * (n - 1))], scale_factor=1.25, mode=mode
    )
    for n, mode in ((1, "linear"), (2, "bilinear"), (2, "nearest"), (3, "nearest-exact"))
}
"""Images that eager leaves as they are, whatever the factor, where a size stays the same."""


@pytest.mark.parametrize("name", [*BESIDE_FORMS, *LARGER])
def test_operators_with_kernels_are_called_without_decompositions_too(name: str) -> None:
    function = (BESIDE_FORMS | LARGER)[name]
    example = torch.randn(30)
    call = compile(captured(lambda x: (function(x),), [example]), [example], run_as_is)
    for size in (30, 6, 18):
        x = torch.linspace(-1, 1, size)
        torch.testing.assert_close(call(x), (function(x),))


RESIZED = {
    "linear1d": "linear",
    "bilinear2d": "bilinear",
    "bicubic2d": "bicubic",
    "trilinear3d": "trilinear",
    **{f"nearest{n}d": "nearest" for n in (1, 2, 3)},
    **{f"nearest_exact{n}d": "nearest-exact" for n in (1, 2, 3)},
}
"""Modes of resampling, by their operators."""


def test_operators_that_resize_are_all_called() -> None:
    found = {each.name().split("upsample_")[1] for each in modes.resizing_operators().values()}
    assert {name for name in found if not name.endswith("_aa")} == {*RESIZED}


@pytest.mark.sweep(5)
@pytest.mark.parametrize("by", [{"scale_factor": 2.0}, {"size": 5}], ids=str)
@pytest.mark.parametrize("name", RESIZED)
def test_images_resized_by_factors_are_eagers_at_open_sizes(name: str, by: dict) -> None:
    """What is infinite or no number shows another formula."""
    rank = int(name[-2])
    choices = {"mode": RESIZED[name], **by}
    for fill in (float("inf"), 0.5):
        rows = [fill if n % 7 == 3 else 0.1 * n for n in range(24)]
        x = torch.tensor(rows).reshape(1, 6, 4)[(..., *[None] * (rank - 1))].requires_grad_()
        gm = captured(lambda x: (torch.nn.functional.interpolate(x, **choices),), [x])
        call = compile(gm, [x], run_as_is, decompositions=flambeau_prims.decompositions())
        for given in (x, x.detach()[..., :3].clone().requires_grad_()):
            (mine,), eager = call(given), torch.nn.functional.interpolate(given, **choices)
            torch.testing.assert_close(mine, eager, equal_nan=True)
            assert mine.stride() == eager.stride()
            grad = torch.linspace(-1, 1, eager.numel()).reshape(eager.shape)
            ours, theirs = (torch.autograd.grad(y, given, grad)[0] for y in (mine, eager))
            torch.testing.assert_close(ours, theirs, equal_nan=True)
    assert torch._C.DispatchKey.Autograd in torch.ops.aten.upsample_linear1d.vec.py_kernels


def test_a_round_trip_by_a_copy_of_halved_sizes_stays() -> None:
    """Twice the half of an open size is not its expression: a reshape there may still be a copy."""
    table = flambeau_prims.decompositions()
    example = [torch.randn(3, 4, 5, 2)]
    call = compile(
        captured(lambda x: (torch.channel_shuffle(x, 2),), example),
        example,
        run_as_is,
        decompositions=table,
    )
    for channels in (4, 6, 10):
        x = torch.randn(5, channels, 7, 4)
        torch.testing.assert_close(call(x)[0], torch.channel_shuffle(x, 2), rtol=0, atol=0)
