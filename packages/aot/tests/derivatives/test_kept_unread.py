"""What torch's derivatives keep without reading it, and what they give without reading a gradient.

The operators are those of torch with one tensor, or two, that have a derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch

UNARY = (
    "sgn sign abs neg exp log sqrt sin tanh relu sigmoid floor ceil trunc round frac positive "
    "reciprocal square erf lgamma expm1 log1p rsqrt sinh atan sinc deg2rad nan_to_num cumsum "
    "cumprod softmax log_softmax logcumsumexp prod sum mean amax norm std var sort flip roll "
    "t clone angle i0 digamma logit erfinv relu_ exp_ sgn_ tanh_ mul_ floor_"
).split()
BINARY = "add sub mul div pow atan2 maximum minimum fmod remainder hypot copysign xlogy mm".split()
WITH: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("cumsum", "cumprod", "softmax", "log_softmax", "logcumsumexp"), (0,)),
    "flip": ((0,),),
    "roll": (1,),
    "mul_": (2.0,),
}


def called(name: str) -> Callable[[torch.Tensor, torch.Tensor], Any]:
    method = getattr(torch.Tensor, name, None) or getattr(torch, name)

    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        given = x + 1 if name.endswith("_") else x
        return method(given, y) if name in BINARY else method(given, *WITH.get(name, ()))

    return fn


def outcomes(call: Callable[..., Any]) -> list[str]:
    """What becomes of a backward pass after a write to each operand and result."""
    seen = []
    for place in range(3):
        x, y = (torch.rand(3, 3).mul(0.8).add(0.1).requires_grad_().mul(1) for _ in range(2))
        found = call(x, y)
        result = found[0] if isinstance(found, tuple) else found
        with torch.no_grad():
            (x, y, result)[place].add_(0)
        try:
            result.sum().backward()
            seen.append("answers")
        except RuntimeError as error:
            seen.append(str(error)[:40])
    return seen


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_a_write_to_what_is_kept_is_noticed_where_eager_notices_it(name: str) -> None:
    fn = called(name)
    assert outcomes(aot.aot_function(fn, aot.run_as_is)) == outcomes(fn)


ZEROS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "power": lambda x: x.pow(0),
    "sign": lambda x: x.sgn(),
    "floor": lambda x: x.floor(),
    "empty view": lambda x: x.as_strided((0,), (1,)),
    "view": lambda x: x.as_strided((2,), (1,)),
    "floor of a power": lambda x: x.pow(0).floor() * 2,
}


@pytest.mark.parametrize("name", ZEROS)
@pytest.mark.parametrize("size", [0, 3])
def test_zeros_that_a_derivative_makes_are_a_gradient(name: str, size: int) -> None:
    if name == "view" and not size:
        return

    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ZEROS[name](x), x * y, y + 1

    seen = []
    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        for asked in ((0,), (1,), (2,), (0, 1), (0, 2), (0, 1, 2)):
            x, y = (torch.ones(size, requires_grad=True) for _ in range(2))
            results = call(x, y)
            sum(results[at].sum() for at in asked).backward()
            seen.append([None if t.grad is None else (t.grad + 0).tolist() for t in (x, y)])
    assert seen[len(seen) // 2 :] == seen[: len(seen) // 2]


def operator(view: bool) -> Any:
    name = f"flambeau_test_kept::{'view' if view else 'fresh'}"

    @torch.library.custom_op(name, mutates_args=())
    def own(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).view(-1) if view else (x + 1).reshape(-1).clone()

    own.register_fake(lambda x: torch.empty_like(x).reshape(-1))
    own.register_autograd(lambda ctx, g: g)
    return own


@pytest.mark.parametrize("view", [True, False])
def test_a_write_to_a_custom_operators_result_is_eagers_to_refuse(view: bool) -> None:
    own = operator(view)
    for fn in (lambda x: own(x).add_(1), lambda x: own(x)[0].mul_(2)):
        compiled = aot.aot_function(fn, aot.run_as_is)
        with pytest.raises(aot.Unsupported, match="AO0163"):
            compiled(torch.ones(3, requires_grad=True))
        assert torch.equal(compiled(torch.ones(3)), fn(torch.ones(3)))


@pytest.mark.parametrize("layout", ["row-major", "channels last", "transposed", "strided"])
def test_the_gradient_of_a_loss_of_images_is_refused_by_layout(layout: str) -> None:
    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.nll_loss(x, target)

    def refused(call: Callable[..., Any]) -> bool:
        x = torch.rand(2, 3, 4, 4)
        if layout == "channels last":
            x = x.contiguous(memory_format=torch.channels_last)
        elif layout == "transposed":
            x = x.transpose(2, 3)
        elif layout == "strided":
            x = torch.rand(2, 3, 4, 8)[..., ::2]
        try:
            call(x.requires_grad_(), torch.zeros(2, 4, 4, dtype=torch.long)).backward()
        except RuntimeError as error:
            return "must be contiguous" in str(error)
        return False

    assert refused(aot.aot_function(loss, aot.run_as_is)) == refused(loss)


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad.sin()


@pytest.mark.filterwarnings("ignore:a derivative of a compiled program runs eagerly")
def test_a_derivative_that_a_later_call_has_none_of_runs_eagerly() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * x * y

    compiled = aot.aot_function(fn, aot.run_as_is)
    for before in (lambda x: x * 1, Own.apply):
        seen = []
        for call in (fn, compiled):
            x, y = (torch.tensor([0.3, 0.7], requires_grad=True) for _ in range(2))
            (slope,) = torch.autograd.grad(call(before(x), y).sum(), y, create_graph=True)
            given = before(x)
            result = call(given, y)
            (slope,) = torch.autograd.grad(result.sum(), given, create_graph=True)
            (slope * slope).sum().backward()
            seen.append((x.grad, y.grad))
        torch.testing.assert_close(seen[1], seen[0])
