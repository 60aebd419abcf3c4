"""Operators whose fake is wrong: eager's answer and a named reason, or an error that names both."""

import itertools
import warnings

import pytest
import torch
from torch import Tensor

import flambeau

NUMBERS = itertools.count()


def one(x: Tensor) -> Tensor:
    return x * 2


def two(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, x + 1


def some(x: Tensor) -> list[Tensor]:
    return [x * 2, x + 1]


def number(x: Tensor) -> float:
    return 2.0


def refuses(x):
    raise ValueError("a fake that raises")


#: what the operator computes, and a fake that says something else
WRONG = {
    "dtype": (one, lambda x: torch.empty_like(x, dtype=torch.float64)),
    "integers": (one, lambda x: torch.empty_like(x, dtype=torch.int64)),
    "fewer dimensions": (one, lambda x: x.new_empty(x.shape[0])),
    "no dimension": (one, lambda x: x.new_empty(())),
    "size": (one, lambda x: x.new_empty(x.shape[0], x.shape[1] + 1)),
    "a size of one": (one, lambda x: x.new_empty(1, x.shape[1])),
    "strides": (one, lambda x: x.new_empty(x.shape[::-1]).t()),
    "raises": (one, refuses),
    "nothing": (one, lambda x: None),
    "a number": (one, lambda x: 3),
    "more": (one, lambda x: (torch.empty_like(x), torch.empty_like(x))),
    "its argument": (one, lambda x: x),
    "a view": (one, lambda x: x.view(-1).view(x.shape)),
    "no memory": (one, lambda x: torch.empty_like(x, device="meta")),
    "one of two": (two, lambda x: torch.empty_like(x)),
    "three of two": (two, lambda x: (torch.empty_like(x),) * 3),
    "the second's dtype": (two, lambda x: (torch.empty_like(x), x.new_empty(4, 3).double())),
    "the second is nothing": (two, lambda x: (torch.empty_like(x), None)),
    "a shorter list": (some, lambda x: [torch.empty_like(x)]),
    "a longer list": (some, lambda x: [torch.empty_like(x)] * 3),
    "a number it cannot know": (number, lambda x: 3.0),
}


def sum_of(found):
    return sum(found) if isinstance(found, (tuple, list)) else found


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", WRONG)
def test_eager_answers_where_a_fake_is_wrong(name):
    computed, fake = WRONG[name]
    operator = f"flambeau_wrong_fakes::op{next(NUMBERS)}"
    called = torch.library.custom_op(operator, computed, mutates_args=())
    called.register_fake(fake)

    def program(x):
        made = called(x.exp())
        return made, sum_of(made) * 1.5

    x = torch.randn(4, 3)
    expected = program(x)
    compiled = flambeau.compile(program, backend="inductor")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is found out in a call is warned of
        for _ in range(2):
            torch.testing.assert_close(compiled(x), expected, check_stride=True)
    with pytest.raises(Exception, match="FB0031") as raised:
        flambeau.compile(program, backend="inductor", fullgraph=True)(x)
    assert f"register_fake('{operator}')" in str(raised.value)
