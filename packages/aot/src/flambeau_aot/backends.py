"""Ready-made graph compilers and backends.

What comes in: a captured graph. What goes out: a callable that runs the traced graphs as they
are, operator by operator.
Invariant: nothing is fused or generated here; a difference from eager is a defect of this layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from flambeau_aot.compile import compile as compile_graph
from flambeau_aot.info import Boxed, GraphInfo
from flambeau_aot.runtime.boxed import boxed
from flambeau_aot.runtime.call import Compiled


def run_as_is(gm: fx.GraphModule, example_inputs: list[Any], info: GraphInfo) -> Boxed:
    """A graph compiler that compiles nothing."""
    del example_inputs, info
    return boxed(gm)


def aot_eager(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
    """Backend: trace forward and backward ahead of time, run them operator by operator."""
    return compile_graph(gm, example_inputs, run_as_is)


aot_nop = aot_eager
