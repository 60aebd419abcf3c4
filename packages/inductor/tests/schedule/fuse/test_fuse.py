"""How many loops programs become, why others are refused, and that any grouping is right."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import flambeau_prims
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor.driver import PassContext
from flambeau_inductor.ir.loops import Store
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.options import Options
from flambeau_inductor.passes.primitive_passes import rewrite
from flambeau_inductor.schedule import Limits
from flambeau_inductor.schedule.fuse import fuse as fusing
from flambeau_inductor.schedule.materialize.materialize import materialize
from flambeau_inductor.schedule.tensor_program import TensorProgram
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx

from tests.evaluated import Outcome, against_eager

aten = torch.ops.aten


def r(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


@pytest.mark.parametrize(
    ("function", "inputs", "loops"),
    [
        (lambda x, y: torch.relu(x) + y, (r(8, 16), r(8, 16)), 1),
        (lambda x: x.softmax(-1), (r(4, 8, 16),), 1),
        (lambda x: x.bfloat16().softmax(-1), (r(8, 16),), 1),
        (lambda x: x.softmax(0), (r(16, 8),), 1),
        (lambda x, w, b: F.gelu(F.layer_norm(x, (16,), w, b)), (r(4, 8, 16), r(16), r(16)), 1),
        (lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w,
         (r(8, 16), r(16)), 1),
        (lambda x: (x.sum(1), x.amax(1), x * 2), (r(8, 16),), 1),
        (lambda x: (x + 1, x * 2, x.exp()), (r(8, 16),), 1),
        (lambda x: (x.sum(0), x.sum(1)), (r(8, 16),), 2),
        (lambda x, y: (x + 1, y * 2), (r(80, 80), r(80, 80)), 2),
        (lambda x, y: (x + 1, y * 2), (r(8, 16), r(8, 16)), 1),
        (lambda x: (x.exp() + x.exp().t(),), (r(8, 8),), 2),
        (lambda g, y: aten._softmax_backward_data.default(g, y, 1, torch.float32),
         (r(8, 16), r(8, 16)), 1),
        (lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, True)),
         (r(4, 3, 5, 5), r(3), r(3)), 1),
        (lambda x: x.view(2, 4, 16).softmax(-1).view(8, 16) + 1, (r(8, 16),), 1),
    ],
)  # fmt: skip
def test_number_of_loops(
    function: Callable[..., Any], inputs: tuple[torch.Tensor, ...], loops: int
) -> None:
    assert len(against_eager(function, *inputs, tolerance=1e-2).loops) == loops


def reasons(outcome: Outcome) -> set[str]:
    return {refusal.reason.split(":")[0] for refusal in outcome.refusals}


def test_reasons_of_refusals() -> None:
    transposed = against_eager(lambda x: x.exp() + x.exp().t(), r(8, 8))
    assert "index" in reasons(transposed)
    small = Limits(row_bytes=16, single_row_bytes=16)
    rows = against_eager(lambda x: x.softmax(1), r(8, 16), limits=small)
    assert "row" in reasons(rows) and len(rows.loops) > 1
    tiny = against_eager(lambda x: x.softmax(1), r(8, 16), limits=Limits(loop_ops=1))
    assert "size" in reasons(tiny)
    # The product needs y, and what reads the product also reads y: y must come first, alone.
    cycle = against_eager(lambda x, w: (x + 1).exp() * ((x + 1).exp() @ w), r(8, 8), r(8, 8))
    assert "cycle" in reasons(cycle)
    assert len(cycle.loops) == 2


def test_a_value_that_only_its_loop_reads_is_not_stored() -> None:
    outcome = against_eager(lambda x: x.softmax(1), r(8, 16))
    assert len(outcome.program.buffers) == 2


def test_elementwise_results_take_over_dead_memory() -> None:
    outcome = against_eager(lambda x, w, v: torch.tanh(x @ w) @ v, r(4, 4), r(4, 4), r(4, 4))
    names = [type(s).__name__ for s in outcome.program.steps]
    assert names.count("Reuse") == 1


def test_sums_after_products_go_into_the_product_only_where_nobody_computes_on() -> None:
    outcome = against_eager(
        lambda x, w, b, v: F.linear(F.relu(F.linear(x, w, b)), v, b),
        r(3, 4), r(4, 4), r(4), r(4, 4),
    )  # fmt: skip
    assert outcome.externs == ["aten.mm.out", "aten.addmm.out"]
    assert len(outcome.loops) == 1


def test_transposed_operands_are_not_copied() -> None:
    outcome = against_eager(lambda x, w: x.t() @ w.t(), r(5, 4), r(6, 5))
    assert outcome.loops == []


def test_copies_that_undo_each_other_before_a_product_are_not_made() -> None:
    def by_heads(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        heads = x.view(2, 3, 4, 5).transpose(1, 2).contiguous()
        return heads.transpose(1, 2).reshape(6, 20) @ w

    outcome = against_eager(by_heads, r(6, 20), r(20, 4))
    assert outcome.loops == [] and outcome.externs == ["aten.mm.out"]


UNARY: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.relu,
    torch.tanh,
    lambda a: a * 0.5,
    lambda a: a.transpose(0, 1).contiguous().transpose(0, 1),
    lambda a: a - a.amax(1, keepdim=True),
    lambda a: a.softmax(1),
    lambda a: a / (1 + a.abs().sum(0, keepdim=True)),
    lambda a: a.flip(0),
    lambda a: torch.cat([a[:, 2:], a[:, :2] * 2], 1),
    lambda a: F.pad(a[1:], (0, 0, 1, 0)),
    lambda a: a.reshape(3, 8).cumsum(1).reshape(4, 6),
    lambda a: a @ torch.ones(6, 6),
    lambda a: (a - a.mean(1, keepdim=True)) * torch.rsqrt(a.var(1, keepdim=True) + 1),
    lambda a: torch.where(a > 0, a, a.exp()),
    lambda a: a[torch.tensor([3, 1, -4, 0])],
    lambda a: a.t().reshape(4, 6),
]
BINARY: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    torch.add,
    torch.mul,
    torch.maximum,
    lambda a, b: a - b.sum(),
    lambda a, b: a + b.mean(0),
]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_programs(data: st.DataObject) -> None:
    steps = data.draw(
        st.lists(
            st.one_of(
                st.tuples(st.integers(0, len(UNARY) - 1), st.integers(0, 99)),
                st.tuples(st.integers(0, len(BINARY) - 1), st.integers(0, 99), st.integers(0, 99)),
            ),
            min_size=1,
            max_size=10,
        )
    )
    wanted = data.draw(st.sets(st.integers(0, 99), min_size=1, max_size=3))
    fusion = data.draw(st.booleans())

    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [x, y]
        for step in steps:
            operands = [values[-1 - i % len(values)] for i in step[1:]]
            function: Any = UNARY[step[0]] if len(step) == 2 else BINARY[step[0]]
            values.append(function(*operands))
        return (values[-1] + 0.5, *(values[2 + i % len(steps)] * 1.5 for i in sorted(wanted)))

    torch.manual_seed(len(steps))
    against_eager(program, r(4, 6), r(4, 6), tolerance=1e-4, limits=Limits(fusion=fusion))


@pytest.mark.parametrize("seed", range(8))
def test_after_each_fusion_every_step_knows_all_that_must_run_before_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, joined = random.Random(seed), []
    merge = fusing._merge

    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [x, y]
        for _ in range(30):
            function: Any = draw.choice([*UNARY, *BINARY])
            operands = draw.choices(values[-6:], k=2 if function in BINARY else 1)
            values.append(function(*operands))
        return tuple(values[-3:])

    def checked(state: Any, a: Any, b: Any) -> Any:
        made = merge(state, a, b)
        joined.append(made)
        for step in state.steps.values():
            earlier, work = set(), [*(fusing._direct(state, step) - {step.number})]
            while work:
                if (number := work.pop()) not in earlier:
                    earlier.add(number)
                    work += fusing._direct(state, state.steps[number]) - {number}
            known = {n for n, each in state.steps.items() if step.before & each.bits}
            assert known == earlier
        return made

    monkeypatch.setattr(fusing, "_merge", checked)
    inputs = [r(4, 6), r(4, 6)]
    graph = lower_graph(rewrite(flambeau_prims.lower(fx.symbolic_trace(program), inputs)), inputs)
    context = PassContext(options=Options())
    planned, _ = materialize(context, TensorProgram(graph))
    _, count = fusing.fuse(context, planned)
    assert count == len(joined) > 5


def test_loops_that_walk_a_tensor_in_different_orders_stay_apart() -> None:
    """Joined they would read it no less often, and address it by quotients and remainders."""

    def turned(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = x.permute(0, 2, 3, 1)
        return (rows * 2).sum((0, 1, 2)), x.exp() + y

    outcome = against_eager(turned, r(16, 20, 6, 5), r(16, 20, 6, 5), tolerance=1e-4)
    assert len(outcome.loops) == 2
    same = against_eager(
        lambda x, y: ((x * 2).sum((0, 2, 3)), x.exp() + y), r(16, 20, 6, 5), r(16, 20, 6, 5),
        tolerance=1e-4,
    )  # fmt: skip
    assert len(same.loops) == 1


JOINED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cat": lambda part, x: torch.cat([part, x])[7:],
    "rolled": lambda part, x: torch.cat([part, x, x]).roll(9)[16:],
    "padded": lambda part, x: F.pad(part, (0, 41))[7:] + x,
    "row": lambda part, x: torch.select_scatter(x.expand(3, 41), x.sum().expand(41), 0, 1)[2],
    "diagonal": lambda part, x: torch.diag_embed(part)[0, 1] + x,
    "corner": lambda part, x: part[:, None].expand(7, 7).triu()[4, :3].sum() + x,
}
PARTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "constants": lambda x: torch.full((7, 3), 2.0).sum(1),
    "elements": lambda x: (x.cos()[:7, None] * x[:3]).sum(1),
    "scan": lambda x: x[:7].cumsum(0),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("joined", JOINED)
def test_every_loop_stores_though_its_reader_shows_another_part(joined: str, part: str) -> None:
    limits = Limits(tiny_points=0)
    outcome = against_eager(
        lambda x: JOINED[joined](PARTS[part](x), x) * 2, r(41), limits=limits, tolerance=1e-5
    )
    for loop in outcome.loops:
        assert any(isinstance(instr, Store) for instr in loop.body)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3)])
@pytest.mark.parametrize("function", ["logsumexp", "softmax", "any", "var"])
@pytest.mark.parametrize("dim", [0, -1])
def test_reductions_of_no_elements(function: str, shape: tuple[int, ...], dim: int) -> None:
    def reduced(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = getattr(torch, function)(x, dim)
        return found, (found + found.sum()).float().exp()

    against_eager(reduced, torch.empty(shape))


@pytest.mark.parametrize("function", [torch.sum, torch.amax, torch.exp])
@pytest.mark.parametrize("other", [torch.sum, torch.mean])
def test_what_only_a_loop_over_no_points_reads_is_not_computed(function: Any, other: Any) -> None:
    def program(x: torch.Tensor, y: torch.Tensor, none: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return none + function(x).sum() * other(y), none * x[0, 0]

    outcome = against_eager(program, r(4, 6), r(5, 7), torch.empty(0, 3))
    assert not outcome.loops


REDUCTIONS = {
    "sum": torch.sum, "prod": torch.prod, "amax": torch.amax, "mean": torch.mean,
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("points", [0, 3])
def test_a_loop_over_no_points_does_not_wait_for_what_is_left_out(name: str, points: int) -> None:
    """What it alone would read is not computed, and it may join what does not depend on that."""

    def function(x: torch.Tensor, e: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, whole = e + 1, REDUCTIONS[name](x)
        return y, y * whole, (e * 2) - whole, e.exp()

    for x in (r(7), r(64, 64)):
        against_eager(function, x, r(points, 3), tolerance=1e-2)
