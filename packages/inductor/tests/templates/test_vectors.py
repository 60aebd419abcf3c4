"""Products of a vector, which are sums like any other: programs for a GPU that need not be there,
whose kernels run under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from flambeau_inductor.codegen.triton.build import build
from flambeau_inductor.codegen.triton.kernel import TritonKernel, generate
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.info import GraphInfo
from flambeau_inductor.ir.loops import Load, Store
from flambeau_inductor.ir.program import Extern, Program, Ref, RunLoop
from flambeau_inductor.runtime.operators import WIDENED_PRODUCT
from flambeau_inductor.templates.call_replacement import facts
from flambeau_inductor.templates.selection.select import select_by_model
from torch import Tensor
from torch.nn import functional as F

from tests.evaluated import scheduled

HALF = torch.float16  # the interpreter multiplies the bits of bfloat16


def interpreted(
    program: Program,
    inputs: list[Tensor],
    folder: Path,
    given: Mapping[str, TritonKernel] | None = None,
) -> list[Tensor]:
    """What the kernels of a program of loops alone, some of them `given`, leave in its outputs;
    memory that they do not write is NaN."""
    assert not [s.target for s in program.steps if isinstance(s, Extern)]
    dtypes, numels = facts(program)
    loops = [step.loop for step in program.steps if isinstance(step, RunLoop)]
    own = given or {}
    kernels = [own.get(loop.name) or generate(loop, dtypes, numels) for loop in loops]
    path = folder / "kernels.py"
    path.write_text(module_text([kernel.source for kernel in kernels]))
    launchers = build(path, kernels)
    memory = {b.name: t for b, t in zip(program.inputs, inputs, strict=True)}
    memory |= {new: memory[old] for new, old in program.owned.updated.items()}
    for buffer in program.buffers:
        if buffer.name not in memory:
            layout = buffer.layout
            made = torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype)
            memory[buffer.name] = made.fill_(torch.nan if layout.dtype.is_floating_point else -1)
    for kernel in kernels:
        launchers[kernel.name](*(memory[name] for name in kernel.arguments))
    found = []
    for output in program.outputs:
        assert isinstance(output, Ref)
        base, layout = memory[output.buffer], output.layout
        found.append(
            base
            if layout is None
            else base.as_strided(layout.shape, layout.stride, int(layout.offset))
        )
    return found


def agrees(
    of: Callable[..., Any],
    inputs: list[Tensor],
    folder: Path,
    like: Callable[..., Any] | None = None,
) -> Program:
    """The program of `of`, whose kernels compute what eager does in float64 (of `like`)."""
    program = scheduled(of, inputs, device="cuda")
    wide = [t.double() if t.is_floating_point() else t for t in inputs]
    (got,), expected = interpreted(program, inputs, folder), (like or of)(*wide)
    torch.testing.assert_close(got.double(), expected.double(), rtol=4e-3, atol=4e-3)
    return program


def linear(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return F.linear(x, w)


def with_bias(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return F.silu(F.linear(x, w, bias))


def across(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return x @ w.reshape(w.shape[1], w.shape[0])


def scaled_sum(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return torch.addmm(bias, x, w.t(), beta=0.5, alpha=2.0)


def column(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return w @ x.t()


def batch(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return torch.bmm(x.reshape(2, 1, -1), w.reshape(2, w.shape[1] // 2, -1))


def gated(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    half = w.shape[0] // 2
    return F.silu(F.linear(x, w.narrow(0, 0, half))) * F.linear(x, w.narrow(0, half, half))


@pytest.mark.parametrize("rows", [2, 4])
@pytest.mark.parametrize("of", [with_bias, across, scaled_sum, gated])
def test_a_few_rows_are_made_of_one_reading_of_the_weights(
    of: Callable[..., Any], rows: int, tmp_path: Path
) -> None:
    n, k = 24, 64
    x, bias = torch.randn(rows, k).to(HALF), torch.randn(n).to(HALF)
    w = torch.randint(-128, 128, (n, k), dtype=torch.int8)

    def of_bytes(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        out: Tensor = of(x, w.to(x.dtype) * 2**-10, bias)
        return out

    program = agrees(of_bytes, [x, w, bias], tmp_path)
    weights = program.inputs[1].name
    reads = [
        instr.index
        for step in program.steps
        if isinstance(step, RunLoop)
        for instr in step.loop.body
        if isinstance(instr, Load) and instr.buffer == weights
    ]
    assert len(reads) == (2 if of is gated else 1)


@pytest.mark.parametrize("sizes", [(24, 64), (40, 70), (4, 2048)], ids=str)
@pytest.mark.parametrize("of", [linear, with_bias, across, scaled_sum, column, batch, gated])
def test_products_of_a_vector_are_kernels_of_our_own(
    of: Callable[..., Any], sizes: tuple[int, int], tmp_path: Path
) -> None:
    n, k = sizes
    x, w, bias = torch.randn(1, k).to(HALF), torch.randn(n, k).to(HALF), torch.randn(n).to(HALF)
    program = agrees(of, [x, w * k**-0.5, bias], tmp_path)
    loops = [s.loop for s in program.steps if isinstance(s, RunLoop)]
    assert len(loops) <= 2  # sums down columns may be in parts


def scaled_after(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, w.to(x.dtype)) * scale.select(1, 0)


def scaled_before(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, w.to(x.dtype) * scale.narrow(1, 0, 1))


def by_groups(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    groups = w.reshape(w.shape[0], scale.shape[1], -1).to(x.dtype) * scale.unsqueeze(2)
    return F.linear(x, groups.reshape(w.shape))


def of_nibbles(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    pairs = torch.stack((w & 15, (w >> 4) & 15), -1).reshape(w.shape[0], scale.shape[1], -1)
    weights = (pairs.to(x.dtype) - 8) * scale.unsqueeze(2)
    return F.linear(x, weights.reshape(w.shape[0], -1))


def transposed(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return x @ (w.reshape(-1, w.shape[0]).to(x.dtype) * scale.select(1, 0))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("of", [scaled_after, scaled_before, by_groups, of_nibbles, transposed])
def test_weights_in_bytes_are_widened_where_they_are_read(
    of: Callable[..., Any], rows: int, tmp_path: Path
) -> None:
    """Nothing of their size is written to memory."""
    n, k = 48, 128
    w = torch.randint(-128, 128, (n, k // 2 if of is of_nibbles else k), dtype=torch.int8)
    scale = (torch.rand(n, 4) * 1e-3 + 1e-3).to(HALF)
    program = agrees(of, [torch.randn(rows, k).to(HALF), w, scale], tmp_path)
    sizes = {b.name: b.layout.shape for b in program.buffers}
    made = [shape for name, shape in sizes.items() if name.startswith("buf")]
    assert all(torch.Size(shape).numel() <= 8 * n for shape in made), made


@pytest.mark.parametrize("rows", [2, 8])
def test_products_of_more_rows_and_a_stored_matrix_are_the_librarys(rows: int) -> None:
    given = [(shape, HALF) for shape in ((rows, 64), (24, 64), (24,))]
    program = scheduled(linear, given, "cuda")
    assert [s.target for s in program.steps if isinstance(s, Extern)] == ["aten.mm.out"]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("fill", [2.0, torch.nan, -torch.inf])
def test_the_likeliest_word_is_found_by_many_programs(fill: float, tmp_path: Path) -> None:
    scores = torch.randn(1, 16384).to(HALF).clamp(max=1)
    scores[0, [5000, 12000]] = fill
    program = scheduled(lambda x: x.argmax(-1), [scores], "cuda")
    assert sum(isinstance(s, RunLoop) for s in program.steps) == 2
    (got,) = interpreted(program, [scores], tmp_path)
    assert torch.equal(got, scores.argmax(-1))


def attending(times: int, biased: bool, call: Callable[..., Any]) -> Callable[..., Any]:
    """Attention by `call`, whose heads of keys and values are each for so many of the queries."""

    def with_bias(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Any:
        k, v = (t.repeat_interleave(times, 1) for t in (k, v))
        return call(q, k, v, bias)

    def without(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return with_bias(q, k, v, None)

    return with_bias if biased else without


def primitive(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Any:
    return torch.ops.flambeau_prims.attention.default(q, k, v, bias, 0.0, False)[0]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("groups", [2, 6])
@pytest.mark.parametrize("biased", [False, True])
def test_attention_of_one_query_reads_repeated_heads_where_they_lie(
    biased: bool, groups: int, tmp_path: Path
) -> None:
    q = torch.randn(2, 6, 1, 16).to(HALF)
    k, v = (torch.randn(2, groups, 70, 16).to(HALF) for _ in range(2))
    bias = torch.randn(2, 1, 1, 70).to(HALF).masked_fill(torch.rand(70) < 0.5, -torch.inf)
    calls = primitive, F.scaled_dot_product_attention
    of, like = (attending(6 // groups, biased, call) for call in calls)
    program = agrees(of, [q, k, v, *[bias] * biased], tmp_path, like)
    made = [b.layout.shape for b in program.buffers if b.name.startswith("buf")]
    assert all(torch.Size(shape).numel() <= 2 * 6 * 70 for shape in made), made


def of_cudnn(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Any:
    call = torch.ops.aten._scaled_dot_product_cudnn_attention.default
    return call(q, k, v, bias, False)[0]


def efficient(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Any:
    call = torch.ops.aten._scaled_dot_product_efficient_attention.default
    return call(q, k, v, bias, False, scale=0.25)[0]


def flash(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Any:
    return torch.ops.aten._scaled_dot_product_flash_attention.default(q, k, v)[0]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("call", [of_cudnn, efficient, flash])
def test_so_it_is_whichever_kernel_the_library_would_take(
    call: Callable[..., Any], tmp_path: Path
) -> None:
    q, bias = torch.randn(2, 6, 1, 16).to(HALF), torch.randn(2, 6, 1, 70).to(HALF)
    k, v = (torch.randn(2, 2, 70, 16).to(HALF) for _ in range(2))
    biased = [bias] if call is not flash else []
    of, like = (attending(3, call is not flash, each) for each in (call, attended))
    agrees(of, [q, k, v, *biased], tmp_path, like)


def attended(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, bias, scale=0.25)


def several_queries(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return of_cudnn(q.expand(2, 6, 4, 16), k, v, None)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Any:
    call = torch.ops.aten._scaled_dot_product_flash_attention.default
    return call(q, k, v, 0.0, True)[0]


def with_sums(q: Tensor, k: Tensor, v: Tensor) -> Any:
    call = torch.ops.aten._scaled_dot_product_flash_attention.default
    return call(q, k, v)[:2]


@pytest.mark.parametrize("of", [several_queries, causal, with_sums])
def test_any_other_attention_stays_the_librarys(of: Callable[..., Any]) -> None:
    shapes = (2, 6, 1, 16), (2, 6, 70, 16), (2, 6, 70, 16)
    program = scheduled(of, [(shape, HALF) for shape in shapes], "cuda")
    assert [s.target for s in program.steps if isinstance(s, Extern)]


def test_attention_to_nothing_is_nothing(tmp_path: Path) -> None:
    q, k = torch.randn(1, 2, 1, 16).to(HALF), torch.randn(1, 2, 20, 16).to(HALF)
    hidden = torch.full((1, 2, 1, 20), -torch.inf, dtype=HALF)
    program = scheduled(primitive, [q, k, k, hidden], "cuda")
    (got,) = interpreted(program, [q, k, k, hidden], tmp_path)
    assert not got.any()


@pytest.mark.sweep(12)
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("call", [primitive, of_cudnn, efficient, flash])
def test_many_keys_of_one_query_are_split_among_programs(
    call: Callable[..., Any], groups: int, tmp_path: Path
) -> None:
    """Two kernels, which read repeated heads where they lie."""
    length, width = 2048 if groups == 6 else 700, 64
    q = torch.randn(2, 1, 6, width).to(HALF).transpose(1, 2)
    k, v = (torch.randn(2, groups, length, width).to(HALF) for _ in range(2))
    bias = torch.randn(2, 6, 1, length).to(HALF).masked_fill(torch.rand(length) < 0.5, -torch.inf)
    inputs = [q, k, v, *[bias] * (call is not flash)]
    of = attending(6 // groups, call is not flash, call)
    program = scheduled(of, inputs, "cuda")
    selected = select_by_model(program)
    loops = [s.loop for s in selected.program.steps if isinstance(s, RunLoop)]
    assert len(loops) == 2
    (got,) = interpreted(selected.program, inputs, tmp_path, selected.kernels)
    like = attended if call is efficient else F.scaled_dot_product_attention
    expected = attending(6 // groups, call is not flash, like)(*(t.double() for t in inputs))
    torch.testing.assert_close(got.double(), expected, rtol=4e-3, atol=4e-3)


def scaled_rows(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return F.silu(F.linear(x, w.to(x.dtype)) * scale)


def next_to_each_other(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    one, other = w.chunk(2)
    half = scale.chunk(2)
    return F.linear(x, one.to(x.dtype)) * half[0] + F.linear(x, other.to(x.dtype)) * half[1]


@pytest.mark.sweep(6)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
@pytest.mark.parametrize("sizes", [(2, 64, 512), (5, 96, 640), (16, 40, 4096)], ids=str)
@pytest.mark.parametrize("of", [scaled_rows, next_to_each_other])
def test_a_few_rows_by_a_matrix_of_bytes_are_products_of_tensor_units(
    of: Callable[..., Any], sizes: tuple[int, int, int], dtype: torch.dtype, tmp_path: Path
) -> None:
    """The bytes are widened as they are read, and what follows is in the same kernel."""
    rows, n, k = sizes
    x, scale = torch.randn(rows, k).to(HALF), (torch.rand(n) * 1e-2).to(HALF)
    w = torch.randint(0, 128, (n, k)).to(dtype)
    if dtype == torch.int8:
        w -= 64
    selected = select_by_model(scheduled(of, [x, w, scale], "cuda"))
    made = [b.layout.shape for b in selected.program.buffers if b.name.startswith("buf")]
    assert all(torch.Size(shape).numel() <= 4 * rows * n for shape in made), made
    (got,) = interpreted(selected.program, [x, w, scale], tmp_path, selected.kernels)
    expected = of(x.double(), w, scale.double())
    torch.testing.assert_close(got.double(), expected, rtol=1e-2, atol=2e-2)


class Updating(GraphInfo):
    """The first result is the new value of the first input."""

    updates = ((0, 0),)
    mutated_outputs = (0,)


def put(cache: Tensor, at: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    made = torch.ops.aten.index_put.default(cache, [None, None, at], new * 2)
    return made, made.sum(-1)


def copied(cache: Tensor, at: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    made = cache.index_copy(2, at, new * 2)
    return made, made.sum(-1)


def scattered(cache: Tensor, at: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    made = cache.scatter(2, at.reshape(1, 1, -1, 1).expand(2, 3, 2, 4), new * 2)
    return made, made.sum(-1)


@pytest.mark.parametrize("of", [put, copied, scattered])
def test_parts_of_a_cache_are_written_in_place(of: Callable[..., Any], tmp_path: Path) -> None:
    """By a kernel that goes over what is written alone, without a copy of the rest."""
    cache, new, at = torch.randn(2, 3, 20, 4), torch.randn(2, 3, 2, 4), torch.tensor([17, 4])
    program = scheduled(of, [cache, at, new], "cuda", info=Updating())
    (updated,) = program.owned.updated
    assert program.owned.updated[updated] == program.inputs[0].name
    loops = [step.loop for step in program.steps if isinstance(step, RunLoop)]
    writes = [
        loop
        for loop in loops
        if any(isinstance(i, Store) and i.buffer == updated for i in loop.body)
    ]
    assert [prod(int(axis.size) for axis in loop.x) for loop in writes] == [new.numel()]
    expected = of(cache, at, new)
    memory = cache.clone()
    interpreted(program, [memory, at, new], tmp_path)
    torch.testing.assert_close(memory, expected[0])


def with_a_layer_after(cache: Tensor, at: Tensor, new: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    made, found = put(cache, at, new)
    return made, F.linear(found.reshape(2, -1), w.to(found.dtype))


def test_caches_are_written_in_place_before_products_by_bytes() -> None:
    """Those fail for no value of their operands, after which an input would be half written."""
    cache, new, at = torch.randn(2, 3, 200, 4), torch.randn(2, 3, 2, 4), torch.tensor([17, 4])
    given = [cache.to(HALF), at, new.to(HALF), torch.zeros(48, 600, dtype=torch.int8)]
    program = scheduled(with_a_layer_after, given, "cuda", info=Updating())
    assert [s.target for s in program.steps if isinstance(s, Extern)] == [WIDENED_PRODUCT]
    assert [*program.owned.updated.values()] == [program.inputs[0].name]
