"""Strides that a program reads of results: those of eager's kernels, also where torch's fake
tensors describe others."""

import itertools

import pytest
import torch
from flambeau_capture.values.tensors.data import read_layouts
from torch.nn import functional as F

ONE_OPERAND = {
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "rot90": lambda x: x.rot90(),
    "sort": lambda x: x.sort(-1).values,
    "batch norm": lambda x: F.batch_norm(x, *torch.ones(2, x.shape[1], dtype=x.dtype)),
    "a row of einsum": lambda x: torch.einsum("aij,akj->aik", x, x),
    "nan_to_num": torch.nan_to_num,
    "frexp": lambda x: torch.frexp(x).mantissa,
    "a kept dimension": lambda x: x.sum(0, keepdim=True),
    "a chain": lambda x: (x.flip(0) * 2 + x.mT.sum()).relu(),
    "in place": lambda x: x.flip(0).mul_(2),
    "drawn": lambda x: F.dropout(x * 2),
    "of a size": lambda x: x.flip(0).view(x.shape[0], -1) * x.shape[1],
}
TWO_OPERANDS = {
    "floor_divide": torch.floor_divide,
    "logical_and": torch.logical_and,
    "copysign": torch.copysign,
    "xlogy": torch.xlogy,
    "lerp": lambda x, y: torch.lerp(x, y, 0.5),
    "huber": lambda x, y: F.huber_loss(x, y.expand_as(x), reduction="none"),
}
LAYOUTS = {
    "rows": lambda x: x,
    "turned": lambda x: x.permute(2, 1, 0).contiguous().permute(2, 1, 0),
    "spread": lambda x: torch.stack([x, x], -1).flatten(-2)[..., ::2],
    "one": lambda x: x[:1],
    "none": lambda x: torch.stack([x, x], -1).flatten(-2)[..., ::2][:0],
    "odd": lambda x: x[:1].as_strided((1, *x.shape[1:]), (7, *x.stride()[1:])),
}


def read(function):
    def fn(*operands):
        result = function(*operands)
        return result.stride(), result.is_contiguous(), result.shape

    return fn


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*ONE_OPERAND, *TWO_OPERANDS])
def test_as_eager(capture, name):
    fn = read(ONE_OPERAND.get(name) or TWO_OPERANDS[name])
    x, y = torch.rand(3, 2, 4), torch.rand(2, 4)
    for first, second in itertools.product(LAYOUTS.values(), (lambda y: y, lambda y: y.t()[:2])):
        operands = (
            (first(x),) if name in ONE_OPERAND else (first(x), second(y.repeat(2, 2))[:2, :4])
        )
        try:
            expected = fn(*operands)
        except RuntimeError:
            continue  # eager has no such view
        state = torch.get_rng_state()
        assert capture(fn)(*operands) == expected
        assert name == "drawn" or torch.equal(torch.get_rng_state(), state)


def test_what_is_described_as_it_is_stays_in_one_graph(capture, backend):
    def fn(x):
        y = (x * 2).relu() + 1
        return y + y.stride(0), y.is_contiguous()

    x = torch.rand(3, 4).t()
    result, flag = capture(fn)(x)
    assert torch.equal(result, fn(x)[0]) and flag is False
    assert len(backend.graphs) == 1


def test_what_is_large_is_not_computed_for_it(capture, monkeypatch):
    """Beyond the limit the fake's strides stand."""
    monkeypatch.setattr(read_layouts, "ELEMENTS", 8)
    x = LAYOUTS["turned"](torch.rand(3, 2, 4))
    assert capture(read(torch.relu))(x) == read(torch.relu)(x)
    monkeypatch.setattr(read_layouts, "_value", None)  # nothing asks for it
    assert capture(read(torch.sigmoid))(x) == read(torch.sigmoid)(x)
