"""Fourier transforms of numbers near the largest: what a library scales as it transforms does not
overflow, in eager and here alike."""

import pytest
import torch
from flambeau_prims.conformance import Decomposing

NAMES = [
    f"{kind}{dims}"
    for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    for dims in ("", "2", "n")
]
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("name", NAMES)
def test_near_the_largest_number(name, norm):
    transform, seen = getattr(torch.fft, name), 0
    for dtype in DTYPES:
        if dtype.is_complex == name.startswith(("rfft", "ihfft")):
            continue
        for shape in ((4, 6, 5), (3, 8, 2)):
            x = torch.randn(shape, dtype=dtype) * (torch.finfo(dtype).max / 8)
            for given in (x, x.permute(2, 0, 1), x[1:, ::2]):
                expected = transform(given, norm=norm)
                with Decomposing():
                    found = transform(given, norm=norm)
                assert found.stride() == expected.stride() and found.dtype == expected.dtype
                torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-3, atol=0)
                seen += int(expected.isfinite().any())
    assert seen > 4


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_gradients_are_scaled_once(norm):
    x = torch.randn(3, 6, 4, requires_grad=True)
    for name in ("fft2", "rfft2", "ihfft2"):
        expected = gradient(name, norm, x)
        with Decomposing():
            found = gradient(name, norm, x)
        torch.testing.assert_close(found, expected)


def gradient(name, norm, x):
    parts = torch.view_as_real(getattr(torch.fft, name)(x, norm=norm).resolve_conj())
    return torch.autograd.grad(parts.cos().sum(), x)
