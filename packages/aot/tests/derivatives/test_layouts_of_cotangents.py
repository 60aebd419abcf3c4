"""Cotangents that are not laid out as was traced: gradients lie as eager's do where anyone sees.

By hooks, by `torch.autograd.grad`, by nodes upstream; a leaf without hooks sees no strides, and
nothing is traced for it.
"""

import itertools
from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import flambeau_prims
import pytest
import torch
import torch.nn.functional as F
from flambeau_aot._torch_compat.tensors import as_view
from flambeau_aot.higher_order import lazy_derivative
from torch import Tensor

PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "itself": (lambda x, y: x + 1, [(3, 4), (2,)]),
    "pointwise": (lambda x, y: (x * 2).sin() + y, [(3, 4), (4,)]),
    "product": (lambda x, y: x @ y, [(3, 4), (4, 5)]),
    "convolution": (lambda x, y: F.conv1d(x, y), [(2, 3, 8), (4, 3, 3)]),
    "stack": (lambda x, y: torch.stack([x, y]), [(3, 4), (3, 4)]),
    "transposed": (lambda x, y: x.t() * 1 + y, [(3, 4), (3,)]),
    "volume": (lambda x, y: F.interpolate(x, scale_factor=2.0) * y, [(2, 3, 2, 2, 2), (4,)]),
    "dropout": (lambda x, y: F.dropout(x) * y, [(3, 4), (4,)]),
    "two": (lambda x, y: torch.cat([x.exp(), y.cos()], 1), [(3, 4), (3, 2)]),
    "written": (lambda x, y: x.clone().mul_(2).t() + y, [(3, 4), (3,)]),
}
COTANGENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "as the result": torch.ones_like,
    "expanded": lambda x: torch.ones(()).expand(x.shape),
    "rows": lambda x: torch.rand(x.shape[-1]).expand(x.shape),
    "reversed": lambda x: torch.rand(x.shape[::-1]).permute(*range(x.dim())[::-1]),
    "channels last": lambda x: torch.rand(x.movedim(1, -1).shape).movedim(-1, 1),
    "with gaps": lambda x: torch.rand(*x.shape[:-1], 2 * x.shape[-1])[..., ::2],
}


def compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    return aot.aot_function(fn, aot.run_as_is, decompositions=flambeau_prims.decompositions())


def leaves(shapes: list[tuple[int, ...]]) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape).requires_grad_() for shape in shapes]


def requested(fn: Callable[..., Any], given: list[Tensor], cotangent: str) -> list[Any]:
    result = fn(*given)
    grad = COTANGENTS[cotangent](result.detach())
    found = torch.autograd.grad(result, given, grad, allow_unused=True)
    return [None if x is None else (x, x.stride(), x is grad) for x in found]


def hooked(fn: Callable[..., Any], given: list[Tensor], cotangent: str) -> list[Any]:
    seen: list[Any] = []
    for x in given:
        x.register_hook(lambda grad: seen.append((grad.clone(), grad.stride(), False)))
    result = fn(*given)
    result.backward(COTANGENTS[cotangent](result.detach()))
    return sorted(seen, key=lambda item: (item[0].shape, item[0].sum()))


def upstream(fn: Callable[..., Any], given: list[Tensor], cotangent: str) -> list[Any]:
    seen: list[Any] = []
    inner = [x * 1 for x in given]
    for x in inner:
        x.register_hook(lambda grad: seen.append((grad.clone(), grad.stride(), False)))
    result = fn(*inner)
    result.backward(COTANGENTS[cotangent](result.detach()))
    return sorted(seen, key=lambda item: (item[0].shape, item[0].sum()))


def differentiated(fn: Callable[..., Any], given: list[Tensor], cotangent: str) -> list[Any]:
    result = fn(*given)
    grad = COTANGENTS[cotangent](result.detach())
    found = torch.autograd.grad(result, given, grad, allow_unused=True, create_graph=True)
    return [None if x is None else (x, x.stride(), x is grad) for x in found]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("seen", [requested, hooked, upstream, differentiated])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_lie_as_in_eager(name: str, seen: Callable[..., list[Any]]) -> None:
    fn, shapes = PROGRAMS[name]
    call = compiled(fn)
    for cotangent in COTANGENTS:
        expected, found = (seen(each, leaves(shapes), cotangent) for each in (fn, call))
        assert [x and x[1:] for x in found] == [x and x[1:] for x in expected], cotangent
        values = [[x and x[0] for x in each] for each in (found, expected)]
        torch.testing.assert_close(*values)


def test_a_leaf_without_hooks_sees_none(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[object] = []
    own = lazy_derivative.Derivatives._laid

    def counted(self: Any, *args: Any) -> Any:
        traced.append(self)
        return own(self, *args)

    monkeypatch.setattr(lazy_derivative.Derivatives, "_laid", counted)
    fn, shapes = PROGRAMS["pointwise"]
    call = compiled(fn)
    given, eager = leaves(shapes), leaves(shapes)
    call(*given).sum().backward()
    fn(*eager).sum().backward()
    assert not traced
    assert [x.grad.stride() for x in given] == [x.grad.stride() for x in eager]
    for _ in range(3):
        requested(call, given, "expanded")
    assert len(traced) == 1


def test_so_many_layouts_are_traced_and_no_more() -> None:
    fn, shapes = PROGRAMS["pointwise"]
    call = compiled(fn)
    for gap in range(1, lazy_derivative.LAYOUTS + 4):
        given, eager = leaves(shapes), leaves(shapes)
        results = call(*given), fn(*eager)
        grad = torch.rand(4, 3 * gap)[:, ::gap].t()
        found, expected = (
            torch.autograd.grad(result, each, grad)
            for result, each in zip(results, (given, eager), strict=True)
        )
        torch.testing.assert_close(found, expected)
        if gap <= lazy_derivative.LAYOUTS:
            assert [x.stride() for x in found] == [x.stride() for x in expected]
    (entry,) = call.compiled.values()
    assert len(entry.higher.call.laid) == lazy_derivative.LAYOUTS


PARTS: dict[str, Callable[..., Tensor]] = {
    "stacked": lambda a, b: torch.stack([a, b]).mean(0).t().contiguous().t() + 1,
    "joined": lambda a, b: torch.cat([a, b]).t().contiguous().t() * 2,
    "passed on": lambda a, b: torch.cat([a, b]).t().contiguous().t(),
    "in order": lambda a, b: torch.stack([a, b]).mean(0),
    "joined in order": lambda a, b: torch.cat([a, b]) * 2,
    "one of them": lambda a, b: torch.stack([b.sin(), a]).mean(0).t().contiguous().t() + b,
}
GIVEN: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: torch.rand(x.shape),
    "transposed": lambda x: torch.rand(x.t().shape).t(),
    "expanded": lambda x: torch.rand(()).expand(x.shape),
}


def results_that_are_no_views(gm: Any, example_inputs: Any, info: Any) -> Any:
    """What compilers give whose programs run below autograd."""
    run = aot.run_as_is(gm, example_inputs, info)
    return lambda args: [x if x is None else x.detach() for x in run(args)]


def memories(found: list[Tensor]) -> Any:
    starts = [x.untyped_storage().data_ptr() for x in found]
    sizes = [x.untyped_storage().nbytes() for x in found]
    return [(x.stride(), x.storage_offset()) for x in found], list(map(starts.index, starts)), sizes


@pytest.mark.parametrize("cotangent", GIVEN)
@pytest.mark.parametrize("name", PARTS)
def test_parts_of_larger_memory_stay_parts(name: str, cotangent: str) -> None:
    fn = PARTS[name]
    call = compiled(fn)
    given, eager = leaves([(3, 4), (3, 4)]), leaves([(3, 4), (3, 4)])
    grad = GIVEN[cotangent](fn(*eager).detach())
    call(*given).backward(grad)
    fn(*eager).backward(grad)
    own, expected = ([x.grad for x in each] for each in (given, eager))
    torch.testing.assert_close(own, expected)
    assert memories([*own, grad]) == memories([*expected, grad])
    own, expected = (torch.autograd.grad(f(*given), given, grad) for f in (call, fn))
    torch.testing.assert_close(own, expected)
    assert memories([*own, grad]) == memories([*expected, grad])


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("cotangent", GIVEN)
@pytest.mark.parametrize("name", PARTS)
def test_what_else_a_leaf_is_given_is_not_added_in_a_part(
    name: str, cotangent: str, left: int
) -> None:
    """The engine adds in place where nobody else holds the memory: never in a part of a larger, of
    which the other part is gone."""
    fn = PARTS[name]
    grad = GIVEN[cotangent](fn(*leaves([(3, 4), (3, 4)])).detach())
    table = flambeau_prims.decompositions()
    call = aot.aot_function(fn, results_that_are_no_views, decompositions=table)
    seen = []
    for each in (fn, call):
        given = leaves([(3, 4), (3, 4)])
        other = given[left].sin()  # older than the call: its gradient comes last
        args = [x if at == left else x * 1 for at, x in enumerate(given)]
        torch.autograd.backward([each(*args), other], [grad, other.detach()])
        seen.append([x.grad for x in given])
    torch.testing.assert_close(*seen)
    assert memories(seen[1]) == memories(seen[0])


def test_a_gradient_that_is_made_a_view_lies_as_it_did() -> None:
    for shape in itertools.product((0, 1, 3), repeat=3):
        for order in itertools.permutations(range(3)):
            for dim in range(3):
                whole = torch.rand([shape[d] + (d == dim) for d in order])
                part = whole.permute(order).narrow(dim, 0, min(shape[dim], whole.shape[order[dim]]))
                gradient = part.detach()
                seen = as_view(gradient)
                assert seen._is_view() and seen.data_ptr() == gradient.data_ptr()
                assert (seen.shape, seen.stride()) == (gradient.shape, gradient.stride())
