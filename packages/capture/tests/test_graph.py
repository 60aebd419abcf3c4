"""What is written into a graph is Python that runs."""

import math

import pytest
import torch


def test_classes_of_numbers_as_dtypes(capture, backend, same):
    def made(x):
        return (
            x.to(int),
            x.to(dtype=float),
            torch.zeros(2, dtype=bool),
            torch.tensor([1], dtype=complex),
            x.sum(dtype=float),
            x.to("cpu", int),
        )

    fn = capture(made, nopython=True)
    x = torch.randn(3) * 5
    same(fn(x), made(x))
    assert [one.dtype for one in fn(x)] == [one.dtype for one in made(x)]
    assert len(backend) == 1


@pytest.mark.parametrize("base", [-2, -2.5, -0.0, -1, 2, 0.5, True, -2j, 1 - 2j, -math.inf])
def test_a_power_of_a_signed_number(base, capture):
    def power(x):
        return base**x, x * base

    fn = capture(power, nopython=True)
    for x in (torch.tensor([0.0, 2.0, 3.0]), torch.tensor(2.0), torch.tensor([1, 2])):
        for given, expected in zip(fn(x), power(x), strict=True):
            torch.testing.assert_close(given, expected, rtol=0, atol=0, equal_nan=True)
