"""A device that is named without an index is the one that the graph's metadata have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.schedule import schedule
from flambeau_prims import PRIMS
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

GPU = torch.device("cuda")
PLACED = sorted(
    name for name, p in PRIMS.items() if "device" in {a.name for a in p.overload._schema.arguments}
)
"""Every primitive that takes a device."""


def arguments(name: str, x: fx.Node, seed: fx.Node) -> tuple[Any, ...]:
    """For results of shape (5,)."""
    given = {"full": ([5], 1.5), "iota": (5, 0, 1), "device_put": (x,), "seed": ()}
    return given.get(name, ([5], seed, 0))


@pytest.mark.parametrize("name", PLACED)
def test_a_kernel_meets_one_device(name: str) -> None:
    prim, graph = PRIMS[name].overload, fx.Graph()
    takes_dtype = "dtype" in {a.name for a in prim._schema.arguments}
    with FakeTensorMode():
        fakes = [torch.empty(5, device="cuda"), torch.empty((), dtype=torch.int64, device="cuda")]
        x, seed = graph.placeholder("x"), graph.placeholder("seed")
        x.meta["val"], seed.meta["val"] = fakes
        named = {"device": GPU} | ({"dtype": torch.float32} if takes_dtype else {})
        made = graph.call_function(prim, arguments(name, x, seed), named)
        like = torch.empty((5,), device="cuda") if name != "seed" else fakes[1]
        assert like.device.index is not None  # as torch has it
        made.meta["val"] = like
        side, shape = (x, (10,)) if name != "seed" else (seed, ())
        if shape:
            both = graph.call_function(PRIMS["cat"].overload, ([made, side], 0))
        else:
            both = graph.call_function(PRIMS["add"].overload, (made, side))
        both.meta["val"] = like.new_empty(shape)
        graph.output((made, both))
        program = schedule(lower_graph(fx.GraphModule(torch.nn.Module(), graph), fakes))
    places = {b.layout.device for b in program.buffers}
    assert places == {like.device}
