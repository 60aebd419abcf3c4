"""Autograd functions of the user's, by a small grammar, against eager: values, gradients, what is
a view of what, and whether the user's derivative was called.

A program is a function (what its forward returns and how its derivative undoes it), what it is
applied to, and what the program returns. Each derivative scales by a number that no view has, so
that a derivative that was skipped is seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch.autograd.function import once_differentiable


def _part(like: torch.Tensor, place: Any, value: torch.Tensor) -> torch.Tensor:
    whole = torch.zeros_like(like)
    whole[place] = value
    return whole


@dataclass(frozen=True)
class Kind:
    """results: of a 2 x 3 tensor, what forward returns. pull: of that tensor and one derivative a
    result, the derivative."""

    name: str
    results: Callable[[torch.Tensor], Any]
    pull: Callable[..., torch.Tensor]


KINDS = [
    Kind("itself", lambda x: x, lambda x, g: -g),
    Kind("view_as", lambda x: x.view_as(x), lambda x, g: -g),
    Kind("view", lambda x: x.view(-1), lambda x, g: -3 * g.view(2, 3)),
    Kind("transposed", lambda x: x.t(), lambda x, g: 5 * g.t()),
    Kind("expand", lambda x: x.expand(4, 2, 3), lambda x, g: g.sum(0) * 0.5),
    Kind("first", lambda x: x[0], lambda x, g: _part(x, 0, 7 * g)),
    Kind("reshape", lambda x: x.reshape(3, 2), lambda x, g: -2 * g.reshape(2, 3)),
    Kind("chain", lambda x: x[:, 1:].t()[0], lambda x, g: _part(x, (slice(None), 1), 3 * g)),
    Kind("detached", lambda x: x.detach(), lambda x, g: 11 * g),
    Kind("new", lambda x: x * 2, lambda x, g: g * x),
    Kind("parts", lambda x: (x[0], x[1]), lambda x, a, b: torch.stack([a * 5, b * 7])),
    Kind("with new", lambda x: (x, x * 2), lambda x, a, b: a * 3 + b * x),
    Kind("two views", lambda x: (x.view(-1), x.t()), lambda x, a, b: a.view(2, 3) * 2 - b.t()),
    Kind("unbound", lambda x: x.unbind(), lambda x, a, b: torch.stack([b, -a])),
]


def function_of(kind: Kind, once: bool, flag: str) -> Callable[[torch.Tensor], Any]:
    """The autograd function's `apply`. flag: "", "not all" (the last of several results has no
    derivative), "bare" (undefined gradients are not made zeros), "other" (a second argument, whose
    derivative is None)."""

    def forward(ctx: Any, x: torch.Tensor, other: Any = None) -> Any:
        results = kind.results(x)
        ctx.save_for_backward(x)
        if flag == "not all" and isinstance(results, tuple):
            ctx.mark_non_differentiable(results[-1])
        return results

    def bare(ctx: Any, x: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        return forward(ctx, x)

    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if None in [None if g is None else 0 for g in grads]:
            results = flat(kind.results(x))
            grads = tuple(
                torch.zeros_like(y) if g is None else g for y, g in zip(results, grads, strict=True)
            )
        found = kind.pull(x, *grads)
        return (found, None) if flag == "other" else found

    methods = {
        "forward": staticmethod(bare if flag == "bare" else forward),
        "backward": staticmethod(once_differentiable(backward) if once else backward),
    }
    made = type("Own", (torch.autograd.Function,), methods)
    if flag == "other":
        return lambda x: made.apply(x, torch.ones(2))  # type: ignore[attr-defined]
    return made.apply  # type: ignore[attr-defined, no-any-return]


ARGUMENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "input": lambda x: x,
    "computed": lambda x: x * 2,
    "view of input": lambda x: x.view(3, 2).view(2, 3),
    "view of computed": lambda x: (x * 2).view(6).view(2, 3),
}

RETURNED: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "result": lambda y, a: y,
    "and argument": lambda y, a: (a, y),
    "and views": lambda y, a: (y, _first(y).unsqueeze(0)),
    "used": lambda y, a: _first(y) * 2 + 1,
    "view of it": lambda y, a: _first(y)[0],
    "and used": lambda y, a: (_first(y).exp(), y),
    "detached": lambda y, a: (_first(y).detach(), a * 3),
}


def _first(value: Any) -> torch.Tensor:
    return value[0] if isinstance(value, tuple) else value


def flat(results: Any) -> list[torch.Tensor]:
    if isinstance(results, torch.Tensor):
        return [results]
    return [tensor for item in results for tensor in flat(item)]


def related(x: torch.Tensor, results: list[torch.Tensor]) -> Any:
    """Which of these share memory, and what each is a view of."""
    tensors = [x, *results]
    keys = [t.untyped_storage().data_ptr() for t in tensors]
    shared = [[one == other for other in keys] for one in keys]
    bases = [[t._base is other for other in tensors] for t in results]
    return shared, bases, [t._base is None for t in results]


def observed(program: Callable[..., Any], leaf: bool, double: bool) -> Any:
    """What a caller sees: results, their kin, gradients of each and of all, of second order too."""
    start = torch.arange(1.0, 7.0).view(2, 3).requires_grad_()
    x = start if leaf else start.clone()
    results = flat(program(x))
    ends = [t for t in results if t.grad_fn is not None]
    weights = [torch.arange(2.0, 2.0 + t.numel()).view(t.shape) for t in ends]
    gradients = []
    for end, weight in zip(ends, weights, strict=True):
        gradients += torch.autograd.grad(end, start, weight, retain_graph=True, allow_unused=True)
    if ends:
        total = sum((end * end).sum() for end in ends)
        (grad,) = torch.autograd.grad(
            total, start, create_graph=double, retain_graph=True, allow_unused=True
        )
        gradients.append(grad)
        if double and grad is not None and grad.requires_grad:
            gradients += torch.autograd.grad(grad.square().sum(), start, allow_unused=True)
    return (
        [t.detach().clone() for t in results],
        [(t.requires_grad, t.grad_fn is None, t.stride()) for t in results],
        related(x, results),
        gradients,
    )


FLAGGED = [
    (kind, once, flag)
    for kind in KINDS
    for once, flag in ((True, ""), (False, "not all"), (False, "bare"), (True, "other"))
    if flag != "not all" or kind.name in ("parts", "with new", "two views")
]


def _id(case: tuple[Kind, bool, str]) -> str:
    kind, once, flag = case
    return " ".join([kind.name, flag, "once" if once else ""]).strip()


def compare(case: tuple[Kind, bool, str], argument: str, returned: str, leaf: bool) -> None:
    apply = function_of(*case)

    def program(x: torch.Tensor) -> Any:
        a = ARGUMENTS[argument](x)
        return RETURNED[returned](apply(a), a)

    double = not case[1]
    expected = observed(program, leaf, double)
    compiled = aot.aot_function(program, aot.run_as_is)
    if (case[0].name, returned) == ("detached", "and views") and "input" in argument:
        with pytest.raises(aot.Unsupported, match="itself an alias"):
            observed(compiled, leaf, double)
        return
    several = case[0].name in ("parts", "with new", "two views", "unbound")
    if case[2] == "bare" and several:
        # what the derivative is given differs from one backward pass to another
        with pytest.raises(aot.Unsupported, match="set_materialize_grads"):
            observed(compiled, leaf, double)
        return
    for _ in range(2):
        try:
            found = observed(compiled, leaf, double)
        except aot.Unsupported as error:
            assert error.id == "AO0177"
            assert one_depends(program, leaf)
            return
        torch.testing.assert_close(found, expected)


def one_depends(program: Callable[..., Any], leaf: bool) -> bool:
    """Whether the gradient of a result goes through another one that shares its memory."""
    start = torch.arange(1.0, 7.0).view(2, 3).requires_grad_()
    results = [x for x in flat(program(start if leaf else start.clone())) if x.grad_fn is not None]
    for end, by in itertools.permutations(results, 2):
        if end.untyped_storage().data_ptr() == by.untyped_storage().data_ptr():
            found = torch.autograd.grad(end.sum(), by, allow_unused=True, retain_graph=True)
            if found[0] is not None:
                return True
    return False


@pytest.mark.sweep(3)
@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_function_of_the_users(kind: Kind, argument: str) -> None:
    # every third of what may be returned, beginning elsewhere for each pair
    start = KINDS.index(kind) + 2 * list(ARGUMENTS).index(argument)
    for number in range(start, start + 3):
        returned = list(RETURNED)[(number * 3) % len(RETURNED)]
        compare((kind, False, ""), argument, returned, leaf=bool(number % 2))


@pytest.mark.parametrize("case", FLAGGED, ids=_id)
def test_what_a_function_says_of_itself(case: tuple[Kind, bool, str]) -> None:
    for argument, returned in (("input", "and used"), ("computed", "result")):
        compare(case, argument, returned, leaf=True)


def _of_a_cat(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * 1
    alias = y.detach()
    alias.mul_(w)
    return y, alias


def _two_aliases(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x.detach()
    y[0] = w[0]
    return y, y.data, w * 2


def _of_the_input(x: torch.Tensor, w: torch.Tensor) -> Any:
    alias = x.detach()
    alias.add_(w * 2)
    return alias


def _a_view_of_it(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * 1
    part = y.detach()[0]
    part.copy_(w[1])
    return y, part


@pytest.mark.parametrize("fn", [_of_a_cat, _two_aliases, _of_the_input, _a_view_of_it])
def test_an_alias_to_which_a_value_that_requires_grad_was_written(fn: Callable[..., Any]) -> None:
    def outcome(call: Callable[..., Any]) -> Any:
        x = torch.arange(1.0, 7.0).view(2, 3).requires_grad_()
        w = torch.arange(3.0, 9.0).view(2, 3).requires_grad_()
        results = call(x, w)
        results = results if isinstance(results, tuple) else (results,)
        sum((item * item).sum() for item in results if item.requires_grad).backward()  # type: ignore[attr-defined]
        kin = related(x, list(results))
        before = [item._version for item in results]
        results[0].detach().mul_(2)
        counted = [item._version - count for item, count in zip(results, before, strict=True)]
        flags = [item.requires_grad for item in results]
        return [item.detach() for item in results], flags, kin, x.grad, w.grad, x.detach(), counted

    compiled = aot.aot_function(fn, aot.run_as_is)
    for _ in range(2):
        torch.testing.assert_close(outcome(compiled), outcome(fn))
