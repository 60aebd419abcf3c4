"""Convolutions with packed weights: the plain ones' results, and weights that did change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flambeau_inductor._torch_compat import onednn_convolution
from flambeau_inductor.runtime.operators import operator, with_packed_weight
from flambeau_inductor.runtime.packed import PackedConvolution

pytestmark = pytest.mark.skipif(onednn_convolution() is None, reason="torch without oneDNN")

PLAIN = torch.ops.aten.convolution.default
SETTINGS: dict[str, tuple[tuple[int, ...], tuple[Any, ...]]] = {
    "3 x 3": ((6, 4, 3, 3), ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
    "steps": ((6, 4, 3, 3), ([2, 1], [0, 1], [1, 2], False, [0, 0], 1)),
    "depthwise": ((4, 1, 3, 3), ([1, 1], [1, 1], [1, 1], False, [0, 0], 4)),
    "transposed": ((4, 6, 3, 3), ([2, 2], [1, 1], [1, 1], True, [1, 1], 1)),
}


@pytest.mark.parametrize("case", SETTINGS)
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_results_are_the_plain_operators(case: str, order: torch.memory_format) -> None:
    shape, settings = SETTINGS[case]
    weight, bias = torch.randn(shape), torch.randn(shape[1] if settings[3] else shape[0])
    convolve = operator(with_packed_weight("aten.convolution.default"))
    assert isinstance(convolve, PackedConvolution)
    with torch.no_grad():
        for size in (8, 8, 5):  # packed, taken again, packed for another size
            image = torch.randn(2, 4, size, size).to(memory_format=order)
            got = convolve(image, weight, bias, *settings)
            want = PLAIN(image, weight, bias, *settings)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_another_type_is_the_plain_operators() -> None:
    image, weight = torch.randn(1, 4, 5, 5).double(), torch.randn(6, 4, 3, 3).double()
    settings = SETTINGS["3 x 3"][1]
    assert torch.equal(
        PackedConvolution()(image, weight, None, *settings), PLAIN(image, weight, None, *settings)
    )


def test_a_weight_that_was_written_to_is_packed_anew() -> None:
    convolve, settings = PackedConvolution(), SETTINGS["3 x 3"][1]
    image, weight = torch.randn(1, 4, 5, 5), torch.randn(6, 4, 3, 3)
    first = convolve(image, weight, None, *settings)
    weight.mul_(2)
    torch.testing.assert_close(convolve(image, weight, None, *settings), first * 2)


def test_each_wrapper_packs_its_own() -> None:
    name = with_packed_weight("aten.convolution.default")
    assert operator(name) is not operator(name)
    with pytest.raises(LookupError):
        operator(with_packed_weight("aten.relu.default"))
