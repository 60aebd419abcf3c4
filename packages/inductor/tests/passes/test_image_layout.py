"""Channels-last where it pays and cannot be seen."""

from __future__ import annotations

import torch
from flambeau_inductor import Options, prepare
from flambeau_inductor.passes.image_layout import channels_last
from torch import Tensor, fx, nn


def network(*, dense: int = 0, image_out: bool = False, viewed: bool = False) -> fx.GraphModule:
    """Two depthwise and two pointwise convolutions (and `dense` others), pooled."""
    root, graph = nn.Module(), fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.randn(2, 8, 6, 6)
    here = x
    shapes = [(8, 1, 3, 3), (8, 8, 1, 1)] * 2 + [(8, 8, 3, 3)] * dense
    for number, shape in enumerate(shapes):
        root.register_buffer(f"w{number}", torch.randn(shape))
        weight = graph.get_attr(f"w{number}")
        weight.meta["val"] = getattr(root, f"w{number}")
        groups, padding = 8 // shape[1], shape[2] // 2
        here = graph.call_function(torch.conv2d, (here, weight, None, 1, padding, 1, groups))
        here.meta["val"] = x.meta["val"]
        here = graph.call_function(torch.relu, (here,))
        here.meta["val"] = x.meta["val"]
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


def test_left_alone() -> None:
    cases = {
        "dense convolutions": network(dense=4),
        "an image is returned": network(image_out=True),
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
