"""What the caller puts on results through which the gradients of other results go."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.errors import AotError, Unsupported

Results = tuple[torch.Tensor, ...]


def chain(x: torch.Tensor) -> Results:
    y = x * x
    return y, y.sin()


def long_chain(x: torch.Tensor) -> Results:
    y = x * x
    z = y.exp()
    return y, z, z * y


def backwards(x: torch.Tensor) -> Results:
    y = x.cos()
    return y.sin(), y


def product(x: torch.Tensor) -> Results:
    y = x @ x
    return y.sum(), y, y.relu() @ x


def drawn(x: torch.Tensor) -> Results:
    y = x * 3
    return y, torch.nn.functional.dropout(y, 0.5)


def with_a_view(x: torch.Tensor) -> Results:
    y = x * x
    return y, y.t(), y.t().sin()


def beside(x: torch.Tensor) -> Results:
    return x.sin(), x.cos()


class Viewed(torch.autograd.Function):
    """A view whose derivative is another one."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.t()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return 3 * grads[0].t()


def viewed_by_function(x: torch.Tensor) -> Results:
    y = x * x
    z: torch.Tensor = Viewed.apply(y.exp())
    return y, z, z * y


def shared_with_function(x: torch.Tensor) -> Results:
    y = x * x
    z: torch.Tensor = Viewed.apply(y)
    return y, z


def input_by_function(x: torch.Tensor) -> Results:
    y: torch.Tensor = Viewed.apply(x)
    z: torch.Tensor = Viewed.apply(y)
    return y, z


PROGRAMS = [chain, long_chain, backwards, product, drawn, with_a_view, beside, viewed_by_function]
MARKS: dict[str, Callable[[torch.Tensor, list[Any]], Any]] = {
    "nothing": lambda y, seen: None,
    "retain": lambda y, seen: y.retain_grad(),
    "hook": lambda y, seen: y.register_hook(lambda grad: seen.append(grad.clone())),
    "replace": lambda y, seen: y.register_hook(lambda grad: grad * 10 + 1),
    "both": lambda y, seen: (
        y.register_hook(lambda grad: grad * 2),
        y.retain_grad(),
        y.register_hook(lambda grad: seen.append(grad.clone())),
    ),
    "removed": lambda y, seen: y.register_hook(lambda grad: grad * 10).remove(),
}


def outcome(call: Callable[..., Any], marked: int, mark: str, asked: str, way: str) -> list[Any]:
    x = torch.arange(1.0, 5.0).reshape(2, 2).div(3).requires_grad_()
    seen: list[Any] = []
    torch.manual_seed(0)
    results = call(x)
    y = results[marked % len(results)]
    MARKS[mark](y, seen)
    chosen = results if asked == "all" else [results[-1 if asked == "last" else 0]]
    loss = torch.stack([(n + 1) * end.sum() for n, end in enumerate(chosen)]).sum()
    if way == "create_graph":
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        if first.requires_grad:
            first.sum().backward()
    else:
        loss.backward(retain_graph=way == "twice")
        if way == "twice":
            loss.backward()
    return [x.grad, y.grad if y.retains_grad else None, seen]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_it_sees_the_whole_gradient(fn: Callable[..., Any]) -> None:
    compiled = aot.aot_function(fn, aot.run_as_is)
    count = 1 if fn is with_a_view else 3
    for case in itertools.product(
        range(count), MARKS, ("all", "first", "last"), ("once", "twice", "create_graph")
    ):
        torch.testing.assert_close(
            outcome(compiled, *case),
            outcome(fn, *case),
            msg=lambda text, case=case: f"{case} {text}",
        )


def test_a_view_by_a_function_may_not_be_written_to() -> None:
    x = torch.ones(2, 2, requires_grad=True)
    for call in (viewed_by_function, aot.aot_function(viewed_by_function, aot.run_as_is)):
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            call(x)[1].mul_(2)


@pytest.mark.parametrize("fn", [shared_with_function, input_by_function], ids=lambda x: x.__name__)
def test_a_shared_view_by_a_function_is_refused(fn: Callable[..., Any]) -> None:
    """The result that it depends on would miss a part of its gradient."""
    with pytest.raises(Unsupported) as caught:
        aot.aot_function(fn, aot.run_as_is)(torch.ones(2, 2, requires_grad=True))
    assert caught.value.id == "AO0177"


def test_what_is_on_a_dead_result() -> None:
    for call in (chain, aot.aot_function(chain, aot.run_as_is)):
        x = torch.ones(2, requires_grad=True)
        y, z = call(x)
        y.register_hook(lambda grad: grad * 10)
        del y
        z.sum().backward()
        torch.testing.assert_close(x.grad, 20 * torch.ones(2).cos())


def view_of_input(x: torch.Tensor) -> Results:
    y = x.t()
    return y, y.sin()


def view_of_value(x: torch.Tensor) -> Results:
    y = (x * x).t()
    return y, y.sin()


@pytest.mark.parametrize("fn", [view_of_input, view_of_value], ids=lambda fn: fn.__name__)
def test_a_view_sees_the_whole_gradient(fn: Callable[..., Any]) -> None:
    compiled = aot.aot_function(fn, aot.run_as_is)
    for mark, asked in itertools.product(("retain", "hook", "replace"), ("all", "first", "last")):
        case = (0, mark, asked, "once")
        torch.testing.assert_close(outcome(compiled, *case), outcome(fn, *case))


def written(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x.sin()


def written_in_part(x: torch.Tensor) -> torch.Tensor:
    x[:1].mul_(2)
    return x * 3


@pytest.mark.parametrize("fn", [written, written_in_part], ids=lambda fn: fn.__name__)
def test_an_input_written_to(fn: Callable[..., Any]) -> None:
    def argument() -> torch.Tensor:
        return torch.ones(2, requires_grad=True) * 1

    kept = argument()
    kept.retain_grad()
    with pytest.raises(Unsupported, match="retain_grad"):
        aot.aot_function(fn, aot.run_as_is)(kept)
    compiled = aot.aot_function(fn, aot.run_as_is)
    compiled(argument()).sum().backward()
    with pytest.raises(Unsupported, match="retain_grad"):
        compiled(kept)
    for mark in set(MARKS) - {"nothing"}:
        found: list[Any] = []
        for call in (fn, compiled):
            late, seen = argument(), list[Any]()
            result = call(late)
            MARKS[mark](late, seen)
            result.sum().backward()
            found.append([late.grad if late.retains_grad else None, seen])
        torch.testing.assert_close(found[1], found[0])


def unbound(x: torch.Tensor) -> Results:
    y, z = (x * x).unbind()
    return y, z, (y * 3).sin() * z


def through_an_input(x: torch.Tensor) -> Results:
    x.add_(2)
    y = x.t()
    return y, y * 3


class Stopping(torch.autograd.Function):
    """A derivative that gives nothing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> None:
        return None


def stopped(x: torch.Tensor) -> Results:
    y = Stopping.apply(x)
    return y, y.sin()


def stopped_in_part(x: torch.Tensor) -> Results:
    y = Stopping.apply(x)
    return y, y.t(), x * 2, y.sin() * x


def stopped_before_a_write(x: torch.Tensor) -> Results:
    x.add_(1)
    y = Stopping.apply(x)
    return y, y.t().sin()


STOPPED = [stopped, stopped_in_part, stopped_before_a_write]
ASKED = [*PROGRAMS, view_of_input, view_of_value, unbound, through_an_input, *STOPPED]


def overwritten(x: torch.Tensor) -> Results:
    x.mul_(x.detach() + 1)
    y = x.sin()
    return y, y * y


def written_by_another(x: torch.Tensor) -> Results:
    y = x.exp()
    x.mul_(y)
    return y, x * y


OVERWRITTEN = [overwritten, written_by_another]


def whole_and_part(x: torch.Tensor, part: torch.Tensor) -> Results:
    part.mul_(2)
    y = x * 3
    return y, y.sin() * part


def two_parts(x: torch.Tensor, part: torch.Tensor) -> Results:
    y = part.sin()
    x[0].mul_(y)
    return y, x.exp(), y * part


def given_twice(x: torch.Tensor, part: torch.Tensor) -> Results:
    x.add_(part.clone())
    return part.exp(), x.t(), x * part


@pytest.mark.parametrize("fn", [whole_and_part, two_parts, given_twice], ids=lambda x: x.__name__)
@pytest.mark.parametrize(
    "take", [lambda x: x[0], lambda x: x.detach()[1], lambda x: x.view(-1)[:2]]
)
def test_arguments_that_share_memory(
    fn: Callable[..., Any], take: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    compiled = aot.aot_function(fn, aot.run_as_is)

    def asked(call: Callable[..., Any], place: int, mark: str) -> Any:
        leaf = torch.arange(1.0, 5.0).reshape(2, 2).div(3).requires_grad_()
        x = leaf * 1
        results = call(x, take(x))
        seen: list[Any] = []
        wanted = [leaf, x, *results][place]
        if wanted is not leaf:
            MARKS[mark](wanted, seen)
        loss = results[-1].mul(1.5).sum()
        return [torch.autograd.grad(loss, [leaf, wanted], allow_unused=True), seen]

    def result(call: Callable[..., Any], case: tuple[Any, ...]) -> Any:
        try:
            return asked(call, *case)
        except (RuntimeError, IndexError) as error:
            return error

    detached = not take(torch.ones(2, 2, requires_grad=True)).requires_grad
    for case in itertools.product(range(5), ("nothing", "hook", "replace")):
        found, expected = result(compiled, case), result(fn, case)
        if isinstance(found, Unsupported):
            # what is kept of a detached part after the write is not told from what was before it
            assert found.id == "AO0133" and (detached or isinstance(expected, RuntimeError))
        elif isinstance(expected, Exception):
            assert (type(found), str(found)[:20]) == (type(expected), str(expected)[:20])
        else:
            torch.testing.assert_close(
                found, expected, msg=lambda text, case=case: f"{case} {text}"
            )


@pytest.mark.parametrize("fn", [*ASKED, *OVERWRITTEN], ids=lambda fn: fn.__name__)
def test_the_gradient_by_a_result_is_asked_for(fn: Callable[..., Any]) -> None:
    """By each set of results and inputs, of the last result or of all, once or, where no value that
    the gradients depend on is gone, again of what that gives."""
    compiled = aot.aot_function(fn, aot.run_as_is)

    def asked(call: Callable[..., Any], places: tuple[int, ...], every: bool, again: bool) -> Any:
        leaf = torch.arange(1.0, 5.0).reshape(2, 2).div(3).requires_grad_()
        x = leaf * 1
        torch.manual_seed(0)
        results = call(x)
        known = [leaf, x, *results]
        wanted = [known[place] for place in places if place < len(known)]
        ends = results if every else results[-1:]
        loss = sum((n + 1) * end.mul(1.5).sum() for n, end in enumerate(ends))
        try:
            grads = torch.autograd.grad(loss, wanted, create_graph=again, allow_unused=True)
            if again:
                first = [grad for grad in grads if grad is not None and grad.requires_grad]
                ends = [grad.square().sum() for grad in first]
                return torch.autograd.grad(sum(ends), wanted, allow_unused=True) if ends else None
        except RuntimeError as error:
            return str(error)[:40]
        return grads

    places = [(2,), (0, 2), (3,), (2, 3), (1,), (1, 2, 3), (0,), (0, 4)]
    again = (False,) if fn in OVERWRITTEN else (False, True)
    for case in itertools.product(places, (False, True), again):
        expected, found = asked(fn, *case), asked(compiled, *case)
        torch.testing.assert_close(found, expected, msg=lambda text, case=case: f"{case} {text}")


def test_there_is_no_gradient_as_eagers_without_the_derivative() -> None:
    compiled = aot.aot_function(chain, aot.run_as_is, options=aot.Options(higher_order=False))
    with pytest.raises(AotError, match="on which another result depends"):
        outcome(compiled, 0, "hook", "last", "once")
    outcome(compiled, 0, "nothing", "last", "once")


class Counting(torch.autograd.Function):
    """A derivative that writes to an input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        ctx.count = count
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        ctx.count.add_(1)
        return grads[0] * ctx.count, None


def counted(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = Counting.apply(x, count)
    return y


def begun(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    other.requires_grad_()
    return x * 2


def drawing_again(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    class Drawing(torch.autograd.Function):
        """A derivative that draws."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            return grads[0] * torch.rand_like(grads[0])

    y: torch.Tensor = Drawing.apply(x)
    return y * other


NOT_RUN_AGAIN = [counted, begun, drawing_again]


@pytest.mark.parametrize("first", NOT_RUN_AGAIN, ids=lambda fn: fn.__name__)
def test_what_cannot_be_run_again_is_refused_where_results_depend(
    first: Callable[..., torch.Tensor],
) -> None:
    """At compile time; with results that do not depend on each other it is compiled."""

    def apart(x: torch.Tensor, other: torch.Tensor) -> Results:
        y = first(x, other)
        return y.sin(), y.cos()

    def depending(x: torch.Tensor, other: torch.Tensor) -> Results:
        y = first(x, other)
        return y, y.cos()

    def arguments() -> Results:
        x = torch.ones(3, requires_grad=True) * 1
        return x, torch.ones(3)

    with pytest.raises(Unsupported) as caught:
        aot.aot_function(depending, aot.run_as_is)(*arguments())
    assert caught.value.id == "AO0166"
    found = aot.aot_function(apart, aot.run_as_is)(*arguments())
    torch.testing.assert_close(found, apart(*arguments()))
