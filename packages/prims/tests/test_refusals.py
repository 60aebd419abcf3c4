"""What eager refuses by the kinds of its operands, a decomposition refuses in eager's words."""

import itertools

import pytest
import torch
from flambeau_prims.decomp import creation, pointwise

KINDS = (torch.bool, torch.uint8, torch.int64, torch.float32, torch.complex64)
OPERANDS = (*(torch.tensor([1, 0, 1]).to(kind) for kind in KINDS), True, 2, 1.5)
EXPONENTS = (-3, -2, -1, -1.0, -0.5, 0, 1, 2, True, False)
ENDS = (-3, -1.0, 0, 2, 2.5)


def outcome(call, *args, **kwargs):
    """The answer's dtype, or how it is refused."""
    try:
        return call(*args, **kwargs).dtype
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("name", ["add", "sub", "rsub"])
def test_sums_are_refused_as_eager_refuses_them(name):
    seen = set()
    for a, b, alpha in itertools.product(OPERANDS[: len(KINDS)], OPERANDS, (1, 2, 1.5, True)):
        expected = outcome(getattr(torch, name), a, b, alpha=alpha)
        assert outcome(getattr(pointwise, name), a, b, alpha) == expected, (a, b, alpha)
        seen.add(type(expected))
    assert seen == {torch.dtype, str}


def test_whole_numbers_have_no_negative_powers():
    for x, exponent in itertools.product(OPERANDS[: len(KINDS)], EXPONENTS):
        expected = outcome(torch.pow, x, exponent)
        assert outcome(pointwise.pow_scalar, x, exponent) == expected, (x.dtype, exponent)


def test_a_range_goes_the_way_of_its_step():
    for start, end, step in itertools.product(ENDS, ENDS, (-1, -0.5, 0, 1, 2)):
        expected = outcome(torch.arange, start, end, step)
        assert outcome(creation.arange_from, start, end, step) == expected, (start, end, step)
        if not isinstance(expected, str):
            answer = creation.arange_from(start, end, step)
            assert torch.equal(answer, torch.arange(start, end, step))
