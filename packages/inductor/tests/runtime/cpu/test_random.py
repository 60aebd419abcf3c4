"""Eager's random numbers by a kernel: torch's draws, and torch's generator after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims  # noqa: F401  # graphs are made of its operators
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain
from flambeau_inductor.codegen.cpp.unit import generate
from flambeau_inductor.runtime.artifact import load_kernels
from flambeau_inductor.runtime.cpu.random import BERNOULLI, KernelBernoulli, bernoulli, bernoulli_by
from torch import fx

Kernel = Callable[..., Any]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    text = generate([], lambda name: torch.float32, 16, draws=True)
    library = find_toolchain().build(text.text, tmp_path_factory.mktemp("draws"))
    (made,) = load_kernels(library, text.functions)
    return made


@pytest.fixture
def drawn(kernel: Kernel) -> Callable[..., torch.Tensor]:
    made = bernoulli_by(kernel)
    if not isinstance(made, KernelBernoulli):
        pytest.skip("torch draws from another generator on this processor")
    return made


@pytest.fixture(autouse=True)
def generator_as_it_was() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        yield


@pytest.mark.sweep(2)
@pytest.mark.parametrize("before", [0, 1, 311, 623, 624])
@pytest.mark.parametrize("p", [0.0, 1e-3, 1 / 3, 0.9, 1.0])
def test_draws_and_state_are_torchs(
    drawn: Callable[..., torch.Tensor], before: int, p: float
) -> None:
    seed = int(torch.randint(1 << 40, ()))
    after = []
    for draw in (bernoulli, drawn):
        torch.manual_seed(seed)
        torch.rand(before)
        masks = [draw((n,), (1,), p) for n in (1024, 1235, 3)]
        after.append((*masks, torch.rand(3), torch.randn(3), torch.get_rng_state()))
    for ours, theirs in zip(*after, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("before", [0, 1, 623])
@pytest.mark.parametrize("threads", [1, 2, 3, 9])
def test_threads_share_one_stream(
    drawn: Callable[..., torch.Tensor], before: int, threads: int
) -> None:
    as_they_were = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        after = []
        for draw in (bernoulli, drawn):
            torch.manual_seed(before)
            torch.rand(before)
            masks = [draw((n,), (1,), 0.3) for n in (1 << 16, 100_003)]
            after.append((*masks, torch.rand(3), torch.get_rng_state()))
    finally:
        torch.set_num_threads(as_they_were)
    for ours, theirs in zip(*after, strict=True):
        assert torch.equal(ours, theirs)


def test_words_that_leave_it_open_are_decided_by_the_next(
    drawn: Callable[..., torch.Tensor],
) -> None:
    torch.manual_seed(7)
    p = float(torch.rand(1024, dtype=torch.float64)[777])
    for least in (p, p + 2**-53):
        torch.manual_seed(7)
        got = drawn((1024,), (1,), least)
        torch.manual_seed(7)
        want = bernoulli((1024,), (1,), least)
        assert torch.equal(got, want)
        assert bool(got[777]) == (least > p)


def test_memory_is_filled_in_its_order(drawn: Callable[..., torch.Tensor]) -> None:
    torch.manual_seed(1)
    got = drawn((2, 32, 8, 8), (2048, 1, 256, 32), 0.5)
    torch.manual_seed(1)
    image = torch.empty(2, 32, 8, 8).to(memory_format=torch.channels_last)
    assert torch.equal(got, torch.empty_like(image).bernoulli_(0.5).bool())
    assert got.is_contiguous(memory_format=torch.channels_last)


def test_a_kernel_that_draws_otherwise_is_not_used(kernel: Kernel) -> None:
    def another(*arguments: Any) -> None:
        kernel(*arguments[:-1], arguments[-1] // 2)

    assert bernoulli_by(another) is bernoulli


def test_an_error_leaves_the_generator_alone(kernel: Kernel) -> None:
    def refuses(state: torch.Tensor) -> None:
        raise ValueError("no")

    out = torch.zeros(8, dtype=torch.bool)
    with pytest.raises(ValueError, match="no"):
        kernel(torch.get_rng_state, torch.Tensor.data_ptr, refuses, out.data_ptr(), 8, 1)
    with pytest.raises(TypeError, match="6 arguments"):
        kernel(torch.get_rng_state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_graph_draws_what_eager_draws(dtype: torch.dtype, tmp_path: Path) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(40, 50, dtype=dtype)
    mask = graph.call_function(torch.ops.aten.bernoulli.p, (x, 0.7))
    mask.meta["val"] = torch.empty(40, 50, dtype=dtype)
    product = graph.call_function(torch.ops.flambeau_prims.mul.default, (x, mask))
    product.meta["val"] = torch.empty(40, 50, dtype=dtype)
    graph.output((product,))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    value = torch.randn(40, 50).to(dtype)
    compiled = flambeau_inductor.compile(gm, [value], options=Options(cache_dir=str(tmp_path)))
    called = "aten.bernoulli.p" if dtype == torch.float64 else BERNOULLI
    assert compiled.report.externs == {called: 1}
    torch.manual_seed(3)
    (got,) = compiled([value])
    torch.manual_seed(3)
    assert torch.equal(got, value * torch.bernoulli(value, 0.7))
