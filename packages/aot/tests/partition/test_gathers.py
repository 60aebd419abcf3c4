"""Second gathers in a graph with its own backward pass: which, where, and for whom."""

import pytest
import torch
from flambeau_aot.partition.memory import gather_again
from torch import fx

GATHER = torch.ops._c10d_functional.all_gather_into_tensor.default
WAIT = torch.ops._c10d_functional.wait_tensor.default


def graph_of(units, marked=True, read_late=True, cast=False):
    """A forward that gathers and reads each unit in turn, and a backward that reads them again;
    cast: both read what is made of a unit."""
    graph = fx.Graph()
    value = graph.placeholder("x")
    shards = [graph.placeholder(f"shard{at}") for at in range(units)]
    whole = []
    for at, shard in enumerate(shards):
        started = graph.call_function(GATHER, (shard, 2, "group"))
        whole.append(graph.call_function(WAIT, (started,)))
        if marked:
            for node in (started, whole[-1]):
                node.meta.update(recompute="must_recompute", gathered=str(at))
        if cast:
            half = graph.call_function(torch.ops.aten.to.dtype, (whole[-1], torch.bfloat16))
            whole[-1] = graph.call_function(torch.ops.aten.t.default, (half,))
        value = graph.call_function(torch.ops.aten.mm.default, (value, whole[-1]))
    for each in reversed(whole if read_late else []):
        value = graph.call_function(torch.ops.aten.mm.default, (value, each))
    graph.output((value,))
    return graph


def reads_of(graph):
    """For each product in order, the unit it reads, and how many gathers of it stand before."""
    gathers, found = [], []
    for node in graph.nodes:
        if node.target is GATHER:
            gathers.append(node.args[0].name)
        if node.target is torch.ops.aten.mm.default:
            value = node.args[1]
            while value.target is not GATHER:
                value = value.args[0]
            shard = value.args[0].name
            found.append((int(shard.removeprefix("shard")), gathers.count(shard)))
    return found


@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.parametrize("units", [1, 2, 3, 5])
def test_all_but_the_last_are_gathered_again(units, cast):
    graph = graph_of(units, cast=cast)
    assert gather_again(graph) == units - 1
    graph.lint()
    forward = [(at, 1) for at in range(units)]
    last = units - 1
    assert reads_of(graph) == [*forward, (last, 1), *((at, 2) for at in reversed(range(last)))]


@pytest.mark.parametrize(("marked", "read_late"), [(False, True), (True, False), (False, False)])
def test_what_is_not_marked_or_not_read_again_stays(marked, read_late):
    graph = graph_of(3, marked, read_late)
    before = str(graph)
    assert gather_again(graph) == 0
    assert str(graph) == before


def test_a_value_of_two_units_is_kept():
    graph = graph_of(3)
    early = [node for node in graph.nodes if node.target is WAIT][:2]
    reader = next(iter(early[1].users))
    with graph.inserting_before(reader):
        product = graph.call_function(torch.ops.aten.mm.default, tuple(early))
    (late,) = [node for node in graph.nodes if node.op == "output"]
    with graph.inserting_before(late):
        last = graph.call_function(torch.ops.aten.mm.default, (late.args[0][0], product))
    late.args = ((last,),)
    gather_again(graph)
    graph.lint()
    assert last.args[1] is product


def test_a_second_gather_stands_right_before_its_reader():
    graph = graph_of(3)
    gather_again(graph)
    nodes = list(graph.nodes)
    late = [at for at, node in enumerate(nodes) if node.target is GATHER][3:]
    assert len(late) == 2
    for at in late:
        assert nodes[at + 1].target is WAIT
        assert nodes[at + 2].args[1] is nodes[at + 1]
