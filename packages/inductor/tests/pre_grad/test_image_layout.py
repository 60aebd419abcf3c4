"""Channels-last where it pays and cannot be seen."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from flambeau_inductor import Options, prepare
from flambeau_inductor.pre_grad.image_layout import channels_last
from torch import Tensor, fx, nn
from torch._subclasses import FakeTensorMode


def network(
    *, dense: int = 0, cheap: int = 2, image_out: bool = False, viewed: bool = False
) -> fx.GraphModule:
    """So many depthwise and pointwise convolutions (and `dense` others), pooled."""
    root, graph = nn.Module(), fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.randn(2, 8, 6, 6)
    here = x
    shapes = [(8, 1, 3, 3), (8, 8, 1, 1)] * cheap + [(8, 8, 3, 3)] * dense
    for number, shape in enumerate(shapes):
        root.register_buffer(f"w{number}", torch.randn(shape))
        weight = graph.get_attr(f"w{number}")
        weight.meta["val"] = getattr(root, f"w{number}")
        groups, padding = 8 // shape[1], shape[2] // 2
        here = graph.call_function(torch.conv2d, (here, weight, None, 1, padding, 1, groups))
        here.meta["val"] = x.meta["val"].clone()
        here = graph.call_function(torch.relu, (here,))
        here.meta["val"] = x.meta["val"].clone()
    if viewed:
        here = graph.call_method("view", (here, 2, -1))
        here.meta["val"] = torch.randn(2, 288)
    elif not image_out:
        here = graph.call_method("mean", (here, (2, 3)))
        here.meta["val"] = torch.randn(2, 8)
    graph.output((here,))
    return fx.GraphModule(root, graph)


def test_values_stay_and_images_are_channels_last() -> None:
    gm, x = network(), torch.randn(2, 8, 6, 6)
    (want,) = gm(x)
    assert channels_last(gm) == 4
    seen: list[Tensor] = []

    class Watch(fx.Interpreter):
        def call_function(self, target: object, args: tuple[Tensor, ...], kwargs: object) -> object:
            seen.append(args[0])
            return super().call_function(target, args, kwargs)  # type: ignore[arg-type]

    (found,) = Watch(gm).run(x)
    torch.testing.assert_close(found, want)
    assert len(seen) == 8
    assert all(t.is_contiguous(memory_format=torch.channels_last) for t in seen)


def orders(gm: fx.GraphModule) -> list[torch.memory_format]:
    """What the calls of `contiguous` ask for."""
    return [
        n.kwargs["memory_format"]
        for n in gm.graph.find_nodes(op="call_method", target="contiguous")
    ]


def test_a_returned_image_keeps_its_strides() -> None:
    gm, x = network(image_out=True), torch.randn(2, 8, 6, 6)
    (want,) = gm(x)
    assert channels_last(gm) == 4
    (found,) = gm(x)
    torch.testing.assert_close(found, want)
    assert found.stride() == want.stride() and want.is_contiguous()


def test_dense_convolutions_that_move_more_image_than_weight() -> None:
    gm, x = network(dense=3, cheap=0), torch.randn(2, 8, 6, 6)
    middle = gm.graph.find_nodes(op="call_function", target=torch.conv2d)[1]
    middle.args[1].meta["val"] = torch.randn(200, 8, 3, 3)  # type: ignore[union-attr]
    (want,) = gm(x)
    whole = copy.deepcopy(gm)
    with torch.no_grad():
        assert channels_last(gm) == 2
        assert prepare(whole, Options(freezing=True))["channels_last"] == 3
    last, rows = torch.channels_last, torch.contiguous_format
    assert orders(gm) == [last, rows, last, rows]  # what is returned, at the end
    torch.testing.assert_close(gm(x)[0], want)


def test_dense_convolutions_in_training_are_left_alone() -> None:
    assert channels_last(network(dense=3, cheap=0)) == 0


def test_dense_convolutions_beside_group_norms_are_left_alone() -> None:
    gm = network(dense=3, cheap=0)
    relu = gm.graph.find_nodes(op="call_function", target=torch.relu)[0]
    relu.target, relu.args = torch.nn.functional.group_norm, (relu.args[0], 2)
    with torch.no_grad():
        assert channels_last(gm) == 0


def on_a_gpu(gm: fx.GraphModule, dtype: torch.dtype = torch.bfloat16) -> fx.GraphModule:
    """The same graph on fake values of a GPU."""
    with FakeTensorMode():
        for node in gm.graph.nodes:
            if "val" in node.meta:
                shape = node.meta["val"].shape
                node.meta["val"] = torch.empty(shape, dtype=dtype, device="cuda")
    return gm


@pytest.mark.parametrize(
    ("dtype", "count"), [(torch.bfloat16, 5), (torch.float16, 5), (torch.float32, 0)]
)
def test_on_a_gpu_all_convolutions_of_half_precision(dtype: torch.dtype, count: int) -> None:
    gm = on_a_gpu(network(dense=3, cheap=1), dtype)
    assert channels_last(gm) == count
    returned = [torch.contiguous_format] * bool(count)
    assert orders(gm) == [torch.channels_last] * count + returned


@pytest.mark.parametrize(
    ("norm", "groups", "count"),
    [
        (torch.nn.functional.group_norm, 2, 3),
        (torch.nn.functional.group_norm, 4, 0),  # two channels of eight, four bytes
        (torch.nn.functional.instance_norm, None, 0),
    ],
)
def test_on_a_gpu_norms_of_several_channels_take_images_of_any_order(
    norm: Callable[..., Tensor], groups: int | None, count: int
) -> None:
    gm = on_a_gpu(network(dense=3, cheap=0))
    relu = gm.graph.find_nodes(op="call_function", target=torch.relu)[0]
    relu.target, relu.args = norm, (relu.args[0], groups)
    assert channels_last(gm) == count
    named = on_a_gpu(network(dense=3, cheap=0))
    relu = named.graph.find_nodes(op="call_function", target=torch.relu)[0]
    relu.target, relu.args = norm, relu.args[:1]
    relu.kwargs = {} if groups is None else {"num_groups": groups}
    assert channels_last(named) == count


def test_gradients_of_weights_stay_row_major() -> None:
    gm = network(dense=1, cheap=3)
    weights = []
    for node in gm.graph.find_nodes(op="get_attr"):
        node.meta["val"].requires_grad_()
        weights.append(node.meta["val"])
    x = torch.randn(2, 8, 6, 6)
    wanted = torch.autograd.grad(gm(x)[0].square().sum(), weights)
    assert channels_last(gm) == 7
    assert len(gm.graph.find_nodes(op="call_method", target="reshape")) == 2  # of one weight
    found = torch.autograd.grad(gm(x)[0].square().sum(), weights)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    assert all(each.is_contiguous() for each in found)


def test_left_alone() -> None:
    transposed = network(image_out=True)
    (output,) = transposed.graph.find_nodes(op="output")
    output.all_input_nodes[0].meta["val"] = torch.randn(2, 8, 6, 6).transpose(2, 3)
    cases = {
        "dense convolutions": network(dense=4),
        "an image is returned in another order": transposed,
        "a view asks for strides": network(viewed=True),
    }
    trained = network()
    next(iter(trained.graph.nodes)).meta["val"].requires_grad_()
    cases["the image has a gradient"] = trained
    assert {name: channels_last(gm) for name, gm in cases.items()} == dict.fromkeys(cases, 0)


def test_the_option_and_the_name_of_the_pass_turn_it_off() -> None:
    assert prepare(network())["channels_last"] == 4
    assert "channels_last" not in prepare(network(), Options(channels_last=False))
    assert "channels_last" not in prepare(network(), Options(skip_passes=("channels_last",)))
    assert prepare(network(), Options(freezing=True))["fold_batch_norms"] == 0
