"""Open numbers of either sign: a later call is answered, or refused, as eager does it."""

import pytest
import torch
from torch.nn.functional import pad

import flambeau

PROGRAMS = {
    "range down": lambda n: torch.arange(0, n, -1),
    "range by steps": lambda n: torch.arange(0, n, -2) * 2,
    "range up": lambda n: torch.arange(n, 4, 3),
    "range by n": lambda n: torch.arange(0, 10, n),
    "float range": lambda n: torch.arange(0.0, n, -0.5),
    "sizes": lambda n: torch.ones(n) + 1,
    "values": lambda n: torch.linspace(0, n, 5) * n,
    "narrow": lambda n: torch.ones(10).narrow(0, n, 2) + 1,
    "slice": lambda n: torch.arange(10)[n:] + 1,
}


def outcome(call, number):
    try:
        return call(number)
    except (RuntimeError, IndexError) as error:
        return type(error).__name__


@pytest.mark.parametrize("numbers", [(-3, -5, 6), (3, -3, -5)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_of_another_sign(name, numbers):
    program = PROGRAMS[name]
    compiled = flambeau.compile(program)
    for number in numbers:
        expected, got = outcome(program, number), outcome(compiled, number)
        if isinstance(expected, str):
            assert got == expected, number
        else:
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
def test_padding_of_every_open_size(mode):
    def program(x):
        return pad(x, (1, 2), mode=mode)

    compiled = flambeau.compile(program)
    for shape in ((2, 3, 5), (1, 2, 4), (3, 1, 6)):
        x = torch.randn(shape)
        assert torch.equal(compiled(x), program(x))
    assert not flambeau.report(compiled).faults
