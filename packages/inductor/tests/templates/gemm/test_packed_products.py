"""Products by matrices of four bits an element: which spellings are unpacked as they are read, and
what the template computes under Triton's interpreter, against float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from flambeau_inductor.ir.program import Extern
from flambeau_inductor.runtime.operators import PACKED_PRODUCT, packed_product
from flambeau_inductor.templates.selection.select import select_by_model
from torch import Tensor
from torch.nn import functional as F

from tests.evaluated import scheduled
from tests.templates.test_vectors import interpreted

HALF = torch.float16  # the interpreter multiplies the bits of bfloat16
GROUP = 64
Product = Callable[[Tensor, Tensor, Tensor], Tensor]


def by_groups(x: Tensor, numbers: Tensor, scale: Tensor) -> Tensor:
    groups = numbers.unflatten(1, (-1, GROUP)).to(x.dtype) * scale.unsqueeze(-1)
    return F.linear(x, groups.flatten(1))


def halves(w: Tensor) -> Tensor:
    return torch.stack((w & 15, w >> 4), -1).flatten(1)


def stacked(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return by_groups(x, halves(w).to(x.dtype) - 8, scale)


def signed(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return by_groups(x, halves(w).to(torch.int8) - 8, scale)


def unsigned(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return by_groups(x, halves(w), scale)


def masked(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    low, high = w.bitwise_and(0x0F), w.bitwise_and(0xF0) >> 4
    return by_groups(x, torch.stack((low, high), 2).flatten(1).to(x.dtype) - 7, scale)


def scale_first(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    numbers = (halves(w).unflatten(1, (-1, GROUP)) - 8.0).to(x.dtype)
    return x @ (scale.unsqueeze(-1) * numbers).flatten(1).t()


def of_rows(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, (halves(w).to(x.dtype) - 8) * scale.narrow(1, 0, 1))


def scaled_after(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, halves(w).to(x.dtype) - 8) * scale.select(1, 0)


def with_more(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    made = stacked(x, w, scale)
    return F.silu(made) * 2 + made


def words(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=w.device)
    numbers = (w.unsqueeze(-1) >> shifts) & 15
    return by_groups(x, numbers.flatten(1).to(x.dtype) - 8, scale)


SPELLINGS = [stacked, signed, unsigned, masked, scale_first, of_rows, scaled_after, with_more]


def given(rows: int, columns: int, inner: int, dtype: torch.dtype = HALF) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rows + columns + inner)
    x = torch.randn(rows, inner, generator=generator).to(dtype)
    w = torch.randint(0, 256, (columns, inner // 2), dtype=torch.uint8, generator=generator)
    scale = torch.rand(columns, inner // GROUP, generator=generator) * 0.1
    return [x, w, scale.to(dtype)]


def calls(of: Product, inputs: list[Tensor]) -> list[str]:
    return [s.target for s in scheduled(of, inputs, "cuda").steps if isinstance(s, Extern)]


@pytest.mark.parametrize("of", SPELLINGS)
def test_spellings_are_computed_as_eager_does(of: Product, tmp_path: Path) -> None:
    """Elements are rounded as eager rounds them: only the sums are those of more digits."""
    inputs = given(1, 24, 320)
    assert calls(of, inputs) == [PACKED_PRODUCT]
    selected = select_by_model(scheduled(of, inputs, "cuda"))
    (got,) = interpreted(selected.program, inputs, tmp_path, selected.kernels)
    torch.testing.assert_close(got, of(*inputs), rtol=2e-3, atol=2e-3)


def test_words_of_32_bits_are_read_as_bytes_are(tmp_path: Path) -> None:
    x, w, scale = given(3, 16, 256)
    inputs = [x, w.view(torch.int32), scale]
    selected = select_by_model(scheduled(words, inputs, "cuda"))
    (got,) = interpreted(selected.program, inputs, tmp_path, selected.kernels)
    torch.testing.assert_close(got, stacked(x, w, scale), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "sizes", [(1, 8, 256), (2, 16, 384), (8, 40, 256), (9, 33, 448), (16, 16, 256)], ids=str
)
def test_vectors_and_columns_need_fill_no_tile(sizes: tuple[int, ...], tmp_path: Path) -> None:
    inputs = given(*sizes)
    selected = select_by_model(scheduled(with_more, inputs, "cuda"))
    (got,) = interpreted(selected.program, inputs, tmp_path, selected.kernels)
    torch.testing.assert_close(got, with_more(*inputs), rtol=4e-3, atol=4e-3)


def by_tensor(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return by_groups(x, halves(w).to(x.dtype) - (scale * 80).sum(1, True), scale)


def three_bits(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return by_groups(x, torch.stack((w & 7, w >> 4), -1).flatten(1), scale)


def upper_first(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return by_groups(x, torch.stack((w >> 4, w & 15), -1).flatten(1), scale)


def one_behind_the_other(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return by_groups(x, torch.cat((w & 15, w >> 4), 1), scale)


def not_rounded(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    elements = halves(w).unflatten(1, (-1, GROUP)).float() * scale.float().unsqueeze(-1)
    return F.linear(x, elements.sqrt().to(x.dtype).flatten(1))


def of_a_tensor(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    shifts = scale.sum().to(torch.int32) + torch.arange(
        0, 32, 4, dtype=torch.int32, device=w.device
    )
    return by_groups(x, ((w.unsqueeze(-1) >> shifts) & 15).flatten(1), scale)


def infinite(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return by_groups(x, halves(w).to(x.dtype) - torch.inf, scale)


def other_signs(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return by_groups(x, 8 - halves(w).to(x.dtype), scale)


def fewer_columns(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, halves(w).to(x.dtype).narrow(0, 0, 8))


def fewer_terms(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x.narrow(1, 0, 256), halves(w).to(x.dtype).narrow(1, 0, 256))


def shared(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    made = halves(w)
    for _ in range(64):
        made = made + made
    return by_groups(x, made, scale)


@pytest.mark.parametrize(
    "of",
    [
        by_tensor, three_bits, upper_first, one_behind_the_other, not_rounded, other_signs,
        infinite, fewer_columns, fewer_terms, shared,
    ],
)  # fmt: skip
def test_what_is_not_of_this_form_is_summed(of: Product) -> None:
    assert PACKED_PRODUCT not in calls(of, given(1, 16, 512))


def test_words_that_lie_by_columns_are_summed() -> None:
    x, w, scale = given(1, 16, 256)
    assert PACKED_PRODUCT not in calls(stacked, [x, w.t().contiguous().t(), scale])


def test_shifts_that_a_tensor_says_are_summed() -> None:
    x, w, scale = given(1, 16, 256)
    assert PACKED_PRODUCT not in calls(of_a_tensor, [x, w.view(torch.int32), scale])


@pytest.mark.parametrize("rows", [17, 64])
def test_many_vectors_are_the_librarys(rows: int) -> None:
    assert PACKED_PRODUCT not in calls(stacked, given(rows, 16, 256))


def test_the_call_alone_computes_the_same() -> None:
    x, w, scale = given(3, 16, 256)
    assert torch.equal(packed_product(x, w, scale, GROUP, 8), stacked(x, w, scale))
    assert torch.equal(
        packed_product(x, w.view(torch.int32), None, 256, 8), x @ (halves(w).to(HALF) - 8).t()
    )
