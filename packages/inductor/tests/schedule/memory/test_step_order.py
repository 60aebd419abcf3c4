"""Which loops wait until they are needed."""

from __future__ import annotations

import torch
from flambeau_inductor import Options
from flambeau_inductor.cuda_graph_rules import peak_bytes
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Axis, Load, Loop, Point, Store
from flambeau_inductor.ir.program import Buffer, Extern, Layout, Ref, RunLoop
from flambeau_inductor.ir.steps import Compute
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.schedule import schedule
from flambeau_inductor.schedule.memory.order import later
from flambeau_prims import lower
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode

NAMES = "a b c d e f".split()
SIZES = {"a": 100, "b": 100, "c": 10, "d": 100, "e": 100, "f": 100}


def _buffers() -> dict[str, Buffer]:
    device = torch.device("cuda", 0)
    return {
        name: Buffer(name, Layout((SIZES[name],), (1,), torch.float32, device, 0)) for name in NAMES
    }


def _loop(made: str, *read: str) -> RunLoop:
    x = Var("x0")
    loads = tuple(Load(name, x, torch.float32) for name in read)
    body = (*loads, Point("neg", (0,), torch.float32), Store(made, x, len(loads)))
    return RunLoop(Loop(f"makes_{made}", (Axis("x0", SIZES[made]),), (), body))


def _call(made: str, *read: str) -> Extern:
    args = tuple(Ref(name, None) for name in read)
    return Extern("aten.mm.out", args, (), (Ref(made, None),), (), ())


def _order(steps: list[Compute], *fixed: str) -> list[int]:
    return [steps.index(each) for each in later(steps, _buffers(), frozenset(fixed))]


def test_a_loop_waits_for_who_needs_it() -> None:
    again, gradient, last = _loop("b", "a"), _call("d", "c"), _call("e", "b", "a")
    assert _order([again, gradient, last]) == [1, 0, 2]
    assert _order([again, gradient, last], "a") == [0, 1, 2]  # who knows who else writes there


def test_chains_wait_together_and_in_order() -> None:
    steps = [_loop("b", "a"), _loop("d", "b"), _call("c", "e"), _call("f", "d", "b", "a")]
    assert _order(steps) == [2, 0, 1, 3]


def test_what_lets_as_much_go_runs_at_once() -> None:
    assert _order([_loop("b", "a"), _call("d", "c"), _call("e", "b")]) == [0, 1, 2]
    assert _order([_loop("c", "a"), _call("d", "e"), _call("f", "c", "a")]) == [1, 0, 2]


def test_what_others_need_for_less_long_is_not_kept_for_it() -> None:
    assert _order([_loop("b", "a"), _call("d", "a"), _call("c", "d"), _call("e", "b")]) == [
        0,
        1,
        2,
        3,
    ]


def test_nobody_writes_what_is_still_read() -> None:
    rewritten = _call("a", "d")
    assert _order([_loop("b", "a"), rewritten, _call("e", "b", "a")]) == [0, 1, 2]


def chained(x: Tensor, w: Tensor) -> Tensor:
    """What a backward graph does that computes cheap values of the forward graph again."""
    again = [torch.relu(x + number) for number in range(8)]
    y = x
    for each in reversed(again):
        y = torch.mm(y, w) * each
    return y


def test_less_is_held_and_the_same_is_computed() -> None:
    def program(device: str):
        with FakeTensorMode():
            x = torch.empty(512, 512, device=device)
            gm = lower(fx.symbolic_trace(chained), [x, x])
        return schedule(lower_graph(gm, [x, x]), Options().limits)

    gpu = program("cuda")
    assert peak_bytes(gpu) <= 4 << 20  # of nine values of 1 MiB each
    names = [s.target for s in gpu.steps if isinstance(s, Extern)]
    assert names == ["aten.mm.out"] * 8
