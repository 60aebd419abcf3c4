"""Programs with products chosen from templates, for a GPU that need not be there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor._torch_compat import convolutions_tf32, products_tf32
from flambeau_inductor.autotune import Budget, Tuner
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.ir.loops import Load, Store
from flambeau_inductor.ir.program import Alloc, Extern, FreeBuffer, Layout, Program, Reuse, RunLoop
from flambeau_inductor.ir.steps import touched
from flambeau_inductor.kernels.generate import buffers_of
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.schedule import schedule
from flambeau_inductor.templates.attention.match_attention import find_backward
from flambeau_inductor.templates.gemm.match_gemm import find
from flambeau_inductor.templates.selection.select import LIBRARY, select, select_by_model
from flambeau_inductor.templates.selection.trial_runs import Bench
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F


def program_of(fn: Callable[..., Any], *shapes: tuple[int, ...], ends: int = 0) -> Program:
    """The program of `fn` on CUDA tensors that do not exist; with `ends`, so many integers last."""
    with FakeTensorMode():
        inputs = [torch.empty(s, device="cuda", dtype=torch.bfloat16) for s in shapes]
        inputs += [torch.empty(ends, device="cuda", dtype=torch.int32)] if ends else []
        gm = flambeau_prims.lower(fx.symbolic_trace(fn), inputs)
    return schedule(lower_graph(gm, inputs), Options().limits)


class Chooser(Tuner):
    """Chooses what the test wants of a product, and never measures."""

    def __init__(self, wanted: Callable[[str], bool], kind: str = "product") -> None:
        self.wanted, self.kind = wanted, kind
        self.budget = Budget(60.0)

    def choose(self, key: str, names: Sequence[str], candidates: object, kin: str = "") -> str:
        if not key.startswith(self.kind):
            return names[0]
        return next((name for name in names if self.wanted(name)), names[0])


def sound(program: Program, kernels: Mapping[str, TritonKernel] | None = None) -> None:
    """Every buffer is there when it is used, and freed once; `kernels` by the loops' names."""
    there = {b.name for b in program.inputs} | {name for name, _ in program.constants}
    for step in program.steps:
        if isinstance(step, RunLoop) and kernels is not None:
            kernel = kernels.get(step.loop.name)
            assert (buffers_of(step.loop) if kernel is None else set(kernel.arguments)) <= there
        if isinstance(step, Alloc):
            assert step.buffer not in there, step
            there.add(step.buffer)
        elif isinstance(step, Reuse):
            assert step.old in there, step
            there.add(step.buffer)
        elif isinstance(step, FreeBuffer):
            assert step.buffer in there, step
            there.discard(step.buffer)
        elif isinstance(step, Extern):
            reads, writes = touched(step)
            assert reads | writes <= there, step
            there.update(r for r in step.results if r)


def mlp(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, v: torch.Tensor) -> Any:
    return F.gelu(F.linear(x, w, b)) @ v + x


SHAPES = ((512, 256), (1024, 256), (1024,), (1024, 256))
DEEP = ((64, 8192), (256, 8192), (256,), (256, 8192))


def test_products_are_found_with_what_follows_them() -> None:
    found = find(program_of(mlp, *SHAPES), tf32=False)
    assert [f.product.sizes for f in found] == [(1, 512, 1024, 256), (1, 512, 256, 1024)]
    assert all(f.reader is not None for f in found)


@pytest.mark.parametrize("parts", [False, True])
def test_a_chosen_template_takes_the_place_of_call_and_loop(parts: bool) -> None:
    program = program_of(mlp, *(DEEP if parts else SHAPES))
    calls = sum(isinstance(s, Extern) for s in program.steps)
    made = select(program, Chooser(lambda name: ("k" in name) == parts and "x" in name), "a GPU")
    taken = [name for name, choice in made.chosen.items() if "x" in choice]
    assert taken
    assert sum(isinstance(s, Extern) for s in made.program.steps) == calls - len(taken)
    sound(made.program, made.kernels)
    loops = {s.loop.name for s in made.program.steps if isinstance(s, RunLoop)}
    assert made.kernels.keys() <= loops
    for kernel in made.kernels.values():
        assert "tl.dot" in kernel.source
    names = {b.name for b in made.program.buffers}
    for step in made.program.steps:
        assert not isinstance(step, RunLoop) or buffers_of(step.loop) <= names


def test_a_product_that_nobody_reads_on_is_a_loop_of_known_buffers() -> None:
    program = program_of(lambda a, b: a @ b, (256, 512), (512, 384))
    made = select(program, Chooser(lambda name: "x" in name and "k" not in name), "a GPU").program
    (loop,) = (s.loop for s in made.steps if isinstance(s, RunLoop))
    assert buffers_of(loop) == {b.name for b in made.buffers}
    sound(made)


def test_tensors_of_a_race_may_share_memory_between_elements() -> None:
    layout = Layout((2, 3, 4), (4, 0, 1), torch.float32, torch.device("cpu"))
    made = Bench({"a": layout}, Budget(1.0)).tensor("a")
    assert made.shape == (2, 3, 4) and made.stride() == (4, 0, 1) and made.isfinite().all()


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_the_template_takes_the_place_of_the_library(causal: bool) -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        out = torch.ops.flambeau_prims.attention.default(q, k, v, None, 0.0, causal)
        return torch.relu(out[0])

    program = program_of(attend, *[(2, 4, 64, 32)] * 3)
    made = select(program, Chooser(lambda name: "x" in name, "attention"), "a GPU")
    assert not any(isinstance(s, Extern) for s in made.program.steps)
    sound(made.program, made.kernels)
    (kernel,) = made.kernels.values()
    assert "tl.exp2" in kernel.source and ("rows[:, None] >= columns" in kernel.source) == causal


@pytest.mark.parametrize("backend", ["prims", "flash", "cudnn"])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_the_template_take_the_place_of_the_library(
    causal: bool, backend: str
) -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor) -> Any:
        ops, aten = torch.ops.flambeau_prims, torch.ops.aten
        out, sums = ops.attention.default(q, k, v, None, 0.0, causal)
        if backend == "prims":
            return ops.attention_backward.default(
                grad, q, k, v, out, sums, None, 0.0, causal, scale=0.2
            )
        if backend == "flash":
            return aten._scaled_dot_product_flash_attention_backward.default(
                grad, q, k, v, out, sums, None, None, 64, 64, 0.0, causal, None, None, scale=0.2
            )
        seed = torch.ops.flambeau_prims.full.default([], 0, dtype=torch.int64, device=q.device)
        return aten._scaled_dot_product_cudnn_attention_backward.default(
            grad, q, k, v, out, sums, seed, seed, None, None, None, 64, 64, 0.0, causal, scale=0.2
        )

    program = program_of(attend, *[(2, 4, 64, 32)] * 4)
    calls = sum(isinstance(s, Extern) for s in program.steps)
    assert len(find_backward(program)) == 1
    made = select(program, Chooser(lambda name: "x" in name, "backward"), "a GPU")
    assert sum(isinstance(s, Extern) for s in made.program.steps) == calls - 1
    sound(made.program, made.kernels)
    assert [name.split("_")[-1] for name in made.kernels] == ["queries", "keys"]
    keys = made.kernels[[n for n in made.kernels if n.endswith("keys")][0]]
    assert f"{0.2 * 1.4426950408889634!r}" in keys.source
    assert ("rows[None, :] >= columns" in keys.source) == causal


@pytest.mark.parametrize("causal", [False, True])
def test_a_bias_that_learns_gets_its_gradient_where_all_keys_are_seen(causal: bool) -> None:
    def attend(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor, bias: torch.Tensor
    ) -> Any:
        ops, aten = torch.ops.flambeau_prims, torch.ops.aten
        out, sums = ops.attention.default(q, k, v, bias, 0.0, causal)
        seed = ops.full.default([], 0, dtype=torch.int64, device=q.device)
        every = [True, True, True, True]
        return aten._scaled_dot_product_efficient_attention_backward.default(
            grad, q, k, v, bias, out, sums, seed, seed, 0.0, every, causal
        )

    program = program_of(attend, *[(2, 4, 64, 32)] * 4, (2, 4, 64, 64))
    found = find_backward(program)
    assert len(found) == (0 if causal else 1)
    if not causal:
        made = select(program, Chooser(lambda name: "x" in name, "backward"), "a GPU")
        sound(made.program, made.kernels)
        queries = made.kernels[[n for n in made.kernels if n.endswith("queries")][0]]
        of_bias = found[0].results[3]
        assert of_bias in queries.arguments and "change.to(" in queries.source


class FirstOnly(Tuner):
    """Takes what would be taken if no time were left."""

    def __init__(self) -> None:
        self.first: dict[str, str] = {}
        self.budget = Budget(60.0)

    def choose(self, key: str, names: Sequence[str], candidates: object, kin: str = "") -> str:
        self.first[key.split()[0]] = names[0]
        return names[0]


@pytest.mark.parametrize("trusted", [False, True])
def test_the_default_is_the_first_of_each_race(trusted: bool) -> None:
    """With no second left, `max_autotune` takes what is taken without it."""

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor) -> Any:
        ops = torch.ops.flambeau_prims
        out, sums = ops.attention.default(q, k, v, None, 0.0, True)
        return ops.attention_backward.default(grad, q, k, v, out, sums, None, 0.0, True)

    program = program_of(attend, *[(4, 8, 1024, 64)] * 4)
    tuner = FirstOnly()
    made = select(program, tuner, "a GPU", trusted=trusted)
    without = select_by_model(program) if trusted else select(program, tuner, "a GPU")
    calls = [s.target for s in without.program.steps if isinstance(s, Extern)]
    assert [s.target for s in made.program.steps if isinstance(s, Extern)] == calls
    assert ("library" in tuner.first.values()) == (not trusted)
    assert len(calls) == (0 if trusted else 2)


def test_logarithms_of_sums_are_made_where_they_are_wanted() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        return torch.ops.flambeau_prims.attention.default(q, k, v, None, 0.0, False)

    program = program_of(attend, *[(2, 4, 50, 32)] * 3)
    made = select(program, Chooser(lambda name: "x" in name, "attention"), "a GPU")
    assert not any(isinstance(s, Extern) for s in made.program.steps)
    sound(made.program, made.kernels)
    (kernel,) = made.kernels.values()
    assert "tl.store(sums_at, sums, rows < 64)" in kernel.source and len(kernel.arguments) == 5


def test_dropout_and_gradients_that_nobody_wants_are_the_library_s() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor) -> Any:
        out, sums = torch.ops.flambeau_prims.attention.default(q, k, v, None, 0.0, False)
        args = (grad, q, k, v, out, sums, None, None, 64, 64, 0.5, False, None, None)
        made = torch.ops.aten._scaled_dot_product_flash_attention_backward.default(*args)
        return made[0], made[1], made[2]

    def first(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor) -> Any:
        out, sums = torch.ops.flambeau_prims.attention.default(q, k, v, None, 0.0, False)
        args = (grad, q, k, v, out, sums, None, 0.0, False)
        return torch.ops.flambeau_prims.attention_backward.default(*args)[0]

    for fn in (attend, first):
        assert not find_backward(program_of(fn, *[(2, 4, 64, 32)] * 4))


def test_nothing_changes_where_the_library_wins() -> None:
    program = program_of(mlp, *SHAPES)
    made = select(program, Chooser(lambda name: name == LIBRARY), "a GPU")
    assert made.program == program and not made.kernels


def test_a_result_is_not_written_over_an_operand() -> None:
    """relu(y @ w) + y may take y's memory after the product; programs of a tile still read it."""

    def square(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = torch.sin(x)
        return (F.relu(y @ w) + y) @ w

    program = program_of(square, (256, 256), (256, 256))
    made = select(program, Chooser(lambda name: "x" in name and "k" not in name), "a GPU").program
    assert not any(isinstance(s, Extern) for s in made.steps)
    sound(made)
    fused = next(s for s in made.steps if isinstance(s, RunLoop) and "buf" in s.loop.name)
    position = made.steps.index(fused)
    stores = {i.buffer for i in fused.loop.body if isinstance(i, Store)}
    taken = {s.old for s in made.steps[:position] if isinstance(s, Reuse) and s.buffer in stores}
    loads = {i.buffer for i in fused.loop.body if isinstance(i, Load)}
    assert not taken & loads


@pytest.mark.parametrize("device", ["any", "known"])
def test_a_kernel_of_a_template_takes_in_no_other_product(device: str) -> None:
    """One loop reads two products: once the second is computed with it, the first is on its own."""

    def gated(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> Any:
        return F.silu(x @ w) * (x @ v)

    program = program_of(gated, (512, 256), (256, 1024), (256, 1024))
    chooser = Chooser(lambda name: "x" in name and "k" not in name)
    made = select(program, chooser, "a GPU", trusted=device == "known")
    assert not any(isinstance(s, Extern) for s in made.program.steps)
    assert len(made.kernels) == 2
    sound(made.program, made.kernels)


def test_products_with_the_most_to_compute_are_raced_first() -> None:
    raced: list[str] = []

    class Listed(FirstOnly):
        def choose(self, key: str, names: Sequence[str], candidates: object, kin: str = "") -> str:
            raced.append(key.split()[-2])
            return super().choose(key, names, candidates)

    def chain(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> Any:
        return (torch.relu(x @ w) @ v).relu()

    program = program_of(chain, (64, 512), (512, 128), (128, 4096))
    select(program, Listed(), "a GPU")
    assert raced == ["1x64x4096x128", "1x64x128x512"]


def test_with_no_time_left_a_trusted_device_gets_its_defaults() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        return torch.ops.flambeau_prims.attention.default(q, k, v, None, 0.0, True)[0]

    class Never(FirstOnly):
        def __init__(self) -> None:
            super().__init__()
            self.budget = Budget(0.0)

        def choose(self, key: str, names: Sequence[str], candidates: object, kin: str = "") -> str:
            raise AssertionError("there is no time for this")

    program = program_of(attend, *[(4, 8, 1024, 64)] * 3)
    made = select(program, Never(), "a GPU", trusted=True)
    assert not any(isinstance(s, Extern) for s in made.program.steps)
    assert select(program, Never(), "a GPU").program == program


def test_tf32_is_asked_for_in_the_older_and_the_newer_way() -> None:
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = matmul.fp32_precision, conv.fp32_precision
    assert not products_tf32() and convolutions_tf32()
    try:
        matmul.fp32_precision, conv.fp32_precision = "tf32", "ieee"
        assert products_tf32() and not convolutions_tf32()
    finally:
        matmul.fp32_precision, conv.fp32_precision = before
    try:
        torch.set_float32_matmul_precision("high")
        assert products_tf32()
    finally:
        torch.set_float32_matmul_precision("highest")
    assert not products_tf32()
