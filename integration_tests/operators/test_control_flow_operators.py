"""torch's operators of control flow at open sizes, with gradients: one graph for all sizes, and
what Python's own loop or branch gives, as torch compiles them itself in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import map as map_slices
from torch._higher_order_ops import scan, while_loop
from torch.utils import _pytree as pytree

import flambeau

Program = Callable[[Tensor, Tensor], tuple[Tensor, ...]]
Loop = Callable[..., tuple[Tensor, ...]]


def _python_loop(test: Callable[..., Tensor], body: Loop, state: tuple[Tensor, ...]) -> Loop:
    while bool(test(*state)):
        state = body(*state)
    return state


def _start() -> Tensor:
    return torch.zeros((), dtype=torch.int64)


LOOPS: dict[str, Callable[[Loop, Tensor, Tensor], tuple[Tensor, ...]]] = {
    "so many": lambda loop, x, w: loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y * 1.5), (_start(), x)
    ),
    "by data": lambda loop, x, w: loop(
        lambda i, y: y.abs().sum() < 50, lambda i, y: (i + 1, y * 1.5 + 0.1), (_start(), x)
    ),
    "of other tensors": lambda loop, x, w: loop(
        lambda i, y: i < w.abs().sum(), lambda i, y: (i + 1, y.sin() * w + x), (_start(), x * 2)
    ),
    "by a size": lambda loop, x, w: loop(
        lambda i, y: i < x.shape[0], lambda i, y: (i + 1, y @ w.diag() + x.shape[0]), (_start(), x)
    ),
    "of no round": lambda loop, x, w: loop(
        lambda i, y: i < 0, lambda i, y: (i + 1, y * w), (_start(), x)
    ),
}


def _same(run: Program, reference: Program, given: list[Tensor], gradients: bool) -> None:
    found = []
    for program in (run, reference):
        own = [x.clone().requires_grad_(gradients) for x in given]
        results = program(*own)
        ends = sum(x.sum() for x in results if x.requires_grad)
        grads = torch.autograd.grad(ends, own, allow_unused=True) if gradients else ()
        zeros = [x * 0 if grad is None else grad for x, grad in zip(own, grads)]
        found.append(([x.detach() for x in results], [x.detach() for x in zeros]))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_a_while_loop_of_open_sizes(name: str, gradients: bool, backend: str) -> None:
    def program(loop: Loop) -> Program:
        return lambda x, w: LOOPS[name](loop, x, w)

    compiled = flambeau.compile(program(while_loop), backend=backend, dynamic=True)
    torch.manual_seed(0)
    for length in (5, 7, 3, 9):
        given = [torch.rand(length, 4), torch.rand(4)]
        _same(compiled, program(_python_loop), given, gradients)
    report = flambeau.report(compiled)
    assert (report.graphs, report.breaks, report.fallbacks) == (1, (), ())


def _python_scan(
    step: Callable[..., Any], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> Any:
    leaves, spec = pytree.tree_flatten(xs)
    places = range(leaves[0].shape[dim])
    carry, rows = init, []
    for place in reversed(places) if reverse else places:
        carry, row = step(carry, spec.unflatten([x.select(dim, place) for x in leaves]))
        rows.insert(0, row) if reverse else rows.append(row)
    stacked = pytree.tree_map(lambda *x: torch.stack(x), *rows)
    return carry, pytree.tree_map(lambda x: x.movedim(0, dim) if x.dim() > dim else x, stacked)


def _python_map(f: Callable[..., Any], xs: Any, *more: Any) -> Any:
    return _python_scan(lambda carry, x: (carry, f(x, *more)), (), xs)[1]


#: of a loop over slices by torch or Python, a matrix and a row
SCANS: dict[str, Callable[[Any, Any, Tensor, Tensor], Any]] = {
    "a sum": lambda scan, _, x, w: scan(lambda c, y: (c + y, (c * y).sin()), w * 0, x),
    "of what is outside": lambda scan, _, x, w: scan(
        lambda c, y: (c * w + x.shape[0], y * w.cos()), w * 1, x
    ),
    "from a constant": lambda scan, _, x, w: scan(
        lambda c, y: (c * y.mean() + 1, c * y), torch.ones(4), x
    ),
    "by columns, backwards": lambda scan, _, x, w: scan(
        lambda c, y: (c * 0.5 + y.sum(), [y + c, (y * c).mean()]), w.sum(), x, dim=1, reverse=True
    ),
    "of structures": lambda scan, _, x, w: scan(
        lambda c, y: ({"a": c["a"] + y[0], "b": c["b"] * 0.9}, (y[0] * c["b"], y[1][:2] + 0.0)),
        {"a": w * 0, "b": w * 1},
        (x, [x * 2][0]),
    ),
    "mapped": lambda _, map_slices, x, w: map_slices(lambda y, w: (y * w, y.sum()), x, w),
    "mapped, of two": lambda _, map_slices, x, w: (
        map_slices(lambda both, z: both[0] * both[1] + z, (x, x.cos()), w),
    ),
}


@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, "aot_eager") for name in SCANS]
    + [(name, other) for name in list(SCANS)[:2] for other in ("eager", "inductor")],
)
def test_a_loop_over_slices_of_open_number(name: str, backend: str) -> None:
    def program(*loops: Any) -> Program:
        return lambda x, w: tuple(pytree.tree_leaves(SCANS[name](*loops, x, w)))

    compiled = flambeau.compile(program(scan, map_slices), backend=backend, dynamic=True)
    reference = program(_python_scan, _python_map)
    torch.manual_seed(0)
    shape = (4, -1) if "columns" in name else (-1, 4)
    for length, gradients in ((5, True), (7, True), (3, True), (40, True), (6, False), (9, False)):
        given = [torch.rand(length * 4).reshape(shape), torch.rand(4)]
        _same(compiled, reference, given, gradients)
    report = flambeau.report(compiled)
    assert (report.graphs, report.breaks, report.fallbacks) == (2, (), ())  # with and without


def test_a_long_loop_over_slices_is_not_written_out() -> None:
    counts = []

    def backend(module: torch.fx.GraphModule, given: list[Tensor]) -> Callable[..., Any]:
        counts.append(len(module.graph.nodes))
        return module.forward

    def program(loop: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
        return lambda x: loop(lambda c, y: (c + y, c * y), x[0] * 0, x)[1]

    compiled, x = flambeau.compile(program(scan), backend=backend), torch.rand(300, 2)
    torch.testing.assert_close(compiled(x), program(_python_scan)(x))
    assert len(counts) == 1 and counts[0] < 20


BRANCHES: dict[str, tuple[Program, Program]] = {
    "constant sizes": (lambda x, w: x[:3].sin(), lambda x, w: x[:2] * w),
    "longer": (lambda x, w: torch.cat([x, x * w]), lambda x, w: x + w),
    "two dimensions": (lambda x, w: x[:1, :2] * 1.0, lambda x, w: x * w),
    "several": (lambda x, w: (x * w, x[0] + 1), lambda x, w: (x[:2] + w, w * 2)),
    "nothing": (lambda x, w: x[:0] * 1.0, lambda x, w: x * w),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_of_two_sizes(name: str, backend: str) -> None:
    yes, no = BRANCHES[name]

    def program(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        found = torch.cond(x.sum() > 0, lambda: yes(x, w), lambda: no(x, w), ())
        parts = found if isinstance(found, tuple) else (found,)
        return *parts, parts[0].sum(0) * parts[0].shape[0]

    def reference(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        found = (yes if x.sum() > 0 else no)(x, w)
        parts = found if isinstance(found, tuple) else (found,)
        return *parts, parts[0].sum(0) * parts[0].shape[0]

    compiled = flambeau.compile(program, backend=backend, dynamic=True)
    torch.manual_seed(0)
    for length, sign in ((5, 1), (7, -1), (3, 1), (9, -1)):
        given = sign * torch.rand(length, 4), torch.rand(4)
        want, got = reference(*given), compiled(*given)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        places = [(x.stride(), x.storage_offset()) for x in (*want, *got)]
        assert places[: len(want)] == places[len(want) :]
    report = flambeau.report(compiled)
    assert (report.graphs, report.breaks, report.fallbacks) == (1, (), ())
