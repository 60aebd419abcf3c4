"""Candidates that compute something else win no race; run under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor.autotune import Budget, Candidate, Tuner
from flambeau_inductor.ir.program import Extern, Layout, Program, Ref
from flambeau_inductor.templates.attention.match_attention import find_attention
from flambeau_inductor.templates.call_replacement import Selected
from flambeau_inductor.templates.gemm.match_gemm import find
from flambeau_inductor.templates.selection import races
from flambeau_inductor.templates.selection.trial_runs import Bench, OtherNumbers, agreeing, distance
from torch import Tensor

from tests.templates.selection.test_shape_buckets import Clock, Kept
from tests.templates.test_convolution import LAST, program_of

CPU = torch.device("cpu")
SHAPE = (6, 5)


def bench() -> Bench:
    layout = Layout(SHAPE, (5, 1), torch.float32, CPU)
    return Bench({"out": layout, "flags": replace(layout, dtype=torch.bool)}, Budget(1.0))


def test_runs_that_leave_other_numbers_raise_and_the_others_stay() -> None:
    made = bench()
    right, out = torch.randn(SHAPE), made.tensor("out")

    def broken() -> None:
        raise RuntimeError("out of shared memory")

    ways = {
        "same": lambda: out.copy_(right),
        "rounded": lambda: out.copy_(right.bfloat16()),
        "turned": lambda: out.copy_(-right),
        "partly": lambda: out[:4].copy_(right[:4]),
        "broken": broken,
    }
    found = agreeing(made, lambda: out.copy_(right), ways, ["out"])
    assert found.keys() == ways.keys()
    for name in ("turned", "partly"):
        with pytest.raises(OtherNumbers, match="library"):
            found[name]()
    assert all(found[name] is ways[name] for name in ("same", "rounded", "broken"))


def test_what_is_left_alone_of_a_result_is_not_compared() -> None:
    made = bench()
    right, out = torch.randn(SHAPE), made.tensor("out")

    def first(numbers: Tensor) -> Callable[[], object]:
        return lambda: out[:3].copy_(numbers[:3])

    ways = {"same": first(right), "other": first(-right), "nothing": lambda: None}
    found = agreeing(made, first(right), ways, ["out"])
    assert found["same"] is ways["same"]
    for name in ("other", "nothing"):
        with pytest.raises(OtherNumbers):
            found[name]()


def test_distance() -> None:
    a = torch.tensor([3.0, 4.0])
    assert distance(a, a) == 0 and distance(a, torch.tensor([3.0, 4.5])) == pytest.approx(0.1)
    assert distance(a, torch.tensor([3.0, torch.nan])) == float("inf")
    both = torch.tensor([3.0, torch.inf])
    assert distance(both, both) == 0
    assert distance(torch.tensor([True, False]), torch.tensor([True, True])) == 0.5


def on_cpu(program: Program) -> Program:
    """The same program with buffers on the CPU, where the interpreter runs its kernels."""

    def moved(layout: Layout) -> Layout:
        return replace(layout, device=CPU)

    def seen(argument: Any) -> Any:
        if isinstance(argument, Ref) and argument.layout is not None:
            return replace(argument, layout=moved(argument.layout))
        return argument

    return replace(
        program,
        buffers=tuple(replace(b, layout=moved(b.layout)) for b in program.buffers),
        steps=tuple(
            replace(s, args=tuple(map(seen, s.args))) if isinstance(s, Extern) else s
            for s in program.steps
        ),
    )


class Tried(Tuner):
    """Runs each candidate once, and keeps what it raised."""

    def choose(
        self,
        key: str,
        names: Sequence[str],
        candidates: Callable[[], Sequence[Candidate]],
        kin: str = "",
    ) -> str:
        self.raised: dict[str, str] = {}
        for candidate in candidates():
            try:
                candidate.run()
            except Exception as error:
                self.raised[candidate.name] = type(error).__name__
        return names[0]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.parametrize("kind", ["product", "convolution", "depthwise"])
def test_kernels_of_a_race_agree_with_the_library(kind: str, followed: bool) -> None:
    half = torch.float16
    a, b = torch.empty(20, 70, dtype=half), torch.empty(70, 40, dtype=half)
    if kind != "product":
        a = torch.empty(2, 16, 9, 8, dtype=half).contiguous(memory_format=LAST)
        b = torch.empty(16, 1 if kind == "depthwise" else 16, 3, 3, dtype=half)

    def fn(a: Tensor, b: Tensor) -> Tensor:
        groups = 16 if kind == "depthwise" else 1
        made = a @ b if kind == "product" else F.conv2d(a, b, padding=1, groups=groups)
        return made * 0.5 + 1 if followed else made

    program = program_of(fn, [a, b])
    (found,) = find(program, tf32=False)
    assert (found.reader is not None) == followed
    tuner = Tried(Kept(), Clock(), Budget(60.0))
    races.race(Selected(on_cpu(program)), found, tuner, "none", False)
    assert tuner.raised == {}


def test_a_kernel_that_is_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of(lambda a, b: a @ b, [torch.empty(20, 70), torch.empty(70, 40)])
    (found,) = find(program, tf32=False)
    wrong = replace(found, product=replace(found.product, alpha=0.5))
    tuner = Tried(Kept(), Clock(), Budget(60.0))
    races.race(Selected(on_cpu(program)), wrong, tuner, "none", False)
    assert tuner.raised and set(tuner.raised.values()) == {"OtherNumbers"}
    assert "library" not in tuner.raised


def test_attention_of_a_race_agrees_with_the_library() -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.ops.flambeau_prims.attention.default(q, k, v, None, 0.0, True)[0]

    program = program_of(attend, [torch.empty(1, 2, 48, 32)] * 3)
    (found,) = find_attention(program)
    tuner = Tried(Kept(), Clock(), Budget(60.0))
    races.race(Selected(on_cpu(program)), found, tuner, "none", False)
    assert tuner.raised == {}
