"""Inputs with memory between their elements: what a write leaves is laid out as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch

LAYOUTS = {
    "every other of the last": lambda: torch.randn(2, 3, 4)[:, :, ::2],
    "columns": lambda: torch.randn(3, 3)[:, :2],
    "transposed": lambda: torch.randn(4, 6)[::2, ::2].t(),
}


def whole(x: torch.Tensor) -> tuple[Any, ...]:
    x.fill_(0.25)
    copy = x.contiguous()
    copy.mul_(3)
    flat = x.reshape(-1)
    flat.add_(1)
    return copy, flat, x.stride(), x.is_contiguous()


def through_a_view(x: torch.Tensor) -> tuple[Any, ...]:
    row = x[:, 0]
    row.mul_(2)
    copy, flat = row.contiguous(), row.reshape(-1)
    copy.mul_(3)
    flat.add_(1)
    return copy, flat, row.stride()


def under_a_view(x: torch.Tensor) -> tuple[Any, ...]:
    part = x[:, 0:2]
    x.mul_(2)
    copy = part.contiguous()
    copy.mul_(3)
    return copy, part.stride(), part.reshape(-1)


def by_a_list(x: torch.Tensor) -> tuple[Any, ...]:
    torch._foreach_mul_([x, x.clone()], 0.5)
    copy = x.contiguous()
    copy.mul_(3)
    return copy, x.stride()


def reshaped_after(x: torch.Tensor) -> tuple[Any, ...]:
    x.mul_(2)
    x.unsqueeze_(0)
    copy = x.contiguous()
    copy.mul_(3)
    return copy, x.stride()


def made_inside(x: torch.Tensor) -> tuple[Any, ...]:
    y = torch.empty_strided((2, 2), (4, 2))
    y.fill_(2.0)
    copy = y.contiguous()
    copy.mul_(3)
    return copy, y + x.sum(), y.stride()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "fn", [whole, through_a_view, under_a_view, by_a_list, reshaped_after, made_inside]
)
def test_a_write_keeps_the_gaps(fn: Callable[..., Any], layout: str) -> None:
    like = LAYOUTS[layout]()
    one, other = (torch.empty_strided(like.shape, like.stride()).copy_(like) for _ in range(2))
    given = aot.aot_function(fn, aot.run_as_is)(one)
    expected = fn(other)
    torch.testing.assert_close(one, other)
    for mine, theirs in zip(given, expected, strict=True):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(mine, theirs)
            assert mine.stride() == theirs.stride()
        else:
            assert mine == theirs


def test_reshaped_and_then_written_is_refused() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.t_()
        x.mul_(2)
        return x.contiguous()

    with pytest.raises(aot.Unsupported, match="memory between its elements"):
        aot.aot_function(fn, aot.run_as_is)(torch.randn(3, 3)[:, :2])


def test_another_size_by_out_is_refused() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch.add(y, 1.0, out=x)
        return x * 1

    with pytest.raises(aot.Unsupported, match="no elements"):
        aot.aot_function(fn, aot.run_as_is)(torch.randn(2, 6)[:, ::2], torch.randn(0, 3))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_strided_again_in_place(mode: Callable[[], Any]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.as_strided_((2,), (1,))
        return x.mean()

    for x in (torch.arange(6.0), torch.arange(8.0)[2:]):
        other = x.clone()
        with mode():
            assert fn(other) == aot.aot_function(fn, aot.run_as_is)(x)
        assert torch.equal(x, other)
    x = torch.randn(6)[::2]
    with mode(), pytest.raises(aot.Unsupported, match="memory between its elements"):
        aot.aot_function(fn, aot.run_as_is)(x)


def test_a_part_of_written_memory_does_not_begin_to_require_grad() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(y)
        x.requires_grad_()
        y.add_(y)
        return x

    x = torch.randn(3, 1)
    with pytest.raises(aot.Unsupported, match="begins to require grad"):
        aot.aot_function(fn, aot.run_as_is)(x, x.t())


def test_an_out_that_is_a_view_is_refused() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.add(x[:, :2], 1.0, out=x[:, :1])
        return x * 1

    with pytest.raises(aot.Unsupported, match="out= that is a view"):
        aot.aot_function(fn, aot.run_as_is)(torch.randn(2, 3))


def test_an_out_without_elements_is_refused() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        part = x[1:]
        torch.add(x.t(), 1.0, out=part)
        return part * 2

    with pytest.raises(aot.Unsupported, match=r"no elements|is a view"):
        aot.aot_function(fn, aot.run_as_is)(torch.randn(0, 3))


@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_inputs_are_refused(convert: Callable[[torch.Tensor], torch.Tensor]) -> None:
    sparse = convert(torch.eye(3))

    class Product(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("matrix", sparse)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.matrix @ x

    for call in (
        lambda: aot.aot_function(lambda a: a * 2, aot.run_as_is)(sparse),
        lambda: aot.aot_module(Product(), aot.run_as_is)(torch.eye(3)),
        lambda: aot.export_joint(lambda a: a * 2, (sparse,)),
    ):
        with pytest.raises(aot.Unsupported, match="layout"):
            call()


MAKERS = {
    "empty_strided": lambda x, *form: torch.empty_strided(*form),
    "new_empty_strided": lambda x, *form: x.new_empty_strided(*form),
    "by name": lambda x, *form: torch.empty_strided(size=form[0], stride=form[1], dtype=x.dtype),
    "aten": lambda x, *form: torch.ops.aten.empty_strided(*form),
}
FORMS = [((4, 4), (8, 1)), ((4, 4), (1, 9)), ((4, 4), (1, 4)), ((4, 4), (4, 1)), ((4, 4), (2, 10))]


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_tensor_made_by_strides(maker, form) -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        made = MAKERS[maker](x, *form)
        made.zero_()
        return made, MAKERS[maker](x, *form).copy_(x).add_(1), made.contiguous()

    def as_dense(size: Any, stride: Any, **kwargs: Any) -> torch.Tensor:
        return torch.ops.aten.empty.memory_format(size, **kwargs)  # as a decomposition may make it

    x = torch.randn(4, 4)
    for rules in ({}, {torch.ops.aten.empty_strided.default: as_dense}):
        if rules and form[1] == (1, 4):  # dense, and for the rule to get right
            continue
        given = aot.aot_function(fn, aot.run_as_is, decompositions=rules)(x)
        for one, other in zip(fn(x), given, strict=True):
            assert one.stride() == other.stride()
            torch.testing.assert_close(other, one)


OUTS = ("sin", "sigmoid", "atan2", "add", "lt", "clamp_min", "hypot")


@pytest.mark.parametrize("name", OUTS)
def test_an_out_stays_laid_out_as_it_is(name: str) -> None:
    """Whatever the layout of what is computed."""
    func = getattr(torch, name)

    def fn(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> tuple[Any, ...]:
        given = (x,) if name in ("sin", "sigmoid") else (x, y)
        inner = torch.zeros(4, 5, dtype=out.dtype)
        return func(*given, out=inner), inner, func(*given, out=out) is out

    x, y = torch.rand(5, 4).t(), torch.rand(4, 5)
    kind = torch.bool if name == "lt" else torch.float32
    for operands in ((x, y), (y, x), (x, x + 1)):
        outs = [torch.zeros(5, 4, dtype=kind).t(), torch.zeros(5, 4, dtype=kind).t()]
        expected = fn(*operands, outs[0])
        found = aot.aot_function(fn, aot.run_as_is)(*operands, outs[1])
        assert [t.stride() for t in found[:2]] == [t.stride() for t in expected[:2]]
        assert found[2] is expected[2] and outs[0].stride() == outs[1].stride()
        torch.testing.assert_close([*found[:2], outs[1]], [*expected[:2], outs[0]])
