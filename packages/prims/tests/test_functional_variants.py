"""In-place and `out=` overloads: the functional form that is found, and that writing works."""

import pytest
import torch
from flambeau_prims import decompositions
from flambeau_prims.conformance import Decomposing
from flambeau_prims.functional_variants import functional_form, writing
from flambeau_prims.sweep.watch import WithWriting

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("op", "functional", "written"),
    [
        (aten.add_.Tensor, aten.add.Tensor, ("self",)),
        (aten.add.out, aten.add.Tensor, ("out",)),
        (aten.max.dim_max, aten.max.dim, ("max", "max_values")),
        (aten.normal_.default, aten.normal_functional.default, ("self",)),
        (aten.polygamma_.default, aten.polygamma.default, ("self",)),
        (aten.rand.out, aten.rand.default, ("out",)),
        (aten._foreach_add_.List, aten._foreach_add.List, ("self",)),
        (aten.sum.IntList_out, aten.sum.dim_IntList, ("out",)),
    ],
)
def test_functional_form(op, functional, written):
    variant = functional_form(op)
    assert variant is not None
    assert (variant.functional, variant.written) == (functional, written)


def test_what_has_none():
    assert functional_form(aten.add.Tensor) is None  # writes nothing
    assert functional_form(aten._cummax_helper.default) is None
    # an in-place view writes no element
    assert writing(aten.transpose_.default, decompositions()) is None


def test_writing():
    table = WithWriting(decompositions())
    x, y = torch.randn(3, 4), torch.randn(4)
    expected = x.clone().mul_(y).add_(1)
    out = torch.empty(0)
    values, positions = torch.empty(0), torch.empty(0, dtype=torch.int64)
    with Decomposing(table) as seen:
        same = x.mul_(y)
        x.add_(1)
        torch.exp(x, out=out)
        torch.max(x, 1, out=(values, positions))
        torch._foreach_mul_([y], 2.0)
    assert same is x and torch.equal(x, expected)
    assert torch.equal(out, expected.exp())
    assert torch.equal(values, expected.max(1).values)
    assert torch.equal(positions, expected.max(1).indices)
    # resizing an empty result is all that is left to ATen
    assert set(seen.left) <= {"aten.resize_.default"}


def test_writing_casts_to_the_target():
    whole = torch.zeros(3, dtype=torch.int64)
    with Decomposing(WithWriting(decompositions())):
        whole.add_(torch.tensor([1, 2, 3], dtype=torch.int32))
    assert whole.tolist() == [1, 2, 3] and whole.dtype == torch.int64
