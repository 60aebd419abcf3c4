"""When collectives start and are waited for, and how much memory that may take."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from flambeau_inductor._torch_compat import WAIT, overload_of
from flambeau_inductor.driver import PassContext
from flambeau_inductor.ir.program import Extern, Program, RunLoop
from flambeau_inductor.ir.steps import computing, made_by, touched
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.options import Options
from flambeau_inductor.passes.merge_collectives import ALL_GATHER
from flambeau_inductor.schedule.assemble import assemble
from flambeau_inductor.schedule.communication import overlap_communication
from flambeau_inductor.schedule.memory.planning import peak_bytes, update_in_place, with_lifetimes
from flambeau_inductor.schedule.schedule import schedule_tensors
from flambeau_prims import PRIMS
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.facts import Info

LAYERS, WIDTH, RANKS = 6, 64, 4
REDUCE = "_c10d_functional.all_reduce.default"


def gathering(cast: bool = False) -> Program:
    """Layers, each of a weight that is gathered right before it; cast: from a shard and to a weight
    of other dtypes."""
    graph = fx.Graph()
    with FakeTensorMode():
        shard, x = torch.empty(WIDTH // RANKS, WIDTH), torch.empty(8, WIDTH)
        whole = torch.empty(WIDTH, WIDTH)
    shards = [graph.placeholder(f"w{n}") for n in range(LAYERS)]
    value = graph.placeholder("x")
    for node in shards:
        node.meta["val"] = shard
    value.meta["val"] = x
    if cast:
        for node in (*shards, value):
            node.meta["val"] = node.meta["val"].half()

    def to(node: fx.Node, dtype: torch.dtype) -> fx.Node:
        made = graph.call_function(PRIMS["cast"].overload, (node,), {"dtype": dtype})
        made.meta["val"] = node.meta["val"].to(dtype)
        return made

    for given in shards:
        node = to(given, torch.float32) if cast else given
        call = graph.call_function(overload_of(ALL_GATHER), (node, RANKS, "0"))
        wait = graph.call_function(overload_of(WAIT), (call,))
        call.meta["val"] = wait.meta["val"] = whole
        weight = to(wait, torch.float16) if cast else wait
        value = graph.call_function(PRIMS["mm"].overload, (value, weight))
        value.meta["val"] = x.to(weight.meta["val"].dtype)
    graph.output((value,))
    gm = fx.GraphModule({}, graph)
    inputs = [node.meta["val"] for node in graph.find_nodes(op="placeholder")]
    made = schedule_tensors(PassContext(), lower_graph(gm, inputs))
    return assemble(made, PassContext().limits)


def peak(program: Program) -> int:
    steps = with_lifetimes(computing(program), program.by_name, program.owned)
    return peak_bytes(steps, program.by_name)


def ahead(program: Program) -> int:
    """The most collectives that have started and are not waited for."""
    under_way = most = 0
    for step in computing(program):
        if isinstance(step, Extern) and step.target == ALL_GATHER:
            under_way += 1
        if isinstance(step, Extern) and step.target == WAIT:
            under_way -= 1
        most = max(most, under_way)
    return most


@pytest.mark.parametrize("cast", [False, True], ids=["plain", "cast"])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0, 2.0, 100.0])
def test_overlap_keeps_to_its_memory(share: float, cast: bool) -> None:
    before = gathering(cast)
    context = PassContext(options=replace(Options(), overlap_memory=share))
    after, changed = overlap_communication(context, before)
    weight = 4 * WIDTH * WIDTH
    weight += cast * weight // RANKS
    assert changed
    assert peak(after) <= peak(before) + max(share * peak(before), weight)
    assert ahead(before) == 1
    assert 2 <= ahead(after) <= LAYERS
    assert (ahead(after) == LAYERS) is (share == 100.0)
    starts = [s for s in computing(after) if isinstance(s, Extern) and s.target == ALL_GATHER]
    given = [s for s in computing(before) if isinstance(s, Extern) and s.target == ALL_GATHER]
    assert [s.reads for s in starts] == [s.reads for s in given]


def test_a_loop_waits_for_no_collective_of_another_layer() -> None:
    """Loops over few points are joined to save launches, but not those around two collectives."""
    made: set[str] = set()
    for step in computing(gathering(cast=True)):
        if isinstance(step, Extern) and step.target == WAIT:
            made.update(name for name in step.results if name)
        if isinstance(step, RunLoop):
            reads, writes = step.touched
            assert len(reads & made) <= 1
            assert len(writes) == 1


def test_what_prepares_a_collective_goes_with_it() -> None:
    before = gathering(cast=True)
    context = PassContext(options=replace(Options(), overlap_memory=100.0))
    after, changed = overlap_communication(context, before)
    assert changed
    assert ahead(before) == 1
    assert ahead(after) == LAYERS
    places = {id(step): at for at, step in enumerate(computing(after))}
    for step in computing(before):  # nothing is read before it is there
        for other in computing(before):
            if made_by(other) & touched(step)[0]:
                assert places[id(other)] < places[id(step)]


def stepping() -> Program:
    """Gradients that are summed one after the other, and then the parameters' steps."""
    graph, ops = fx.Graph(), torch.ops.flambeau_prims
    with FakeTensorMode():
        fake = torch.empty(WIDTH, WIDTH)

    def call(target: object, *args: object) -> fx.Node:
        made = graph.call_function(target, args)  # type: ignore[arg-type]
        made.meta["val"] = fake
        return made

    given = [graph.placeholder(f"p{n}") for n in range(LAYERS)]
    for each in given:
        each.meta["val"] = fake
    started = [call(overload_of(REDUCE), call(ops.sin.default, p), "sum", "0") for p in given]
    summed = [call(overload_of(WAIT), each) for each in started]
    stepped = [call(ops.sub.default, p, g) for p, g in zip(given, summed, strict=True)]
    graph.output(tuple(stepped))
    updates = tuple((place, place) for place in range(LAYERS))
    info = Info(updates=updates)
    made = lower_graph(fx.GraphModule({}, graph), [fake] * LAYERS, info)
    return assemble(schedule_tensors(PassContext(), made), PassContext().limits)


def test_parameters_are_updated_in_place_once_all_collectives_are_over() -> None:
    before = stepping()
    context = PassContext(options=replace(Options(), overlap_memory=100.0))
    after, changed = overlap_communication(context, before)
    assert changed
    assert update_in_place(context, after)[1] == LAYERS
    waits = [
        at for at, s in enumerate(computing(after)) if isinstance(s, Extern) and s.target == WAIT
    ]
    starts = [
        at for at, s in enumerate(computing(after)) if isinstance(s, Extern) and s.target == REDUCE
    ]
    assert max(starts) < min(waits)
