"""Graphs with symbolic sizes: one compile, held to eager at many sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.runtime.artifact import CompiledGraph
from flambeau_prims._torch_compat import symbolic_mode
from torch import Tensor, fx

Function = Callable[..., Any]


def compiled(
    function: Function, example: Sequence[Tensor], kernels: str = "auto"
) -> tuple[CompiledGraph, list[Any]]:
    """The function with every size of its inputs left open, and the fake inputs."""
    mode = symbolic_mode()
    fakes = [mode.from_tensor(x) for x in example]
    gm = flambeau_prims.lower(fx.symbolic_trace(function), fakes)
    made = flambeau_inductor.compile(gm, fakes, options=Options(kernels=kernels))
    return made, fakes


def holds(fakes: Sequence[Tensor], given: Sequence[Tensor]) -> bool:
    """Whether all that was assumed about the sizes of these fake tensors is so for real ones."""
    values: dict[Any, int] = {}
    for fake, real in zip(fakes, given, strict=True):
        for size, now in zip(fake.shape, real.shape, strict=True):
            values[size.node._expr] = now  # the symbol, also where a guard has made it a number
    return all(guard.expr.subs(values) for guard in assumed(fakes))


def assumed(fakes: Sequence[Any]) -> Any:
    """The guards of the environment of fake tensors."""
    return fakes[0].fake_mode.shape_env.guards


def check(
    function: Function, shapes: Sequence[Sequence[Sequence[int]]], kernels: str = "auto"
) -> Any:
    """Compile for the first shapes, and again, twice at most, where others are not as was assumed;
    compare at all of them. What the first one assumes is handed back."""
    torch.manual_seed(0)
    made: list[tuple[CompiledGraph, list[Any]]] = []
    for inputs in shapes:
        given = [torch.randn(*s) for s in inputs]
        call = next((call for call, fakes in made if holds(fakes, given)), None)
        if call is None:
            made.append(compiled(function, given, kernels))
            call = made[-1][0]
        assert len(made) <= 3
        wanted = function(*given)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for got, want in zip(call(list(given)), wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            assert got.stride() == want.stride()
    return assumed(made[0][1])


MATRICES = [
    [(4, 6)],
    [(5, 7)],
    [(2, 2)],
    [(3, 64)],
    [(31, 37)],
    [(257, 16)],
    [(2, 1031)],
    [(700, 9)],
]


FEW = [[(4, 6)], [(31, 37)], [(2, 300)]]


@pytest.mark.sweep(18)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.tanh(x) * 2 + 1,
        lambda x: torch.softmax(x, -1),
        lambda x: torch.softmax(x, 0),
        lambda x: x.sum(0),
        lambda x: x.sum(1),
        lambda x: x.sum(),
        lambda x: x.mean(1),
        lambda x: x.amax(1) - x.amin(1),
        lambda x: x.var(1),
        lambda x: x.argmax(1),
        lambda x: torch.var_mean(x, 0),
        lambda x: x.t() + 1,
        lambda x: x.t().contiguous(),
        lambda x: (x.t() @ x).relu(),
        lambda x: x.reshape(-1) * 2,
        lambda x: x.unsqueeze(1).expand(-1, 3, -1).reshape(-1, x.shape[1]) + x.repeat(3, 1),
        lambda x: torch.cat([x, x * 2], 0),
        lambda x: torch.cat([x, x * 2], 1).sum(1),
        lambda x: x[1:] - x[:-1],
        lambda x: x[:, : x.shape[1] // 2],
        lambda x: x / x.shape[0] + x.shape[1],
        lambda x: torch.nn.functional.pad(x, (1, 2)),
        lambda x: x.flip(0) + x.flip(1),
        lambda x: x * torch.arange(x.shape[1]),
        lambda x: x.tril(),
        lambda x: (x, x.sum(0), x + 1),
        lambda x: torch.nn.functional.layer_norm(x, (x.shape[1],)),
    ],
)
@pytest.mark.parametrize("kernels", ["cpp", "triton"])
def test_matrices(function: Function, kernels: str) -> None:
    check(function, MATRICES if kernels == "cpp" else FEW, kernels)


def test_what_a_triton_kernel_does_not_do() -> None:
    check(lambda x: x.cumsum(0), MATRICES)


SAME = [[(4, 6, 8)], [(3, 5, 8)], [(2, 33, 8)], [(9, 2, 8)], [(16, 128, 8)]]


@pytest.mark.sweep(6)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.reshape(x.shape[0] * x.shape[1], 8).relu().reshape(x.shape),
        lambda x: x.reshape(x.shape[0] * x.shape[1], 8).softmax(1).reshape(x.shape) + x,
        lambda x: x.permute(1, 0, 2).reshape(x.shape[1], -1).sum(1),
        lambda x: x.reshape(x.shape[0], x.shape[1], 2, 4).transpose(1, 2).softmax(-1),
        lambda x: torch.baddbmm(x.sum(-1, keepdim=True), x, x.transpose(1, 2)),
        lambda x: x.transpose(0, 1).reshape(-1, 8) * 2,
        lambda x: torch.nn.functional.layer_norm(x, (8,)).mean((0, 1)),
    ],
)
@pytest.mark.parametrize("kernels", ["cpp", "triton"])
def test_three_dimensions(function: Function, kernels: str) -> None:
    check(function, SAME if kernels == "cpp" else [*SAME[:2], SAME[3]], kernels)


def test_halves_are_moved_along_an_open_stride() -> None:
    def moved(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat((x, y, x), 1), y.t().clone(memory_format=torch.contiguous_format)

    for dtype in (torch.bfloat16, torch.float16):
        given = [torch.randn(5, 11).to(dtype)[:, 1::2], torch.randn(5, 5).to(dtype)]
        call, _ = compiled(moved, given, "cpp")
        for got, want in zip(call(list(given)), moved(*given), strict=True):
            assert torch.equal(got, want) and got.stride() == want.stride()


def test_two_inputs_that_share_a_size() -> None:
    shapes = [[(4, 8), (4, 5)], [(3, 8), (3, 5)], [(100, 8), (100, 5)]]
    check(lambda x, y: torch.cat([x, y], 1).exp().sum(1) + x.mean(1), shapes)


def test_what_is_not_assumed_is_not_guarded() -> None:
    guards = check(lambda x: (torch.softmax(x * 2, -1).sum(0), x.t() @ x), MATRICES)
    assert guards == []


def test_what_no_triton_kernel_reads_is_not_guarded() -> None:
    """Whether positions fit 32 bits is asked of what a kernel reads or writes."""
    given = [torch.randn(4, 6), torch.randn(5, 7)]
    _, (x, y) = compiled(lambda x, y: (x.sin(), y.t() @ y), given, "triton")
    asked = {symbol for guard in assumed([x]) for symbol in guard.expr.free_symbols}
    assert asked == {size.node._expr for size in x.shape}
    assert not asked & {size.node._expr for size in y.shape}


def test_what_is_assumed_is_told() -> None:
    """A table is read at positions known while compiling: they must be inside it."""
    table = torch.randn(50, 3)

    def function(x: Tensor, table: Tensor) -> Tensor:
        return x + torch.nn.functional.embedding(torch.arange(x.shape[0]), table)

    mode = symbolic_mode()
    fakes = [mode.from_tensor(torch.randn(7, 3)), mode.from_tensor(table, static_shapes=True)]
    gm = flambeau_prims.lower(fx.symbolic_trace(function), fakes)
    call = flambeau_inductor.compile(gm, fakes)
    assert any(
        "51" in str(guard.expr) or "50" in str(guard.expr) for guard in mode.shape_env.guards
    )
    x = torch.randn(50, 3)
    torch.testing.assert_close(call([x, table])[0], function(x, table))


def test_positions_out_of_an_open_range_raise() -> None:
    def function(table: Tensor, at: Tensor) -> Tensor:
        return torch.nn.functional.embedding(at, table)

    mode = symbolic_mode()
    fakes = [
        mode.from_tensor(torch.randn(7, 3)),
        mode.from_tensor(torch.zeros(4, dtype=torch.int64)),
    ]
    gm = flambeau_prims.lower(fx.symbolic_trace(function), fakes)
    call = flambeau_inductor.compile(gm, fakes)
    table, at = torch.randn(11, 3), torch.tensor([10, 0, 3])
    torch.testing.assert_close(call([table, at])[0], table[at])
    with pytest.raises(IndexError):
        call([table[:10], at])


def test_equal_text_for_all_sizes() -> None:
    def text(rows: int) -> str:
        call, _ = compiled(lambda x: torch.softmax(x, -1), [torch.randn(rows, 8)])
        return call.report.sources["kernels.cpp"]

    assert text(5) == text(700)
