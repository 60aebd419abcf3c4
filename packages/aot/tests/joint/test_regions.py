"""Checkpointed regions: run once, recomputed as their policy says, gradients as in eager."""

import functools

import flambeau_aot as aot
import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

mm = torch.ops.aten.mm.default


def block(x, w):
    return F.relu(x @ w) @ w.t()


def noisy(x, w):
    return F.dropout(F.relu(x @ w), 0.5).sin()


def layers(region, x, w, **options):
    for _ in range(3):
        x = checkpoint(region, x, w, **options).tanh()
    return x


def both(fn, x, w, **options):
    """Gradients of eager and compiled, drawn from one seed."""
    compiled = aot.aot_function(fn, aot.run_as_is, **options)
    outcomes = []
    for run in (fn, compiled):
        leaves = [item.detach().clone().requires_grad_() for item in (x, w)]
        torch.manual_seed(3)
        result = run(*leaves)
        result.square().sum().backward()
        outcomes.append((result.detach(), *(leaf.grad for leaf in leaves)))
    for one, other in zip(*outcomes):
        torch.testing.assert_close(other, one)
    (entry,) = compiled.compiled.values()
    return entry


X, W = torch.randn(4, 6), torch.randn(6, 6) * 0.3


@pytest.mark.parametrize("region", [block, noisy])
def test_gradients_are_eagers_and_the_region_is_recomputed(region) -> None:
    whole = both(lambda x, w: layers(region, x, w, use_reentrant=False), X, W)
    plain = both(lambda x, w: region(region(region(x, w).tanh(), w).tanh(), w).tanh(), X, W)
    assert whole.report.saved_bytes < plain.report.saved_bytes
    assert "aten.mm.default" in whole.report.recomputed
    assert "aten.mm.default" not in plain.report.recomputed
    drawn = [n for n in whole.joint.graph.nodes if "bernoulli" in str(n.target)]
    assert len(drawn) == (3 if region is noisy else 0)


def test_only_values_read_inside_are_marked() -> None:
    entry = both(lambda x, w: checkpoint(block, x, w, use_reentrant=False).sin(), X, W)
    marks = {
        node.name: node.meta.get("recompute")
        for node in entry.joint.graph.nodes
        if node.target in (mm, torch.ops.aten.relu.default, torch.ops.aten.sin.default)
    }
    assert marks["mm_default"] == "must_recompute"
    assert marks["relu_default"] == "must_recompute"
    assert marks["mm_default_1"] is None
    assert marks["sin_default"] is None


def test_the_policy_is_honoured() -> None:
    def policy(ctx, op, *args, **kwargs):
        keep = CheckpointPolicy.MUST_SAVE
        return keep if op is mm else CheckpointPolicy.PREFER_RECOMPUTE

    context = functools.partial(create_selective_checkpoint_contexts, policy)
    entry = both(lambda x, w: layers(block, x, w, use_reentrant=False, context_fn=context), X, W)
    marked = [n for n in entry.joint.graph.nodes if n.meta.get("recompute") == "must_save"]
    assert {n.target for n in marked} == {mm}
    assert "aten.mm.default" not in entry.report.recomputed


def test_a_reentrant_checkpoint() -> None:
    both(lambda x, w: layers(block, x, w, use_reentrant=True), X, W)


def test_a_reentrant_checkpoint_that_draws_is_refused() -> None:
    compiled = aot.aot_function(lambda x, w: layers(noisy, x, w, use_reentrant=True), aot.run_as_is)
    with pytest.raises(aot.Unsupported, match="use_reentrant=False"):
        compiled(X.clone().requires_grad_(), W.clone().requires_grad_())


def test_a_write_to_what_the_region_saves_is_an_error() -> None:
    def region(x, w):
        h = (x @ w).exp()
        out = h * 2
        h.add_(1)
        return out + h.sin()

    compiled = aot.aot_function(
        lambda x, w: checkpoint(region, x, w, use_reentrant=False), aot.run_as_is
    )
    with pytest.raises(aot.Unsupported, match="modified by an inplace"):
        compiled(X.clone().requires_grad_(), W.clone().requires_grad_())


def test_with_a_decomposition_of_the_random_operator() -> None:
    def dropout(x, p, train):
        mask = torch.rand_like(x) > p
        return x * mask * (1 / (1 - p)), mask

    table = {torch.ops.aten.native_dropout.default: dropout}
    compiled = aot.aot_function(
        lambda x, w: layers(noisy, x, w, use_reentrant=False), aot.run_as_is, decompositions=table
    )
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    torch.manual_seed(3)
    result = compiled(x, w)
    given = torch.autograd.grad(result.sum(), (x, w))
    torch.manual_seed(3)
    plain = layers(noisy, x, w, use_reentrant=False)
    torch.testing.assert_close(result, plain)
    torch.testing.assert_close(given, torch.autograd.grad(plain.sum(), (x, w)))


def test_a_result_of_a_region_may_be_written_to_before_the_backward_pass() -> None:
    def program(x):
        return checkpoint(lambda v: (v.sin() * v).tanh(), x, use_reentrant=False)

    grads = []
    for call in (program, aot.aot_function(program, aot.run_as_is)):
        x = torch.linspace(0, 1, 4).requires_grad_()
        result = call(x)
        result.mul_(2)
        result.sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)
