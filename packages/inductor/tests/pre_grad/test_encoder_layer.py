"""Encoder layers are written out where no mask is, and compute the same."""

from __future__ import annotations

import pytest
import torch
from flambeau_inductor import prepare
from flambeau_inductor._torch_compat import encoder_layer
from flambeau_inductor.passes.rewriter import rewrite_module
from flambeau_inductor.pre_grad.attention import RULES, layer_by_parts
from torch import Tensor, fx, nn


def captured(layer: nn.TransformerEncoderLayer, x: Tensor, mask: Tensor | None) -> fx.GraphModule:
    """The graph that capture makes of a call of `layer` in inference."""
    graph = fx.Graph()
    attention = layer.self_attn
    tensors = (
        x,
        *(attention.in_proj_weight, attention.in_proj_bias),
        *(attention.out_proj.weight, attention.out_proj.bias),
        *(layer.norm1.weight, layer.norm1.bias, layer.norm2.weight, layer.norm2.bias),
        *(layer.linear1.weight, layer.linear1.bias, layer.linear2.weight, layer.linear2.bias),
    )
    nodes = []
    for position, value in enumerate(tensors):
        nodes.append(graph.placeholder(f"a{position}"))
        nodes[-1].meta["val"] = value.detach()
    gelu = layer.activation_relu_or_gelu == 2
    settings = (gelu, layer.norm_first, layer.norm1.eps)
    heads = (attention.embed_dim, attention.num_heads)
    ends = (mask, None if mask is None else 1)
    args = (nodes[0], *heads, *nodes[1:5], *settings, *nodes[5:], *ends)
    graph.output((graph.call_function(encoder_layer, args),))
    return fx.GraphModule(nn.Module(), graph)


def layer_of(activation: str, norm_first: bool) -> nn.TransformerEncoderLayer:
    layer = nn.TransformerEncoderLayer(
        16, 4, 24, activation=activation, norm_first=norm_first, batch_first=True
    )
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer.eval()


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_the_parts_compute_what_the_operator_does(activation: str, norm_first: bool) -> None:
    layer, x = layer_of(activation, norm_first), torch.randn(3, 5, 16)
    with torch.no_grad():
        want = layer(x)
        gm = captured(layer, x, None)
        inputs = [x, *(n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")[1:])]
        torch.testing.assert_close(gm(*inputs)[0], want)
        assert prepare(gm)["open_encoder_layers"] == 1
        assert gm.graph.find_nodes(op="call_function", target=layer_by_parts)
        torch.testing.assert_close(gm(*inputs)[0], want)


def test_a_layer_with_a_mask_is_left_alone() -> None:
    layer, x = layer_of("relu", False), torch.randn(3, 5, 16)
    assert rewrite_module(captured(layer, x, torch.zeros(3, 5, dtype=torch.bool)), RULES) == 0
