"""Products whose rows are not of whole pieces of 16 bytes, and what is padded for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import flambeau_prims
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor.ir.evaluate import run_program
from flambeau_inductor.ir.loops import Store
from flambeau_inductor.ir.nodes import name_of
from flambeau_inductor.ir.program import Extern, Program, Ref, RunLoop
from flambeau_inductor.passes import pad_products as subject
from flambeau_inductor.passes.primitive_passes import rewrite
from flambeau_inductor.tuning import MEASURED, Tuning
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.evaluated import scheduled

BF16 = torch.bfloat16
SLOW = replace(MEASURED, unaligned_share=1e-9, launch=0.0, memory_rate=1e18)
#: machines on which small products are padded: for the library, and for the template
LIBRARY, TEMPLATE = replace(SLOW, library_share=0.0), replace(SLOW, library_share=1e6)


@pytest.fixture(params=[LIBRARY, TEMPLATE], ids=["library", "template"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tuning:
    tuning: Tuning = request.param
    monkeypatch.setattr(subject, "tuning_of", lambda devices: tuning)
    return tuning


@pytest.fixture
def for_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "tuning_of", lambda devices: LIBRARY)


def linear(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return F.linear(x, w)


def biased(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return F.linear(x, w, b)


def by_columns(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return x.t() @ x, w.t() @ w


def gradients(x: Tensor, w: Tensor, b: Tensor) -> Any:
    y = F.linear(x, w, b)
    grad = torch.softmax(y, -1)
    return grad @ w, grad.t() @ x, grad.sum(0)


def deep(x: Tensor, w: Tensor, b: Tensor) -> Any:
    hidden = F.gelu(F.linear(x, w, b))
    return hidden @ w, hidden


def of_heads(x: Tensor, w: Tensor, b: Tensor) -> Any:
    several = x.reshape(2, -1, x.shape[1])
    return torch.bmm(several, w.t().expand(2, -1, -1)).exp().sum(-1)


def seen_and_read(x: Tensor, w: Tensor, b: Tensor) -> Any:
    y = F.linear(x, w)
    return y, y.float().amax(1), y.reshape(-1).narrow(0, 3, 40)


PROGRAMS: list[Callable[..., Any]] = [
    linear, biased, by_columns, gradients, deep, of_heads, seen_and_read
]  # fmt: skip
SIZES = [(24, 16, 19), (26, 13, 11)]


def operands(rows: int, inner: int, columns: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rows * inner + columns)
    shapes = (rows, inner), (columns, inner), (columns,)
    return [torch.randn(shape, generator=generator).to(BF16) for shape in shapes]


def calls(program: Program) -> list[Extern]:
    return [step for step in program.steps if isinstance(step, Extern)]


def widths(program: Program) -> list[int]:
    """Sizes of all matrices of the products of a program, and the steps between their rows."""
    layouts = {b.name: b.layout for b in program.buffers}
    found: list[int] = []
    for call in calls(program):
        for ref in (*call.args, *call.into):
            assert isinstance(ref, Ref)
            layout = ref.layout or layouts[ref.buffer]
            shape, stride, _ = layout.static()
            rows = [step for n, step in zip(shape, stride, strict=True) if step > 1 and n > 1]
            row = [n for n, step in zip(shape, stride, strict=True) if step == 1]
            found += (*rows, *row)
    return found


@pytest.mark.parametrize("sizes", SIZES, ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_values_and_strides_are_eager_s(
    program: Callable[..., Any], sizes: tuple[int, int, int], machine: Tuning
) -> None:
    given = operands(*sizes)
    made = scheduled(program, given, "cuda")
    found = run_program(made, given)
    wanted = program(*given)
    exact = program(*(each.double() for each in given))
    wanted, exact = (p if isinstance(p, tuple) else (p,) for p in (wanted, exact))
    for got, want, true in zip(found, wanted, exact, strict=True):
        assert got.shape == want.shape and got.stride() == want.stride()
        assert got.dtype == want.dtype
        off, own = ((each.double() - true).square().mean().sqrt() for each in (got, want))
        assert off <= 3 * own + 1e-3 * true.abs().mean()
    if machine is LIBRARY and program is not seen_and_read:
        assert calls(made) and not any(n % 8 for n in widths(made)), widths(made)


@pytest.mark.parametrize("where", [0, 1], ids=["left", "right"])
def test_no_number_meets_a_pad(where: int, machine: Tuning) -> None:
    """Zero times infinity would be NaN: rows without one stay finite."""
    given = operands(26, 13, 11)
    given[where][3] = torch.inf
    given[where][5, 2] = torch.nan
    for program in (linear, deep):
        results = program(*given)
        results = results if isinstance(results, tuple) else (results,)
        for got, want in zip(
            run_program(scheduled(program, given, "cuda"), given), results, strict=True
        ):
            torch.testing.assert_close(got, want, rtol=0.05, atol=0.05, equal_nan=True)


def primitives(program: Callable[..., Any], *given: Tensor, device: str = "cuda") -> list[str]:
    """What a program calls after the passes on graphs of primitives."""
    with FakeTensorMode():
        fakes = [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device) for t in given
        ]
        low = flambeau_prims.lower(fx.symbolic_trace(program), fakes)
    names = map(name_of, rewrite(low).graph.nodes)
    return [name for name in names if name is not None]


def multiplied(x: Tensor, w: Tensor) -> Any:
    return (x @ w).float().sum(-1)


LARGE = 4096
ODD = [sizes for sizes in product((LARGE, LARGE - 1), repeat=3) if sizes[1] % 8 or sizes[2] % 8]


@pytest.mark.parametrize("sizes", ODD, ids=lambda s: "x".join(map(str, s)))
def test_rows_of_all_three_matrices_become_whole_pieces(
    sizes: tuple[int, int, int], for_the_library: None
) -> None:
    rows, inner, columns = sizes
    names = primitives(multiplied, *(like(rows, inner), like(inner, columns)))
    assert names.count("pad") == 1 + bool(inner % 8)
    assert names.count("slice") == bool(columns % 8)


def like(rows: int, columns: int, step: int = 0, dtype: torch.dtype = BF16) -> Tensor:
    return torch.empty_strided((rows, columns), (step or columns, 1), dtype=dtype, device="meta")


@pytest.mark.parametrize(
    "x, w",
    [
        (like(LARGE, LARGE), like(LARGE, LARGE)),
        (like(LARGE - 1, LARGE), like(LARGE, LARGE)),
        (like(LARGE - 1, LARGE).t(), like(LARGE - 1, LARGE)),
        (like(LARGE, LARGE - 1, dtype=torch.float32), like(LARGE - 1, 64, dtype=torch.float32)),
        (like(1, LARGE - 1), like(LARGE - 1, LARGE)),
        (like(64, 63), like(63, 65)),
    ],
    ids=["whole", "rows across", "inner across", "float32", "vector", "small"],
)
def test_what_the_library_is_fast_at_stays(x: Tensor, w: Tensor) -> None:
    assert not {"pad", "slice"} & {*primitives(multiplied, x, w)}


def test_nothing_is_padded_on_a_cpu() -> None:
    given = like(LARGE, LARGE - 1), like(LARGE - 1, LARGE)
    assert "pad" not in primitives(multiplied, *given, device="cpu")


def test_the_step_between_rows_counts_as_their_length_does(for_the_library: None) -> None:
    names = primitives(multiplied, like(LARGE, LARGE, LARGE + 1), like(LARGE, LARGE))
    assert names.count("pad") == 2


def test_one_that_counts_elements_in_memory_sees_the_product_as_it_was() -> None:
    def placed(x: Tensor, w: Tensor) -> Any:
        return torch.as_strided(x @ w, (LARGE, 8), (LARGE - 1, 1), 3)

    names = primitives(placed, like(LARGE, LARGE), like(LARGE, LARGE - 1))
    assert not {"pad", "slice"} & {*names}


def test_a_gradient_is_computed_once_into_rows_that_both_products_read() -> None:
    """The loop that sums its rows stores them, and what sums its columns reads them there."""

    def back(y: Tensor, x: Tensor, w: Tensor) -> Any:
        grad = torch.softmax(y, -1)
        return grad @ w, grad.t() @ x, grad.sum(0)

    sizes = (4096, 30001), (4096, 512), (30001, 512)
    program = scheduled(back, [(size, BF16) for size in sizes], "cuda")
    (buffer,) = (b.name for b in program.buffers if b.layout.shape == (4096, 30008))
    writers = [
        step.loop
        for step in program.steps
        if isinstance(step, RunLoop)
        and any(isinstance(i, Store) and i.buffer == buffer for i in step.loop.body)
    ]
    assert len(writers) == 2 and len(writers[0].r) == 1  # the rows, and their ends
    first, second = calls(program)
    assert buffer in names_of(first) and buffer in names_of(second)
    gradient = program.outputs[1]
    assert isinstance(gradient, Ref) and gradient.layout is not None
    assert gradient.layout.stride == (512, 1)


def names_of(call: Extern) -> list[str]:
    return [ref.buffer for ref in call.args if isinstance(ref, Ref)]
