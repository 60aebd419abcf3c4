"""Primitives whose result shares an argument's memory, run by a loop or by the library: what is
computed from the result, in its memory or not, leaves the argument as it was."""

from __future__ import annotations

import flambeau_inductor
import pytest
import torch
from flambeau_prims._op import PRIMS
from flambeau_prims.conformance.samples.cases import cases_of
from torch import fx

prims = torch.ops.flambeau_prims
VIEWS = sorted(name for name, prim in PRIMS.items() if "view" in prim.tags)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", VIEWS)
def test_the_argument_stays_as_it_is(name: str) -> None:
    target = getattr(prims, name).default
    seen = 0
    for case in cases_of(PRIMS[name]):
        first = case.args[0]
        if not first.is_floating_point() or not first.numel():
            continue
        graph = fx.Graph()
        node = graph.placeholder("a")
        node.meta["val"] = first
        part = graph.call_function(target, (node, *case.args[1:]), dict(case.kwargs))
        part.meta["val"] = target(*case.args, **case.kwargs)
        if not part.meta["val"].is_floating_point():
            continue
        twice = graph.call_function(prims.mul.default, (part, part))
        twice.meta["val"] = (part.meta["val"] * part.meta["val"]).contiguous()
        # the library is given memory, in which the product lies
        last = graph.call_function(torch.ops.aten.logcumsumexp.default, (twice, 0))
        last.meta["val"] = torch.logcumsumexp(twice.meta["val"], 0)
        graph.output((last,))
        gm = fx.GraphModule(torch.nn.Module(), graph)
        expected, before = last.meta["val"], first.clone()
        (found,) = flambeau_inductor.compile(gm, [first])([first])
        torch.testing.assert_close(found, expected, check_stride=False, equal_nan=True)
        torch.testing.assert_close(first, before, rtol=0, atol=0, equal_nan=True)
        seen += 1
        if seen == 3:
            break
    assert seen or name in ("real", "imag", "view_as_complex", "view_as_real")
