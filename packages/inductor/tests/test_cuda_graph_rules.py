"""Which programs are recorded unasked, and by which rules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flambeau_inductor import cuda_graph_rules
from flambeau_inductor.cuda_graph_rules import QUEUE_ONLY, peak_bytes, rules_of, why_not
from flambeau_inductor.ir.program import (
    Alloc,
    Buffer,
    CheckIndex,
    ComputedNumber,
    Extern,
    FreeBuffer,
    Layout,
    Program,
    Ref,
    Reuse,
    Step,
)
from flambeau_inductor.tuning import MEASURED

from tests.facts import Info

GPU = torch.device("cuda", 0)
MM = "aten.mm.out"


def _buffer(name: str, device: torch.device = GPU) -> Buffer:
    return Buffer(name, Layout((4, 4), (4, 1), torch.float32, device))


def _calls(count: int, target: str = MM) -> list[Step]:
    steps: list[Step] = []
    for k in range(count):
        steps += [Alloc(f"b{k}"), Extern(target, (Ref("in0"), Ref("in0")), into=(Ref(f"b{k}"),))]
    return steps


def _program(steps: list[Step], *more: Buffer, **fields: Any) -> Program:
    names = [f"b{k}" for k in range(9)]
    buffers = (_buffer("in0"), *map(_buffer, names), *more)
    return Program("p", (buffers[0],), (Ref("b0"),), buffers, tuple(steps), **fields)


def test_products_on_one_gpu_are_recorded_unasked() -> None:
    program = _program(_calls(5))
    info = Info("forward", static_inputs=(0,), saved_outputs=(2,), mutated_outputs=(1,))
    rules = rules_of(program, info, None)
    assert rules is not None and rules.automatic and rules.copies
    assert rules.static == (0,) and rules.inside == (1, 2) and rules.size == 5 * 64
    backward = rules_of(program, Info("backward"), None)
    assert backward is not None and not backward.copies


@pytest.mark.parametrize(("capability", "recorded"), [((9, 0), True), ((8, 0), False)])
def test_grouped_products_are_recorded_where_torch_reads_their_ends_on_the_device(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], recorded: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(cuda_graph_rules, "tuning_of", lambda devices: MEASURED)
    why = why_not(_program(_calls(5, "aten._grouped_mm.default")))
    assert (why is None) == recorded and (recorded or "may wait" in str(why))


@pytest.mark.parametrize(
    ("args", "kwargs", "recorded"),
    [((4, 0, 3), (), True), ((4,), (("min", 0), ("max", 3)), True), ((4,), (), False),
     ((4, 2, 2), (), False)],
)  # fmt: skip
def test_histograms_are_recorded_where_their_range_is_given(
    monkeypatch: pytest.MonkeyPatch, args: tuple[Any, ...], kwargs: Any, recorded: bool
) -> None:
    monkeypatch.setattr(cuda_graph_rules, "tuning_of", lambda devices: MEASURED)
    call = Extern("aten.histc.default", (Ref("in0"), *args), kwargs, results=("b8",))
    assert (why_not(_program([*_calls(5), call])) is None) == recorded


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (_program(_calls(2)), "2 launches"),
        (_program(_calls(5), _buffer("c", torch.device("cpu"))), "not all of it is on one GPU"),
        (_program(_calls(5, "aten.nonzero.default")), "aten.nonzero.default may wait"),
        (
            _program([*_calls(5), CheckIndex(Ref("in0"), 4, False, "IndexError", "")]),
            "the host looks at an index",
        ),
        (_program(_calls(5), scalars=(("s", ComputedNumber("1.5")),)), "numbers from the host"),
        (_program(_calls(5), numbers=(0,)), "numbers from the host"),
    ],
)
def test_what_is_not_recorded_unasked(program: Program, reason: str) -> None:
    assert reason in str(why_not(program))
    assert rules_of(program, Info(), None) is None
    asked = rules_of(program, Info(), True)
    assert asked is not None and not asked.automatic


def test_a_caller_may_forbid_it() -> None:
    assert rules_of(_program(_calls(5)), Info(), False) is None


def test_memory_that_is_handed_on_counts_once() -> None:
    steps = [
        *_calls(2),
        Reuse("b2", "b0"),
        FreeBuffer("b1"),
        Alloc("b3"),
        Extern("aten.convolution.default", (Ref("in0"),), results=("b4", None)),
    ]
    assert peak_bytes(_program(steps)) == 3 * 64


def test_the_table_names_operators_that_exist() -> None:
    import flambeau_inductor.runtime.gpu.cudnn_lstm  # noqa: F401  registers its operators
    import flambeau_prims  # noqa: F401  so does this
    from flambeau_inductor._torch_compat import overload_of

    for target in QUEUE_ONLY:
        assert overload_of(target)
