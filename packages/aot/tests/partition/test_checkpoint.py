"""Regions under torch.utils.checkpoint: what is saved, what runs twice, what derivatives are."""

from functools import partial

import flambeau_aot as aot
import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)


def block(x, w):
    return F.gelu(F.layer_norm(x @ w, (16,))) @ w.t()


def plain(x, *weights):
    for w in weights:
        x = x + block(x, w)
    return x.square().mean()


def regions(x, *weights, **settings):
    for w in weights:
        x = x + checkpoint(block, x, w, use_reentrant=False, **settings)
    return x.square().mean()


def save_products(ctx, func, *args, **kwargs):
    products = (torch.ops.aten.mm.default,)
    return CheckpointPolicy.MUST_SAVE if func in products else CheckpointPolicy.PREFER_RECOMPUTE


selective = partial(
    regions, context_fn=partial(create_selective_checkpoint_contexts, save_products)
)


def inputs(depth=4):
    torch.manual_seed(0)
    weights = [(torch.randn(16, 16) / 4).requires_grad_() for _ in range(depth)]
    return [torch.randn(64, 16, requires_grad=True), *weights]


def compiled(fn, **options):
    values = inputs()
    call = aot.aot_function(fn, aot.run_as_is, options=aot.Options(**options))
    grads = torch.autograd.grad(call(*values), values)
    for one, other in zip(grads, torch.autograd.grad(plain(*values), values), strict=True):
        torch.testing.assert_close(one, other)
    (entry,) = call.compiled.values()
    return entry


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_region_runs_twice_and_saves_its_inputs_only(share) -> None:
    free, again = compiled(plain), compiled(regions, recompute_share=share)
    assert again.report.recomputed.count("aten.mm.default") >= 3
    assert "aten.mm.default" not in free.report.recomputed
    activation = 64 * 16 * 4
    assert again.report.saved_bytes <= 5 * activation < free.report.saved_bytes


def test_a_policy_that_saves_products() -> None:
    entry = compiled(selective)
    assert "aten.mm.default" not in entry.report.recomputed
    assert "aten.gelu.default" in entry.report.recomputed


def test_derivatives_of_a_region_are_refused_or_right() -> None:
    values = [item.detach().double().requires_grad_() for item in inputs(2)]

    def second(fn):
        grads = torch.autograd.grad(fn(*values), values, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in grads), values)

    call = aot.aot_function(regions, aot.run_as_is)
    for one, other in zip(second(call), second(plain), strict=True):
        torch.testing.assert_close(one, other)
