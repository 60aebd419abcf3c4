"""Rows of a profiler for compiled graphs and their kernels."""

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor.runtime.artifact import Unwatched, load_artifact, with_rows
from torch import fx
from torch.profiler import ProfilerActivity, profile


def names_of(call, *args):
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        call(*args)
    return [event.name for event in seen.events()]


@pytest.mark.parametrize("loaded", [False, True], ids=["compiled", "loaded"])
def test_a_graph_and_its_kernels_are_rows(loaded):
    given = torch.randn(4, 4), torch.randn(4, 4)
    program = fx.symbolic_trace(lambda x, y: (torch.mm(x, y).sin() + 1,))
    compiled = flambeau_inductor.compile(flambeau_prims.lower(program, given), given)
    if loaded:
        compiled = load_artifact(compiled.artifact)
    (expected,) = compiled(list(given))
    for _ in range(2):
        names = names_of(lambda: compiled(list(given)))
        (kernel,) = [name for name in names if name.startswith("kernel0: ")]
        assert "add" in kernel
        assert names.index(compiled.report.name) < names.index("aten::mm") < names.index(kernel)
    (after,) = compiled(list(given))
    torch.testing.assert_close(after, expected, rtol=0, atol=0)


def test_the_call_with_rows_is_loaded_once_and_when_it_is_looked_at():
    loads = []

    def load(known):
        loads.append(known)
        return lambda args: known["kernel0"](*args)

    known = {"kernel0": lambda a, b: a + b, "constant": 3}
    call = with_rows(load, known, {"call": "graph", "kernel0": "kernel0: add"})
    assert loads == []
    assert names_of(lambda: call([1, 2])) == ["graph", "kernel0: add"]
    assert call([1, 2]) == 3 and len(loads) == 1
    assert loads[0]["constant"] == 3 and loads[0]["profiler"] is Unwatched
