"""Devices: one that is named without an index is the one that the graph's metadata have; tensors
on the meta device have no elements, so that no kernel computes them."""

from __future__ import annotations

import operator
from typing import Any

import flambeau_inductor
import pytest
import sympy
import torch
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.schedule import schedule
from flambeau_prims import PRIMS
from flambeau_prims._torch_compat import symbolic_mode
from flambeau_prims.conformance.samples.cases import cases_of
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

CPU, GPU = torch.device("cpu"), torch.device("cuda")
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


@pytest.mark.parametrize("places", [(GPU,), (CPU,), (GPU, CPU)])
def test_a_number_is_made_where_it_is_read(places: tuple[torch.device, ...]) -> None:
    """A float that varies is a tensor on each device that reads it, and on no other."""
    mode, graph, read = symbolic_mode(), fx.Graph(), []
    number = graph.placeholder("number")
    symbol = sympy.Symbol("zf0", real=True)
    number.meta["val"] = mode.shape_env.create_symfloatnode(symbol, hint=0.5)
    with mode:
        for place in places:
            node = graph.placeholder(f"x{len(read)}")
            node.meta["val"] = torch.empty(5, device=place)
            named = {"dtype": torch.float32, "device": place}
            filled = graph.call_function(PRIMS["full"].overload, ([5], number), named)
            filled.meta["val"] = torch.empty(5, device=place)
            read.append(graph.call_function(PRIMS["add"].overload, (node, filled)))
            read[-1].meta["val"] = torch.empty(5, device=place)
        graph.output(tuple(read))
        program = schedule(lower_graph(fx.GraphModule(torch.nn.Module(), graph)))
    layouts = {b.name: b.layout for b in program.buffers}
    made = [layouts[name].device.type for name, _ in program.scalars]
    assert sorted(made) == sorted(place.type for place in places)


META = torch.device("meta")
APART = frozenset({"data_dependent", "effect", "mutating", "random"})
OF_EACH_KIND = sorted(
    {(p.family, p.tags): name for name, p in PRIMS.items() if not p.tags & APART}.values()
)
"""A primitive of each family and tags."""
OF_EACH_KIND.remove("convolution_backward")  # eager's fails there, unless it is told of a bias


def like(result: Any) -> list[Any]:
    """What a result on the meta device is known by."""
    return [
        (t.shape, t.stride(), t.dtype, t.device) if isinstance(t, Tensor) else t
        for t in tree_leaves(result)
    ]


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_what_has_no_elements_needs_no_kernel(name: str) -> None:
    prim = PRIMS[name].overload
    takes_device = "device" in {a.name for a in prim._schema.arguments}
    case = next(iter(cases_of(PRIMS[name]))).on(META)
    kwargs = case.kwargs | ({"device": META} if takes_device else {})
    expected = prim(*case.args, **kwargs)
    graph = fx.Graph()

    def given(value: Tensor) -> fx.Node:
        node = graph.placeholder(f"x{len(graph.nodes)}")
        node.meta["val"] = value
        return node

    args, kwargs = tree_map_only(Tensor, given, (case.args, kwargs))
    made = graph.call_function(prim, args, kwargs)
    made.meta["val"] = expected
    several = isinstance(expected, tuple | list)
    parts = [made]
    if several:
        parts = [graph.call_function(operator.getitem, (made, k)) for k in range(len(expected))]
        for part, value in zip(parts, expected, strict=True):
            part.meta["val"] = value
    graph.output(tuple(parts))
    compiled = flambeau_inductor.compile(fx.GraphModule(torch.nn.Module(), graph), case.tensors)
    assert like(compiled(list(case.tensors))) == like(expected)
    assert compiled.report.kernels == 0
