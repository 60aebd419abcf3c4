"""A result that is a view of nothing in eager is none in the compiled program, however its kernels
laid it out in memory: `detach_` tells them apart."""

import pytest
import torch

import flambeau

FRESH = {
    "softmax": lambda x: x.sum().softmax(0),
    "kron": lambda x: torch.kron(x, x),
    "rot90": torch.rot90,
    "roll": lambda x: torch.roll(x, 1),
    "flip": lambda x: torch.flip(x, (0,)),
    "quantile": lambda x: torch.quantile(x, 0.3),
    "nanquantile": lambda x: torch.nanquantile(x, 0.3),
    "einsum": lambda x: torch.einsum("i,j->ij", x[0], x[1]),
    "repeat": lambda x: x.repeat(1, 1),
    "tile": lambda x: x.tile(()),
    "cat": lambda x: torch.cat([x, x]),
    "power": lambda x: torch.linalg.matrix_power(x, 3),
    "sort": lambda x: x.sort().values,
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", FRESH)
@pytest.mark.parametrize("grad", [False, True])
def test_a_fresh_result_is_no_view(name: str, grad: bool) -> None:
    x = torch.randn(3, 3, requires_grad=grad)
    expected, found = FRESH[name](x), flambeau.compile(FRESH[name])(x)
    assert expected._is_view() == found._is_view()
    assert torch.allclose(found.detach_(), expected.detach_())
