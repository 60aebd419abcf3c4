"""Operators by name."""

from __future__ import annotations

import pytest
import torch
from flambeau_inductor._torch_compat import out_names, overload_of, returns_sequence
from flambeau_inductor.runtime import operators
from flambeau_inductor.runtime.operators import BINDINGS, ROWS, WEIGHT, operator


@pytest.mark.parametrize("target", BINDINGS)
def test_a_binding_is_the_same_operator(target: str):
    torch.manual_seed(0)
    batch = (2,) if "bmm" in target else ()
    a, b = torch.randn(*batch, 3, 4), torch.randn(*batch, 4, 5)
    args = (torch.randn(5), a, b) if "add" in target else (a, b)
    ours, theirs = torch.empty(*batch, 3, 5), torch.empty(*batch, 3, 5)
    assert out_names(overload_of(target)) == ["out"]
    operator(target)(*args, out=ours)
    overload_of(target)(*args, out=theirs)
    assert torch.equal(ours, theirs)


def test_any_overload():
    assert torch.equal(
        operator("aten.relu.default")(torch.tensor([-1.0, 2])), torch.tensor([0.0, 2])
    )


@pytest.mark.parametrize("target", ["aten.no_such.default", "aten.mm", "nowhere.mm.out"])
def test_an_unknown_one_is_named(target: str):
    with pytest.raises(LookupError, match=target):
        operator(target)


@pytest.mark.parametrize(
    ("target", "many"),
    [
        ("aten.relu.default", False),
        ("aten.split.Tensor", True),
        ("aten.sort.stable", True),
        ("aten.unbind.int", True),
        ("aten.mm.out", False),
    ],
)
def test_which_operators_give_several_results(target: str, many: bool):
    assert returns_sequence(overload_of(target)) is many


@pytest.mark.parametrize("target", WEIGHT)
def test_a_weight_with_gaps_is_closed_up_first(target: str, monkeypatch: pytest.MonkeyPatch):
    """oneDNN takes it as it is, and then multiplies a thousand times slower."""
    given = []
    monkeypatch.setattr(operators, "overload_of", lambda name: lambda *args: given.append(args))
    call, position = operator(target), WEIGHT[target]
    weight = torch.randn(6, 8)
    for some in (weight, torch.randn(8, 6).t(), weight[:, 4:]):
        call(*("x" for _ in range(position)), some, "rest")
        *_, got, rest = given.pop()
        assert rest == "rest"
        assert torch.equal(got, some)
        assert got.is_contiguous() or got.t().is_contiguous()
    assert not weight[:, 4:].is_contiguous()


def test_fused_attention_reads_transposed_operands() -> None:
    """The library's kernel goes by rows: it takes a last stride that is not 1 for 1."""
    forward, backward = (operator(target) for target in ROWS)
    q, k, v, grad = (torch.randn(2, 3, 16, 16) for _ in range(4))
    mask = torch.randn(2, 3, 16, 16)
    turned = [t.mT.contiguous().mT for t in (q, k, v, grad, mask)]
    assert all(t.stride(-1) == 16 for t in turned)
    want, sums = forward(q, k, v, 0.0, False, attn_mask=mask, scale=0.5)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    exact = torch.softmax(leaves[0] @ leaves[1].mT * 0.5 + mask, -1) @ leaves[2]
    torch.testing.assert_close(want, exact)
    got, _ = forward(*turned[:3], 0.0, False, attn_mask=turned[4], scale=0.5)
    torch.testing.assert_close(got, exact)
    wanted = backward(grad, q, k, v, want, sums, 0.0, False, attn_mask=mask, scale=0.5)
    sides = (turned[3], *turned[:3], want.mT.contiguous().mT, sums)
    found = backward(*sides, 0.0, False, attn_mask=turned[4], scale=0.5)
    gradients = torch.autograd.grad(exact, leaves, grad)
    for ours, theirs, best in zip(found, wanted, gradients, strict=True):
        torch.testing.assert_close(ours, best)
        torch.testing.assert_close(theirs, best)
