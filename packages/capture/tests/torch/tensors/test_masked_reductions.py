"""Functions of torch.masked: each makes a class of a derivative in each call."""

import inspect

import flambeau_capture as fc
import pytest
import torch
from torch import masked
from torch.masked import _ops

NAMES = sorted(
    name
    for name, fn in inspect.getmembers(_ops, inspect.isfunction)
    if fn.__module__ == _ops.__name__ and not name.startswith("_")
)
MASK = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()


def given(name, mask):
    if name == "logaddexp":
        return lambda x: masked.logaddexp(x, x * 2, input_mask=mask, other_mask=mask)
    more = {"norm": (2.0, 1), "normalize": (2.0, 1)}.get(name, (1,))
    named = {"unbiased": True} if name in ("std", "var") else {}
    return lambda x: getattr(masked, name)(x * 1, *more, mask=mask, **named)


def answers(call, kind):
    torch.manual_seed(0)
    x = torch.randn(3, 4, dtype=torch.float64).requires_grad_()
    try:
        made = call(x.to_sparse() if kind == "sparse" else x)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        return type(error)
    made = made.to_dense()
    if made.requires_grad:
        made.sum().backward()
    return made.detach(), x.grad


def test_all_of_them_are_here() -> None:
    assert len(NAMES) > 15


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("mask", [MASK, None], ids=["mask", "none"])
@pytest.mark.parametrize("name", NAMES)
def test_as_in_eager(name, mask, kind) -> None:
    if kind == "sparse" and mask is not None:
        mask = mask.to_sparse()
    fn = given(name, mask)
    wanted = answers(fn, kind)
    fullgraph = kind == "dense" and not isinstance(wanted, type)
    found = answers(fc.compile(fn, backend="eager", fullgraph=fullgraph), kind)
    if isinstance(wanted, type):
        assert found is wanted
    else:
        torch.testing.assert_close(found, wanted, equal_nan=True)
