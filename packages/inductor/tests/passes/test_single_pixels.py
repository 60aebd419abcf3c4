"""Convolutions of images of one pixel."""

from __future__ import annotations

import flambeau_inductor
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor import Options
from flambeau_inductor.passes.image_layout import channels_last
from flambeau_inductor.passes.single_pixels import multiply_single_pixels
from torch import Tensor

from tests.passes.test_fused_attention import captured


def excited(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor) -> Tensor:
    gate = F.adaptive_avg_pool2d(x, 1)
    gate = torch.relu(torch.conv2d(gate, w1, b1, (1, 1), (0, 0), (1, 1), 1))
    return x * torch.sigmoid(torch.conv2d(gate, w2, padding="valid"))


def weights() -> list[Tensor]:
    shapes = [(3, 12, 5, 5), (6, 12, 1, 1), (6,), (12, 6, 1, 1)]
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def test_values_gradients_and_strides_stay() -> None:
    inputs = weights()
    gm = captured(excited, *inputs)
    wanted = excited(*inputs)
    gradient = torch.randn_like(wanted)
    grads = torch.autograd.grad(wanted, inputs, gradient)
    assert multiply_single_pixels(gm, ("cpu",)) == 2
    targets = [n.target for n in gm.graph.nodes]
    assert targets.count(F.linear) == 2 and torch.conv2d not in targets
    found = gm(*inputs)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(torch.autograd.grad(found, inputs, gradient), grads)


@pytest.mark.parametrize(
    ("image", "weight", "more"),
    [
        ((2, 8, 3, 3), (4, 8, 1, 1), ()),
        ((2, 8, 1, 1), (4, 8, 3, 3), (None, 1, 1)),
        ((2, 8, 1, 1), (8, 1, 1, 1), (None, 1, 0, 1, 8)),
        ((2, 8, 1, 1), (4, 8, 1, 1), (None, 1, 1)),
        ((8, 1, 1), (4, 8, 1, 1), ()),
    ],
)
def test_any_other_convolution_stays(image: tuple[int, ...], weight: tuple[int, ...], more) -> None:
    def one(x: Tensor, w: Tensor) -> Tensor:
        return torch.conv2d(x, w, *more)

    gm = captured(one, torch.randn(image), torch.randn(weight))
    assert multiply_single_pixels(gm, ("cpu",)) == 0


def test_on_a_gpu_only_and_images_may_still_be_reordered() -> None:
    inputs = weights()
    assert multiply_single_pixels(captured(excited, *inputs)) == 0
    gm = captured(excited, *inputs)
    assert flambeau_inductor.prepare(gm, Options())["multiply_single_pixels"] == 0

    def beside(x: Tensor, w: Tensor, w1: Tensor, b1: Tensor, w2: Tensor) -> Tensor:
        return excited(torch.conv2d(x, w, None, 1, 0, 1, 12), w1, b1, w2).mean()

    still = [each.detach() for each in inputs]
    gm = captured(beside, still[0], torch.randn(12, 1, 1, 1), *still[1:])
    assert multiply_single_pixels(gm, ("cpu",)) == 2
    assert channels_last(gm) == 1
