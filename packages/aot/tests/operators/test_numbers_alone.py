"""Operators on tensors that are given numbers of Python's in place of all of them."""

import flambeau_aot as aot
import pytest
import torch

aten = torch.ops.aten
NUMBERS = (7, 2.5, True)
# The others take no number in place of a first tensor.
BINARY = [
    aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.floor_divide.default,
    torch.add, torch.sub, torch.mul, torch.true_divide, torch.floor_divide, aten.add, aten.div,
]  # fmt: skip
WORDS = [
    lambda: torch.add(4, 3.3, alpha=2),
    lambda: torch.div(1024, 256, rounding_mode="trunc"),
    lambda: aten.div(1024, 100, rounding_mode=None),
    lambda: aten.div(1024, 100, rounding_mode="floor"),
]


def check(make) -> bool:
    """By itself, beside other dtypes, and written to; whether eager has such a form."""

    def fn(x):
        made = make()
        return make(), make() * x, make() + x.long(), made.logical_not_()

    x = torch.randn(3)
    try:
        expected = fn(x)
    except RuntimeError:
        return False
    given = aot.aot_function(fn, aot.run_as_is)(x)
    for one, other in zip(expected, given, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=0)
    return True


@pytest.mark.parametrize("op", BINARY, ids=lambda op: getattr(op, "__name__", None) or str(op))
def test_of_two_numbers(op) -> None:
    pairs = [(one, other) for one in NUMBERS for other in NUMBERS]
    done = [check(lambda pair=pair: op(*pair)) for pair in pairs]
    assert any(done)


@pytest.mark.parametrize("make", WORDS)
def test_with_words(make) -> None:
    assert check(make)


@pytest.mark.parametrize("number", [3.14, 3, True])
def test_mapped_over_a_number(number, same_as_eager) -> None:
    def fn(x):
        return torch.vmap(torch.mul, in_dims=(0, None))(x, number)

    same_as_eager(fn, torch.randn(3))
