"""What goes wrong around a compile: a clear error that names it, or the right answer anyway."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor import CompilerFailed, CompilerNotFound, Options
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain
from flambeau_inductor.codegen.cpp.unit import generate
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Axis, IndexValue, Load, Loop, Point, Store
from torch import Tensor, fx


def function(x: Tensor) -> Tensor:
    return F.gelu(x.softmax(-1)) * 2


def compiled(options: Options, x: Tensor, of: Callable[..., Any] = function) -> Any:
    gm = flambeau_prims.lower(fx.symbolic_trace(of), [x])
    return flambeau_inductor.compile(gm, [x], options=options)


def script(folder: Path, body: str) -> str:
    """A compiler that answers questions as the real one does, and builds as `body` says."""
    real = find_toolchain().compiler
    path = folder / "c++"
    path.write_text(f'#!/bin/sh\ncase "$*" in *-dM*) exec {real} "$@";; esac\n{body}\n')
    path.chmod(0o755)
    return str(path)


FAULTS = {
    "crashing": ("kill -SEGV $$", "SIGSEGV"),
    "killed": ("kill -KILL $$", "SIGKILL"),
    "too old": ("echo \"unrecognized option '-std=c++17'\" >&2; exit 1", "unrecognized option"),
    "silent": ("exit 4", "exit 4"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_compiler_that_is(name: str, tmp_path: Path) -> None:
    body, said = FAULTS[name]
    options = Options(compiler=script(tmp_path, body), cache_dir=str(tmp_path / "cache"))
    with pytest.raises(CompilerFailed, match=said):
        compiled(options, torch.randn(4, 300))
    assert not list((tmp_path / "cache").rglob("*.so"))


def test_after_a_fault_the_next_compile_works(tmp_path: Path) -> None:
    x, cache = torch.randn(4, 300), str(tmp_path / "cache")
    with pytest.raises(CompilerFailed):
        compiled(Options(compiler=script(tmp_path, "kill -KILL $$"), cache_dir=cache), x)
    (found,) = compiled(Options(cache_dir=cache), x)([x])
    torch.testing.assert_close(found, function(x))


def test_a_missing_compiler_says_what_to_install() -> None:
    with pytest.raises(CompilerNotFound, match="apt install"):
        compiled(Options(compiler="no-such-compiler"), torch.randn(4, 300))


def test_without_vector_instructions_the_portable_path_is_right(tmp_path: Path) -> None:
    """A compiler that knows no features of the processor: what an old machine amounts to."""
    real = shutil.which("g++") or find_toolchain().compiler
    path = tmp_path / "c++"
    path.write_text(
        '#!/bin/sh\nfor a do shift; [ "$a" = -march=native ] || set -- "$@" "$a"; done\n'
        f'exec {real} "$@"\n'
    )
    path.chmod(0o755)
    assert find_toolchain(str(path)).vector_bytes == 16
    for x in (torch.randn(7, 301), torch.randn(7, 301, dtype=torch.float64)):
        options = Options(compiler=str(path), cache_dir=str(tmp_path / "cache"))
        (found,) = compiled(options, x)([x])
        torch.testing.assert_close(found, function(x))


def _far(size: int) -> tuple[Loop, str]:
    """A shifted copy of so many bytes that positions need more than 31 bits, and its C++."""
    x = Var("x0")
    loop = Loop(
        "loop0",
        (Axis("x0", size),),
        (),
        (
            Load("a", x + 5, torch.uint8),
            IndexValue(x, torch.int64),
            Point("cast", (1,), torch.uint8),
            Point("add", (0, 2), torch.uint8),
            Store("b", x, 3),
        ),
    )
    toolchain = find_toolchain()
    return loop, generate([loop], lambda name: torch.uint8, toolchain.vector_bytes).text


def test_positions_beyond_31_bits_are_held_in_64() -> None:
    _, near = _far(1 << 20)
    _, far = _far((1 << 31) + 100)
    assert "(i32)" in near
    assert "(i32)" not in far
    assert "for (long x0" in far


FAR = (1 << 31) + (1 << 12)


@pytest.fixture(scope="module")
def far() -> Tensor:
    """More than 2 GiB of the address space; memory is taken for the pages that are touched."""
    return torch.empty(FAR, dtype=torch.uint8)


def test_elements_beyond_31_bits_are_read(far: Tensor) -> None:
    rows, columns, step = 3, 70, 1 << 30
    x = far.as_strided((rows, columns), (step, 1))
    assert (rows - 1) * step + columns - 1 > (1 << 31)
    x.copy_(torch.randint(0, 256, x.shape))

    def of(x: Tensor) -> tuple[Tensor, ...]:
        y = x.float()
        return y * 2 + 1, y.sum(1), y.t().cos(), x[2, 5:].long()

    for got, want in zip(compiled(Options(), x, of)([x]), of(x), strict=True):
        torch.testing.assert_close(got, want)


def test_positions_beyond_31_bits_are_found(far: Tensor) -> None:
    low, table = torch.tensor([3, 1 << 31]), far
    table[3], table[1 << 31] = 5, 9

    def of(table: Tensor, low: Tensor) -> Tensor:
        return table[low].float() * 2

    gm = flambeau_prims.lower(fx.symbolic_trace(of), [table, low])
    (found,) = flambeau_inductor.compile(gm, [table, low])([table, low])
    assert found.tolist() == [10.0, 18.0]


@pytest.mark.skipif(
    "FLAMBEAU_TEST_HUGE" not in os.environ, reason="takes 5 GB: FLAMBEAU_TEST_HUGE=1 asks for it"
)
def test_a_tensor_of_more_than_two_billion_elements() -> None:
    size = (1 << 31) + 1000
    x = torch.zeros(size, dtype=torch.uint8)
    x[-3:] = 7
    (found,) = compiled(Options(), x, lambda x: x + 1)([x])
    assert found.shape == x.shape
    assert found[-4:].tolist() == [1, 8, 8, 8]
    assert int(found[: 1 << 20].sum()) == 1 << 20


SHAPES: dict[str, Callable[[], Tensor]] = {
    "no elements": lambda: torch.randn(0, 5),
    "no columns": lambda: torch.randn(5, 0),
    "0-d": lambda: torch.randn(()),
    "every other column": lambda: torch.randn(6, 10)[:, ::2],
    "turned": lambda: torch.randn(6, 10).t(),
    "expanded": lambda: torch.randn(1, 10).expand(6, 10),
    "overlapping windows": lambda: torch.randn(20).as_strided((6, 10), (1, 1)),
    "from the middle": lambda: torch.randn(100)[17:77].view(6, 10),
}


@pytest.mark.parametrize("name", SHAPES)
def test_odd_inputs_are_read_as_they_lie(name: str) -> None:
    x = SHAPES[name]()

    def of(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(x) * 3 + x.sum(), x.exp()

    for got, want in zip(compiled(Options(), x, of)([x]), of(x), strict=True):
        torch.testing.assert_close(got, want)
        assert got.shape == want.shape


@pytest.mark.sweep
def test_a_graph_of_many_thousand_nodes_compiles(tmp_path: Path) -> None:
    """In seconds: nothing in the compiler grows with the square of the graph.

    20,000 nodes with FLAMBEAU_SWEEPS=1 (`nox -s sweeps`).
    """
    nodes = 20_000 if os.environ.get("FLAMBEAU_SWEEPS") == "1" else 6_000
    graph = fx.Graph()
    x = here = graph.placeholder("x")
    for number in range(nodes):
        op = torch.ops.aten.mul.Tensor if number % 2 else torch.ops.aten.add.Tensor
        here = graph.call_function(op, (here, 0.5 if number % 2 else x))
    graph.output((here,))
    gm, value = fx.GraphModule(torch.nn.Module(), graph), torch.randn(64)
    low = flambeau_prims.lower(gm, [value])
    assert len(low.graph.nodes) > nodes
    done = flambeau_inductor.compile(low, [value], options=Options(cache_dir=str(tmp_path)))
    (found,) = done([value])
    torch.testing.assert_close(found, gm(value)[0])
    assert done.report.kernels < 400
