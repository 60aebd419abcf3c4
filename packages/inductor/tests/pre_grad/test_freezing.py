"""Folded batch norms give eager's numbers; what may change or be trained is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor.pre_grad.convolutions import fold_batch_norms
from torch import Tensor, fx, nn

Maps = nn.Conv1d | nn.Conv2d | nn.Linear
FUNCTIONS: dict[type[nn.Module], Any] = {
    nn.Conv1d: torch.conv1d,
    nn.Conv2d: torch.conv2d,
    nn.Linear: F.linear,
}


class Block(nn.Module):
    """A map, a norm with statistics of its own, an activation in place."""

    def __init__(self, before: Maps, norm: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        super().__init__()
        self.before, self.norm = before, norm
        assert norm.running_mean is not None and norm.running_var is not None
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.1, 3.0)
        if norm.affine:
            norm.weight.data.normal_()
            norm.bias.data.normal_()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.before(x))
        F.relu(y, inplace=True)
        return y * 2


BLOCKS: dict[str, tuple[Callable[[], Block], tuple[int, ...]]] = {
    "conv2d": (lambda: Block(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5)), (2, 3, 8, 8)),
    "no bias": (lambda: Block(nn.Conv2d(3, 5, 3, bias=False), nn.BatchNorm2d(5)), (2, 3, 8, 8)),
    "plain": (lambda: Block(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5, affine=False)), (2, 3, 8, 8)),
    "grouped": (lambda: Block(nn.Conv2d(4, 8, 3, groups=4), nn.BatchNorm2d(8)), (2, 4, 8, 8)),
    "conv1d": (lambda: Block(nn.Conv1d(3, 5, 3), nn.BatchNorm1d(5)), (2, 3, 8)),
    "linear": (lambda: Block(nn.Linear(3, 5), nn.BatchNorm1d(5)), (4, 3)),
}


def captured(block: Block, *, twice: bool = False, given: bool = False) -> fx.GraphModule:
    """The graph that capture makes of a call; `twice`: the map's result is read once more;
    `given`: the statistics are inputs."""
    graph = fx.Graph()
    x = graph.placeholder("x")

    def attribute(name: str) -> Any:
        value: Any = block
        for part in name.split("."):
            value = getattr(value, part)
        return None if value is None else graph.get_attr(name)

    maps = [attribute("before.weight"), attribute("before.bias")]
    if isinstance(block.before, nn.Linear):
        made = graph.call_function(F.linear, (x, *maps))
    else:
        c = block.before
        settings = (c.stride, c.padding, c.dilation, c.groups)
        made = graph.call_function(FUNCTIONS[type(c)], (x, *maps, *settings))
    names = ("running_mean", "running_var", "weight", "bias")
    parts = [attribute(f"norm.{name}") for name in names]
    if given:
        parts[:2] = [graph.placeholder("mean"), graph.placeholder("var")]
    settings = (block.training, 0.1, block.norm.eps)
    norm = graph.call_function(F.batch_norm, (made, *parts, *settings))
    graph.call_function(F.relu, (norm,), {"inplace": True})
    total = graph.call_function(torch.mul, (norm, 2))
    graph.output((total, made) if twice else total)
    return fx.GraphModule(block, graph)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("training", [False, True])
def test_values(name: str, training: bool) -> None:
    make, shape = BLOCKS[name]
    module = make().train(training)
    gm, x = captured(module), torch.randn(shape)
    with torch.no_grad():
        assert fold_batch_norms(gm) == (0 if training else 1)
        if training:
            return
        torch.testing.assert_close(gm(x), module(x), rtol=1e-4, atol=1e-5)
    assert not any("batch_norm" in str(n.target) for n in gm.graph.nodes)


def test_gradients_on_nothing_is_frozen() -> None:
    gm = captured(BLOCKS["conv2d"][0]().eval())
    assert torch.is_grad_enabled()
    assert fold_batch_norms(gm) == 0


@pytest.mark.parametrize("where", ["twice", "given"])
def test_what_is_read_elsewhere_or_given_is_left_alone(where: str) -> None:
    gm = captured(BLOCKS["conv2d"][0]().eval(), **{where: True})
    with torch.no_grad():
        assert fold_batch_norms(gm) == 0
