"""`detach_` of inputs, and views that callers write to afterwards: as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch


def before(x: torch.Tensor) -> Any:
    y = x.exp() * 2
    x.detach_()
    return y


def before_and_after(x: torch.Tensor) -> Any:
    y = x.exp()
    x.detach_()
    return y.detach(), x.cos(), (y * x).sum()


def written_afterwards(x: torch.Tensor) -> Any:
    y = x * 3
    x.detach_()
    x.mul_(2)
    return y, x, x.requires_grad, x.is_leaf


def written_before(x: torch.Tensor) -> Any:
    if x.is_leaf and x.requires_grad:
        return (x.clone(),)
    x.mul_(3)
    y = x.exp()
    x.detach_()
    return y, x


def views(x: torch.Tensor) -> Any:
    earlier = x[1:]
    x.detach_()
    return earlier, x[:2], x.t() if x.dim() == 2 else x.view(-1)


def not_at_all(x: torch.Tensor) -> Any:
    y = x.detach()
    y.detach_()
    return y * 2, x.sin()


PROGRAMS: list[Callable[[torch.Tensor], Any]] = [
    before,
    before_and_after,
    written_afterwards,
    written_before,
    views,
    not_at_all,
]
MADE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "leaf": lambda leaf: leaf,
    "of a history": lambda leaf: leaf * 2,
    "without grad": lambda leaf: leaf.detach().clone(),
}


def seen(call: Callable[..., Any], made: Callable[[torch.Tensor], torch.Tensor]) -> list[Any]:
    leaf = torch.arange(1.0, 5.0).requires_grad_()
    x = made(leaf)
    version = x._version
    results = call(x)
    results = results if isinstance(results, tuple) else (results,)
    facts: list[Any] = [x.requires_grad, x.is_leaf, x._version - version, x.detach().clone()]
    tensors = [item for item in results if isinstance(item, torch.Tensor)]
    facts += [item for item in results if not isinstance(item, torch.Tensor)]
    for item in tensors:
        facts += [item.detach().clone(), item.requires_grad, item.is_leaf, item._base is x]
    ends = [item.sum() for item in tensors if item.grad_fn is not None]
    if ends:
        sum(ends).backward()  # type: ignore[attr-defined]
    return [*facts, leaf.grad]


@pytest.mark.parametrize("kind", list(MADE))
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_an_input_that_is_detached_in_place(fn: Callable[..., Any], kind: str) -> None:
    compiled = aot.aot_function(fn, aot.run_as_is)
    for _ in range(2):
        expected, given = seen(fn, MADE[kind]), seen(compiled, MADE[kind])
        torch.testing.assert_close(given, expected)


def test_a_view_is_not_detached_in_place() -> None:
    for call in (before, aot.aot_function(before, aot.run_as_is)):
        with pytest.raises(RuntimeError, match="Can't detach views in-place"):
            call(torch.arange(4.0)[1:])


def before_with_a_result_of_a_result(x: torch.Tensor) -> Any:
    y = x.exp()
    x.detach_()
    return y, x.cos(), (y * x).sum()


def written_with_grad(x: torch.Tensor) -> Any:
    y = x.exp()
    x.detach_()
    return x.add_(y), y


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda x: x.detach_().requires_grad_().sin(), "that was detached in place"),
        (lambda x: (x.detach_(), x.unsqueeze_(0))[1] * 2, "detached in place and given another"),
        (written_with_grad, "requires grad is written"),
        (before_with_a_result_of_a_result, "AO0166"),
        (lambda x: (x.detach_(), x.grad)[1], r"reading \.grad of an input"),
    ],
)
def test_what_is_refused_beside_it(fn: Callable[..., Any], words: str) -> None:
    with pytest.raises(aot.Unsupported, match=words):
        aot.aot_function(fn, aot.run_as_is)(torch.arange(3.0).requires_grad_() * 2)


def test_an_input_with_another_one_as_a_view_is_not_detached() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.detach_()
        return y * 2

    compiled = aot.aot_function(fn, aot.run_as_is)
    x = torch.arange(3.0).requires_grad_() * 2
    with pytest.raises(aot.Unsupported, match="of which another one is a view"):
        compiled(x, x[1:])
    assert compiled(x, (x * 1)[1:]).requires_grad
    assert not x.requires_grad


def test_a_detached_input_may_get_another_history() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        y.detach_()
        return x * 2, y

    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
        double, same = call(x, y)
        same.mul_(x)
        (double.sum() + same.sum()).backward()
        assert x.grad is not None and torch.equal(x.grad, torch.full((3,), 3.0))


def test_a_second_derivative_is_refused() -> None:
    x = torch.arange(3.0).requires_grad_() * 2
    y = aot.aot_function(lambda x: (x.exp(), x.detach_())[0], aot.run_as_is)(x)
    with pytest.raises(aot.DoubleBackwardError, match="changes whether an input requires grad"):
        y.sum().backward(create_graph=True)


def parts(x: torch.Tensor) -> Any:
    y = x * 2
    with torch.no_grad():
        unrecorded = x[1:]
        other = y[1:]
    several = (x * 3).split(2)[1], x.unbind()[0]
    plain = x[1:], x.detach(), x.detach()[1:], x[1:].detach(), x.data[1:], y[:2]
    return *plain, unrecorded, other, *several


@pytest.mark.parametrize("place", range(10))
def test_a_caller_writes_what_requires_grad_to_a_view(place: int) -> None:
    outcomes = []
    for call in (parts, aot.aot_function(parts, aot.run_as_is)):
        x, factor = torch.arange(1.0, 5.0), torch.tensor(3.0, requires_grad=True)
        result = call(x)[place]
        try:
            result.mul_(factor)
        except RuntimeError as error:
            words = (
                "A view was created in no_grad mode",
                "is a view and is being modified inplace",
            )
            outcomes.append([torch.tensor([word in str(error) for word in words])])
            assert outcomes[-1][0].any()
            continue
        total = (result * result).sum() + (x.sum() if x.requires_grad else 0)
        (grad,) = torch.autograd.grad(total, factor)
        outcomes.append([x.requires_grad, result._base is x, x.detach(), result.detach(), grad])
    torch.testing.assert_close(outcomes[1], outcomes[0])


def without_history(x: torch.Tensor) -> Any:
    zeros = torch.zeros_like(x)
    return zeros.as_strided_((2,), (1,)), (x.detach() * 2).view(2, 2), x.detach()[1:].clone()[None]


@pytest.mark.parametrize("more", [True, False], ids=["beside a derivative", "alone"])
@pytest.mark.parametrize("place", range(3))
def test_a_caller_writes_what_requires_grad_to_a_result_without_grad(
    place: int, more: bool
) -> None:
    def fn(x: torch.Tensor) -> Any:
        return *without_history(x), x.sin() if more else None

    outcomes = []
    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        factor = torch.tensor(3.0, requires_grad=True)
        result = call(torch.arange(4.0).requires_grad_())[place]
        result.mul_(factor)
        outcomes.append([result.detach(), *torch.autograd.grad(result.sum(), factor)])
    torch.testing.assert_close(outcomes[1], outcomes[0])


def test_a_write_of_another_shape_to_a_view_made_without_grad_raises_as_eager() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.copy_(y)
        return y

    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        with torch.no_grad():
            view = torch.randn(4, 3)[1:]
        with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
            call(view, torch.randn(5, 3, requires_grad=True))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch._foreach_mul_([x, x[1:], x], 0.5),
        lambda x: torch._foreach_add_([x, x], [x, x]),
        lambda x: torch._foreach_mul_([x[:2], x[1:3]], [2.0, 3.0]),
        lambda x: torch._foreach_sqrt_([x, x.view(-1)]),
    ],
)
def test_a_list_of_tensors_that_share_memory_is_written_in_order(fn: Callable[..., Any]) -> None:
    one, other = torch.arange(1.0, 5.0), torch.arange(1.0, 5.0)
    fn(one)
    aot.aot_function(fn, aot.run_as_is)(other)
    assert torch.equal(one, other)
    assert not torch.equal(one, torch.arange(1.0, 5.0))
