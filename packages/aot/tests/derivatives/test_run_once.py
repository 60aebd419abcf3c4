"""Derivatives of a user's that are not linear in the gradient run once in each pass, of the whole
of it, of whatever order, also where the caller requests what gradients give to a result that they
depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch

T = torch.Tensor
grad = torch.autograd.grad


class _Own(torch.autograd.Function):
    @staticmethod
    def answer(g: T) -> T:
        raise NotImplementedError

    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        return x.clone()

    @classmethod
    def backward(cls, ctx: Any, *grads: T) -> T:
        own: Any = type(ctx)._forward_cls
        return own.answer(grads[0])  # type: ignore[no-any-return]


def _own(answer: Callable[[T], T]) -> Any:
    return type("Own", (_Own,), {"answer": staticmethod(answer)})


ANSWERS: dict[str, Callable[[T], T]] = {
    "and one": lambda g: g + 1,
    "clamped": lambda g: g.clamp(-1.5, 1.5),
    "squared": lambda g: g * g * 0.1,
    "in place": lambda g: g.clone().add_(2),
    "twice": lambda g: g * 2,  # linear
}
PROGRAMS: dict[str, Callable[[Any, T], tuple[T, ...]]] = {
    "before what keeps its result": lambda own, x: (x * 1, own(x * 2).tanh()),
    "beside it": lambda own, x: (lambda v: (v.tanh(), (v * x).exp()))(own(x * 2)),
    "behind it": lambda own, x: (own((x * 0.5).exp()).sin(), x.tanh()),
    "two": lambda own, x: (own(own(x * 2).tanh() * x), x.exp()),
    "of an input": lambda own, x: (own(x).sigmoid() * x, x),
    "what is kept is no result": lambda own, x: (own((x * 2).tanh()).exp() * x, own(x) * x),
}


def _passes(call: Callable[[T], tuple[T, ...]]) -> list[Any]:
    torch.manual_seed(0)
    leaf = torch.rand(3, 4, requires_grad=True)
    found: list[Any] = []
    out = call(leaf)
    by = [leaf, *(o for o in out if o is not leaf)]
    (first,) = grad(sum(o.square().sum() for o in out), leaf, create_graph=True)
    found.append(first)
    further = first.square().sum() + sum(o.sum() for o in out)
    seconds = grad(further, by, create_graph=True, allow_unused=True)
    found += seconds
    given = [second.square().sum() for second in seconds if second is not None]
    found += grad(sum(given), by, allow_unused=True)
    return [x.detach() if isinstance(x, T) else x for x in found]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore:a derivative of a compiled program runs eagerly")
def test_a_derivative_runs_once_in_each_pass(name: str, answer: str) -> None:
    own = _own(ANSWERS[answer])
    compiled = aot.aot_function(lambda x: PROGRAMS[name](own.apply, x), aot.run_as_is)
    expected = _passes(lambda x: PROGRAMS[name](own.apply, x))
    given = _passes(compiled)
    assert list(map(type, given)) == list(map(type, expected))
    pairs = [(g, e) for g, e in zip(given, expected, strict=True) if isinstance(e, T)]
    for got, want in pairs:
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


class _ToNone(torch.autograd.Function):
    """One that gives a gradient where none is asked of it: eager does not come to it then."""

    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        ctx.set_materialize_grads(False)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: T | None) -> T:
        return torch.ones(3, 4) if grads[0] is None else grads[0] * 2


DEPENDED = {
    "kept": lambda own, x: (x * 1, own(x * 2).tanh()),
    "two kept": lambda own, x: (own(x * 2).tanh(), own(x).exp()),
    "in a row": lambda own, x: ((v := own(x * 2).tanh()), own(v).exp()),
    "depended on": lambda own, x: ((v := own(x * 2)), v.sin() * x),
}


def _hooked(call: Callable[[T], tuple[T, ...]]) -> Callable[[T], tuple[T, ...]]:
    def hooked(x: T) -> tuple[T, ...]:
        out = call(x)
        for place, each in enumerate(out):
            each.register_hook(lambda g, n=place: g * (n + 2))
        return out

    return hooked


@pytest.mark.parametrize("hooks", (False, True), ids=("", "hooks"))
@pytest.mark.parametrize("name", DEPENDED)
@pytest.mark.filterwarnings("ignore:a derivative of a compiled program runs eagerly")
def test_a_derivative_that_no_gradient_comes_to_is_not_run(name: str, hooks: bool) -> None:
    def program(x: T) -> tuple[T, ...]:
        return DEPENDED[name](_ToNone.apply, x)

    calls = [program, aot.aot_function(program, aot.run_as_is)]
    expected, given = (_passes(_hooked(call) if hooks else call) for call in calls)
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)
