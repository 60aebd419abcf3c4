"""Writes through a view of each kind leave the rest of the tensor as it is, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch import Tensor

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "select": lambda x: x[1],
    "slice": lambda x: x[1:4:2],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "diagonal": lambda x: x.diagonal(1),
    "transpose": lambda x: x.t()[2],
    "as_strided": lambda x: x.as_strided((2, 2), (7, 1), 3),
    "chunk": lambda x: x.chunk(3)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "split": lambda x: torch.split(x, [1, 3, 2])[1],
    "reshape": lambda x: x.view(4, 9)[2],
    "expand and back": lambda x: x.unsqueeze(0).squeeze(0)[0],
    "swap": lambda x: x.movedim(0, 1)[1:3],
    "parts": lambda x: x.unflatten(1, (2, 3))[:, 1],
    "bits": lambda x: x.view(torch.int32)[2],
    "expand to itself": lambda x: x.expand(6, -1),
    "expand by one": lambda x: x.expand(1, 6, 6)[0, 1:],
    "broadcast by one": lambda x: torch.broadcast_to(x[:1], (1, 6)),
    "expand as itself": lambda x: x.t().expand_as(x)[:, :2],
    "repeated": lambda x: x.expand(2, 6, 6)[1],
    "repeated within": lambda x: x[:, :1].expand(6, 3)[:, 2],
    "grid": lambda x: torch.meshgrid(x[0], x.new_ones(1), indexing="ij")[0],
    "unfold with gaps": lambda x: x.unfold(0, 1, 3),
    "a window": lambda x: x.unfold(1, 2, 3)[:, 1],
    "a window's part": lambda x: x.t().unfold(1, 3, 3)[0].t()[1],
}
REFUSED = {"unfold": "(unfold)", "window": "(unfold)", "repeated": "expanded", "grid": "expanded"}
WRITES: dict[str, Callable[[Tensor], Any]] = {
    "neg_": lambda view: view.neg_(),
    "mul_": lambda view: view.mul_(2),
    "fill_": lambda view: view.fill_(7),
    "copy_": lambda view: view.copy_(torch.full_like(view, 3)),
    "setitem": lambda view: view.__setitem__(..., 5),
    "out": lambda view: torch.neg(view.clone(), out=view),
    "out in place": lambda view: torch.maximum(view, view.new_ones(()), out=view),
    "out of a reduction": lambda view: torch.amax(torch.stack([view, view]), 0, out=view),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("of_input", [True, False])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_the_rest_stays(view: str, write: str, of_input: bool) -> None:
    def fn(x: Tensor) -> Tensor:
        base = x if of_input else x + 0
        WRITES[write](VIEWS[view](base))
        return base * 1

    expected, given = (torch.arange(36.0).view(6, 6) for _ in range(2))
    for x in (expected, given):
        x.diagonal().copy_(torch.tensor([0.0, -0.0, float("inf"), 1e30, -1e-30, 3.0]))
    wanted = fn(expected)
    try:
        found = aot.aot_function(fn, aot.run_as_is)(given)
    except aot.Unsupported as error:
        names = [told for word, told in REFUSED.items() if word in view]
        assert any(name in str(error) for name in names), error
        return
    for one, other in ((found, wanted), (given, expected)):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(one.signbit(), other.signbit())


INTO_A_VIEW: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "another size": lambda view, x: torch.neg(x[:1, :1], out=view),
    "another dtype": lambda view, x: torch.add(x[1].int(), 1, out=view),
    "drawn": lambda view, x: torch.bernoulli(view.clone().clamp(0, 1), out=view),
    "with grad": lambda view, x: torch.mul(view.clone(), x.requires_grad_()[0], out=view),
    "elsewhere in its memory": lambda view, x: torch.neg(view.as_strided((6,), (1,), 8), out=view),
}
NOT_INTO_A_VIEW = ("another size", "with grad", "elsewhere in its memory")


@pytest.mark.parametrize("write", INTO_A_VIEW)
def test_an_out_that_is_a_view_is_written_or_refused(write: str) -> None:
    def fn(x: Tensor) -> Tensor:
        base = torch.zeros(6, 6) + 0.5
        INTO_A_VIEW[write](base[1], x)
        return base * 1

    def outcome(call: Callable[..., Tensor]) -> Tensor:
        torch.manual_seed(0)
        return call(torch.ones(6, 6))

    if write in NOT_INTO_A_VIEW:
        with pytest.raises(aot.Unsupported, match=r"AO0085|AO0087|don't support automatic"):
            outcome(aot.aot_function(fn, aot.run_as_is))
    else:
        assert torch.equal(outcome(aot.aot_function(fn, aot.run_as_is)), outcome(fn))


UNCOUNTED: dict[str, Callable[[Tensor], Any]] = {
    "all": lambda x: x.data.mul_(2),
    "from itself": lambda x: x.data.copy_(x * 2),
    "a row": lambda x: x.data[0].mul_(2),
    "twice": lambda x: (x.data.add_(1), x.data.t()[1].mul_(3)),
}
KEPT = {name: view for name, view in VIEWS.items() if "bits" not in name and "unfold" not in name}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("write", UNCOUNTED)
@pytest.mark.parametrize("view", [*KEPT, "itself", "detached"])
def test_a_derivative_reads_a_view_of_what_is_written_to_unseen(view: str, write: str) -> None:
    """`data` does not count a write: the backward pass reads what the memory holds then."""
    taken = {**KEPT, "itself": lambda x: x, "detached": torch.detach}[view]

    def fn(x: Tensor, weight: Tensor) -> Any:
        kept = taken(weight)
        result = x * kept
        UNCOUNTED[write](weight)
        return result.sin(), weight * 1, kept * 3

    def outcome(call: Callable[..., Any]) -> list[Tensor]:
        x, weight = torch.ones(1, requires_grad=True), torch.arange(36.0).view(6, 6).clone()
        results = call(x, weight)
        results[0].sum().backward()
        assert x.grad is not None
        return [*(result.detach() for result in results), weight, x.grad]

    pairs = zip(outcome(aot.aot_function(fn, aot.run_as_is)), outcome(fn), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


NEITHER_TURNED: dict[str, Callable[[Tensor], Tensor]] = {
    "resolve_conj": torch.resolve_conj,
    "resolve_neg": torch.resolve_neg,
    "parts and back": lambda z: torch.view_as_complex(torch.view_as_real(z)),
    "twice conjugated": lambda z: z.conj().conj(),
}


@pytest.mark.parametrize("same", NEITHER_TURNED.values(), ids=NEITHER_TURNED)
def test_a_view_that_is_its_own_argument(same: Callable[[Tensor], Tensor]) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        z = torch.view_as_complex(x)
        same(z)[1:] += 2
        x[-1] = x[0] + 1
        return x, z.sub_(same(z)[:1].clone())

    x = torch.arange(4.0).reshape(2, 2)
    for mine, eagers in zip(
        aot.aot_function(program, aot.run_as_is)(x.clone()), program(x), strict=True
    ):
        torch.testing.assert_close(mine, eagers)


class Whole(torch.autograd.Function):
    """A copy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return sum(grad.sum() for grad in grads if grad is not None) * torch.ones(3, 4)


class OwnView(Whole):
    """A view of memory of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        return x.clone().view(12)


class ViewOfGiven(Whole):
    """A view of what it is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        return x.view(12)


class TwoViews(Whole):
    """Two views of memory of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        made = x.clone()
        return made.view(12), made[0]


class ViewAndWhole(Whole):
    """A view, and what it is of."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        made = x.clone()
        return made.view(12), made


RETURNED: dict[str, Callable[[Any], Any]] = {
    "all": lambda made: made,
    "the last": lambda made: made[-1] if isinstance(made, tuple) else made,
    "the first": lambda made: made[0] if isinstance(made, tuple) else made,
    "a part": lambda made: (made[0] if isinstance(made, tuple) else made)[1:],
}


def _recorded(x: Tensor) -> None:
    x.add_(1)


def _unrecorded(x: Tensor) -> None:
    with torch.no_grad():
        x.add_(1)


def _to_an_alias(x: Tensor) -> None:
    x.detach().add_(1)


def _to_a_part(x: Tensor) -> None:
    x[0].add_(1)


@pytest.mark.parametrize("returned", RETURNED)
@pytest.mark.parametrize("made", [Whole, OwnView, ViewOfGiven, TwoViews, ViewAndWhole])
def test_what_a_function_has_made_may_be_written_to_as_in_eager(made: Any, returned: str) -> None:
    """Nobody writes to a view that an autograd function has made; to another result, as before."""

    def program(x: Tensor) -> Any:
        return RETURNED[returned](made.apply(x * 2))

    compiled = aot.aot_function(program, aot.run_as_is)
    for write in (_recorded, _unrecorded, _to_an_alias, _to_a_part):
        for place in (0, -1):
            seen = []
            for call in (program, compiled):
                x = torch.arange(12.0).view(3, 4).requires_grad_()
                results = call(x)
                results = [*results] if isinstance(results, tuple) else [results]
                raised = False
                try:
                    write(results[place])
                    torch.autograd.backward([item.pow(2).sum() for item in results])
                except RuntimeError as error:
                    raised = "is a view" in str(error)
                    assert raised, error
                seen.append((raised, None if raised else [*results, x.grad]))
            (expected_raises, expected), (raises, found) = seen
            assert raises == expected_raises, (write, place)
            torch.testing.assert_close(found, expected)
