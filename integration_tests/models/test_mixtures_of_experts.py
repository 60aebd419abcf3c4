"""Mixtures of experts as libraries write them: one graph, eager's loss and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "num_experts_per_tok": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("Mixtral", {"num_local_experts": 4}),
        ("Phimoe", {"num_local_experts": 4}),
        ("GraniteMoe", {"num_local_experts": 4}),
    ],
)
def test_a_mixture_of_experts_is_one_graph(name: str, more: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SMALL, **more)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()

    def program(ids: Tensor) -> Tensor:
        loss: Tensor = model(input_ids=ids, labels=ids, use_cache=False).loss
        return loss

    compiled = flambeau.compile(program, backend="aot_eager")
    for _ in range(2):
        ids, found = torch.randint(0, 64, (2, 40)), []
        for fn in (program, compiled):
            model.zero_grad()
            loss = fn(ids)
            loss.backward()
            found.append((loss.detach(), [p.grad for p in model.parameters()]))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert (flambeau.report(compiled).graphs, flambeau.report(compiled).breaks) == (1, ())
