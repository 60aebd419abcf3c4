"""Dead memory is handed on, the peak is not raised, and what others hold is not touched."""

from __future__ import annotations

from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.ir.program import Alloc, Program, Reuse
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.schedule import Limits, schedule
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile

from tests.evaluated import against_eager
from tests.facts import Info


def r(*shape: int) -> Tensor:
    return torch.randn(shape)


def products(x: Tensor, *weights: Tensor) -> Tensor:
    for weight in weights:
        x = torch.tanh(x @ weight) @ weight
    return x


def lowered(function: Any, *inputs: Tensor) -> fx.GraphModule:
    return flambeau_prims.lower(fx.symbolic_trace(function), list(inputs))


def dead_reuses(program: Program) -> int:
    return sum(isinstance(s, Reuse) and s.dead for s in program.steps)


WEIGHTS = [r(64, 64) for _ in range(4)]


def chain(x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return products(x, a, b, c, d)


def test_a_chain_of_products_lives_in_few_buffers() -> None:
    outcome = against_eager(chain, r(64, 64), *WEIGHTS, tolerance=1e-3)
    assert dead_reuses(outcome.program) >= 4


def test_it_can_be_turned_off() -> None:
    limits = Limits(share_memory=False)
    outcome = against_eager(chain, r(64, 64), *WEIGHTS, tolerance=1e-3, limits=limits)
    assert dead_reuses(outcome.program) == 0


def test_a_returned_buffer_takes_over_only_its_own_layout() -> None:
    """What the caller gets is never a view of other memory."""

    def function(x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        first = (x @ a).sum(0)
        return first, (x.t() @ a).relu() @ a

    gm = lowered(function, r(64, 64), r(64, 64))
    found = flambeau_inductor.compile(gm, [r(64, 64), r(64, 64)])([r(64, 64), r(64, 64)])
    assert all(t._base is None for t in found)


def _peak(call: Any, *inputs: Tensor) -> int:
    """The most bytes of CPU memory that a call holds, by the allocator's own record."""
    call(list(inputs))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        call(list(inputs))
    held = most = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


MODELS: dict[str, Any] = {
    "chain of products": (chain, (r(256, 256), *[r(256, 256) for _ in range(4)])),
    "wide in the middle": (
        lambda x, a, b: ((x @ a).relu() @ b).tanh() @ a @ b,
        (r(128, 64), r(64, 2048), r(2048, 64)),
    ),
    "branches": (
        lambda x, a: (x @ a).exp() + ((x @ a.t()).sin() @ a).cos() @ a,
        (r(256, 256), r(256, 256)),
    ),
    "convolutions": (
        lambda x, w: torch.conv2d(torch.conv2d(x, w, padding=1).relu(), w, padding=1).tanh() + x,
        (r(4, 16, 32, 32), r(16, 16, 3, 3)),
    ),
}


SCRATCH = 160 << 10
"""What a library that eager does not call, and a race may choose, takes while it runs (oneDNN packs
an operand of a product); less than any buffer of these programs."""


@pytest.mark.parametrize("name", MODELS)
def test_peak_memory_is_not_above_eagers(name: str) -> None:
    function, inputs = MODELS[name]
    compiled = flambeau_inductor.compile(lowered(function, *inputs), list(inputs))
    own, eager = _peak(compiled, *inputs), _peak(lambda args: function(*args), *inputs)
    assert 0 < own <= eager + SCRATCH, f"{own} bytes, eager {eager}"


def test_donated_inputs_are_written_to_and_others_are_not() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return (x @ x).relu() @ y.tanh()

    inputs = [r(64, 64), r(64, 64)]
    kept = [t.clone() for t in inputs]
    gm = lowered(function, *inputs)
    want = function(*inputs)
    for donated in ((), (0,), (0, 1)):
        given = [t.clone() for t in kept]
        compiled = flambeau_inductor.compile(gm, inputs, Info("backward", reusable_inputs=donated))
        (found,) = compiled(list(given))
        torch.testing.assert_close(found, want)
        for position, (after, before) in enumerate(zip(given, kept, strict=True)):
            if position not in donated:
                assert torch.equal(after, before)
        program = schedule(lower_graph(gm, inputs, Info("backward", reusable_inputs=donated)))
        taken = {s.old for s in program.steps if isinstance(s, Reuse) and s.old.startswith("in")}
        assert bool(taken) == bool(donated)
        assert taken <= {f"in{k}" for k in donated}


def test_kernels_in_shared_memory_are_the_same_bits() -> None:
    inputs = [r(64, 64), *WEIGHTS]
    gm = lowered(chain, *inputs)
    shared, apart = (
        flambeau_inductor.compile(gm, inputs, options=Options(limits=Limits(share_memory=own)))
        for own in (True, False)
    )
    assert torch.equal(shared(list(inputs))[0], apart(list(inputs))[0])


def on(devices: dict[str, str], function: Any) -> Program:
    """A program of a kernel an operation, of inputs of 64 x 64 on these devices."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = [torch.empty(64, 64, device=device) for device in devices.values()]
        gm = flambeau_prims.lower(fx.symbolic_trace(function), inputs)
    return schedule(lower_graph(gm, inputs), Limits(fusion=False, chain_ops=1))


def flipped(x: Tensor) -> Tensor:
    for _ in range(6):
        x = torch.exp(x * 0.5).flip(0)
    return x


def test_on_a_gpu_a_buffer_of_the_same_layout_is_taken_over() -> None:
    program = on({"x": "cuda"}, flipped)
    assert sum(isinstance(step, Alloc) for step in program.steps) == 2
    assert dead_reuses(program) >= 4


def test_on_a_gpu_another_layout_is_left_to_the_allocator() -> None:
    def function(x: Tensor) -> Tensor:
        for rows in (64, 32, 16, 8, 4):
            x = torch.exp(x.reshape(rows, -1) * 0.5).flip(0)
        return x

    assert dead_reuses(on({"x": "cpu"}, function)) > dead_reuses(on({"x": "cuda"}, function)) == 0


def test_memory_stays_on_its_device() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return flipped(x), flipped(y)

    program = on({"x": "cpu", "y": "cuda"}, function)
    where = {b.name: b.layout.device for b in program.buffers}
    taken = [s for s in program.steps if isinstance(s, Reuse) and s.dead]
    assert {where[s.buffer].type for s in taken} == {"cpu", "cuda"}
    assert all(where[s.buffer] == where[s.old] for s in taken)
