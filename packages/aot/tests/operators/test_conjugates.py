"""Conjugates and negatives that eager keeps as a bit: by what makes them, what is asked of them and
where they come from, with decompositions and without."""

from __future__ import annotations

import itertools
from typing import Any

import flambeau_aot as aot
import flambeau_prims
import pytest
import torch

FROM = {
    "an argument": lambda z: z,
    "a part": lambda z: z[1:],
    "a value": lambda z: z * 2,
    "a transform": lambda z: torch.fft.ifft(z.abs()),
}
MADE = {
    "conj": lambda z: z.conj(),
    "twice": lambda z: z.conj().conj(),
    "adjoint": lambda z: z.mH,
    "part": lambda z: z.conj()[:, 1:],
    "plain": lambda z: z,
}
ASKED = {
    "itself": lambda z: z,
    "imag": lambda z: z.imag,
    "real": lambda z: z.real,
    "torch.imag": torch.imag,
    "part of imag": lambda z: z.imag[0],
    "resolve_conj": lambda z: z.resolve_conj(),
    "resolve_neg": lambda z: z.imag.resolve_neg(),
    "is_conj": lambda z: z * (2 if z.is_conj() else 3),
    "is_neg": lambda z: z.imag * (2 if z.imag.is_neg() else 3),
    "view_as_real": torch.view_as_real,
    "product": lambda z: z * z,
}


def seen(run: Any, z: torch.Tensor) -> Any:
    try:
        y = run(z)
    except RuntimeError as error:
        return error
    shared = y.untyped_storage().data_ptr() == z.untyped_storage().data_ptr()
    about = y.is_conj(), y.is_neg(), y.stride(), y.dtype, shared, y.requires_grad
    if z.requires_grad:
        torch.view_as_real(y.resolve_conj() * (1 + 2j)).sin().sum().backward()
    return about, y.detach().resolve_conj().resolve_neg(), z.grad


@pytest.mark.sweep(9)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("source", FROM)
def test_as_eager(source: str, decomposed: bool, grad: bool) -> None:
    table = flambeau_prims.decompositions() if decomposed else None
    torch.manual_seed(0)
    z = torch.randn(3, 4, dtype=torch.complex64)
    for made, asked in itertools.product(MADE, ASKED):

        def fn(z: torch.Tensor, names: Any = (source, made, asked)) -> torch.Tensor:
            return ASKED[names[2]](MADE[names[1]](FROM[names[0]](z)))

        expected = seen(fn, z.clone().requires_grad_(grad))
        compiled = aot.aot_function(fn, aot.run_as_is, decompositions=table)
        found = seen(compiled, z.clone().requires_grad_(grad))
        if isinstance(expected, Exception) or isinstance(found, Exception):
            assert isinstance(found, RuntimeError), (source, made, asked)
            assert isinstance(expected, RuntimeError), (source, made, asked, found)
            continue
        assert found[0] == expected[0], (source, made, asked)
        torch.testing.assert_close(found[1:], expected[1:])
