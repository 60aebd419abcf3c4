"""Convolutions with packed weights: the plain ones' results, and weights that did change."""

from __future__ import annotations

from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor import Options
from flambeau_inductor._torch_compat import onednn_convolution, onednn_packed_linear
from flambeau_inductor.runtime.cpu.packed_weights import MOST_FORMS, PackedConvolution, PackedLinear
from flambeau_inductor.runtime.operators import operator, with_packed_weight
from torch import fx

from tests.facts import Info

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


PACKS: dict[str, tuple[tuple[int, ...], tuple[int, ...], torch.memory_format, bool]] = {
    "large weights": ((2, 64, 6, 6), (64, 64, 3, 3), torch.contiguous_format, True),
    "large images": ((2, 64, 32, 32), (32, 64, 3, 3), torch.contiguous_format, False),
    "channels last": ((2, 64, 32, 32), (32, 64, 3, 3), torch.channels_last, True),
}


@pytest.mark.parametrize("case", PACKS)
def test_weights_are_packed_where_that_pays(case: str) -> None:
    shape, of_weight, order, pays = PACKS[case]
    convolve = PackedConvolution()
    image, weight = torch.randn(shape).to(memory_format=order), torch.randn(of_weight)
    settings = SETTINGS["3 x 3"][1]
    with torch.no_grad():
        got = convolve(image, weight, None, *settings)
        want = PLAIN(image, weight, None, *settings)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert convolve._onednn is not None
    (forms,) = convolve._onednn.weights._forms._forms.values()
    ((_, packed),) = forms.values()
    assert packed.is_mkldnn is pays


def test_each_wrapper_packs_its_own() -> None:
    name = with_packed_weight("aten.convolution.default")
    assert operator(name) is not operator(name)
    with pytest.raises(LookupError):
        operator(with_packed_weight("aten.relu.default"))


LINEAR = "mkldnn._linear_pointwise.default"
needs_linear = pytest.mark.skipif(onednn_packed_linear() is None, reason="torch without oneDNN")


@needs_linear
@pytest.mark.parametrize("after", [("none", (), ""), ("gelu", (), "none")])
def test_linear_maps_are_the_plain_operators(after: tuple[Any, ...]) -> None:
    weight, bias = torch.randn(48, 32), torch.randn(48)
    linear, plain = operator(with_packed_weight(LINEAR)), operator(LINEAR)
    assert isinstance(linear, PackedLinear)
    with torch.no_grad():
        for rows in (8, 8, 5):  # packed, taken again, packed for another number of rows
            x = torch.randn(rows, 32)
            for given in (bias, None):
                for seen in (weight, torch.randn(32, 48).t(), torch.randn(48, 64)[:, ::2]):
                    got, want = linear(x, seen, given, *after), plain(x, seen, given, *after)
                    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@needs_linear
def test_rows_apart_and_weights_that_were_written_to() -> None:
    linear, weight = PackedLinear(), torch.randn(48, 32)
    x = torch.randn(9, 64)[:, ::2]
    with torch.no_grad():
        first = linear(x, weight, None, "none", (), "")
        torch.testing.assert_close(first, x @ weight.t(), rtol=1e-5, atol=1e-5)
        weight.mul_(2)
        again = linear(x, weight, None, "none", (), "")
    torch.testing.assert_close(again, first * 2)


@needs_linear
def test_frozen_weights_of_products_are_packed_through_views() -> None:
    w, x = torch.randn(64, 48, 1, 1), torch.randn(1024, 48)
    gm = flambeau_prims.lower(fx.symbolic_trace(lambda x, w: F.linear(x, w[:, :, 0, 0])), [x, w])
    info = Info(static_inputs=(1,))
    options = Options(freezing=True, products="onednn")
    compiled = flambeau_inductor.compile(gm, [x, w], info, options)
    assert with_packed_weight(LINEAR) in compiled.report.sources["wrapper.py"]
    with torch.no_grad():
        for _ in range(2):
            want = F.linear(x, w[:, :, 0, 0])
            torch.testing.assert_close(compiled([x, w])[0], want, rtol=1e-5, atol=1e-5)


@needs_linear
def test_forms_of_a_weight_do_not_fill_the_memory() -> None:
    linear, weight = PackedLinear(), torch.randn(48, 32)
    with torch.no_grad():
        for rows in [*range(4, 4 + 3 * MOST_FORMS), 5]:
            x = torch.randn(rows, 32)
            got = linear(x, weight, None, "none", (), "")
            torch.testing.assert_close(got, x @ weight.t(), rtol=1e-5, atol=1e-5)
            weight.mul_(1.01)
    (forms,) = linear._forms._forms.values()
    assert len(forms) == MOST_FORMS
