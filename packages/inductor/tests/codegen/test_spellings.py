"""Every pointwise primitive that is lowered to loops has a spelling, in both languages, for every
dtype that it takes: what has none is the library's from the lowering on, and never met by a
generator."""

from __future__ import annotations

import pytest
import torch
from flambeau_inductor.codegen.cpp.emit.pointwise import supports as cpp_supports
from flambeau_inductor.codegen.triton.pointwise import supports as triton_supports
from flambeau_inductor.ir.tensors import Node, Pointwise
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.lowering.graph import KERNEL_DTYPES
from flambeau_prims import PRIMS, lower
from flambeau_prims._torch_compat import parameters
from flambeau_prims.ops.pointwise import POINTWISE
from torch import fx


def traced(name: str, dtype: torch.dtype) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """A graph of one call."""
    graph = fx.Graph()
    operands = [torch.ones(4, dtype=dtype) for _ in parameters(PRIMS[name].overload)]
    inputs = tuple(graph.placeholder(f"x{i}") for i in range(len(operands)))
    graph.output((graph.call_function(PRIMS[name].overload, inputs),))
    return lower(fx.GraphModule(torch.nn.Module(), graph), operands), operands


@pytest.mark.parametrize("dtype", sorted(KERNEL_DTYPES, key=str), ids=str)
def test_what_is_lowered_is_spelled(dtype: torch.dtype) -> None:
    missing, asked = [], 0
    for name in (n for n, function in POINTWISE.items() if dtype in function.kind):
        gm, operands = traced(name, dtype)
        nodes = [n for n in lower_graph(gm, operands).order if isinstance(n, Node)]
        for node in nodes:
            if not isinstance(node.define, Pointwise):
                continue
            op, kinds, result = node.define.op, [a.dtype for a in node.define.args], node.dtype
            if op == "clone":  # a copy is spelled by what stores it
                continue
            asked += 1
            if not triton_supports(op, kinds[-1]):
                missing.append(f"{op} of {kinds[-1]} in Triton")
            if not cpp_supports(op, kinds, result):
                missing.append(f"{op} of {kinds[-1]} in C++")
    assert missing == [] and asked > 10
