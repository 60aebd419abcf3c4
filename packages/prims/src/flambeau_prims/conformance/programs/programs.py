"""Graphs of primitives with inputs and expected results.

In: sample calls, or a graph. Out: a `KitProgram`, which a backend is given to compile and run.
Invariant: a program's graph is in the dialect, and its inputs are in the layouts of its metas.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from flambeau_prims._torch_compat import FakeTensorMode, OpOverload
from flambeau_prims.conformance.samples.registry import Case
from flambeau_prims.conformance.samples.tensors import fresh
from flambeau_prims.graph_recorder import GraphRecorder, TracedValue, map_values
from flambeau_prims.shape_rules import TensorMeta

WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
"""The dtype a reference is computed in, where it is another one."""


@dataclass(frozen=True, repr=False)
class KitProgram:
    """`gm` is what the backend gets with `inputs`; `judges` say for each output how it is judged:
    the name of a judge in `flambeau_prims.conformance.compare`. `calls`: sample calls, with the
    first of their outputs and how many there are. `others`: inputs of other sizes, which a program
    with symbols must take as well."""

    name: str
    family: str
    gm: fx.GraphModule
    inputs: tuple[Tensor, ...]
    judges: tuple[str, ...]
    dtypes: frozenset[torch.dtype]
    prims: frozenset[str]
    written: tuple[int, ...] = ()
    parts: tuple[str, ...] = ()
    calls: tuple[tuple[Case, int, int], ...] = ()
    others: tuple[tuple[Tensor, ...], ...] = ()

    def __repr__(self) -> str:
        """The graph as Python, under the inputs' shapes."""
        metas = ", ".join(
            f"{x.dtype}{list(x.shape)}:{list(x.stride())}".removeprefix("torch.")
            for x in self.inputs
        )
        return f"# {self.name}: inputs {metas}{self.gm.code}"

    def fresh_inputs(self) -> list[Tensor]:
        """The inputs in storages of their own, so that a run cannot disturb another."""
        return [fresh(x) for x in self.inputs]

    def eager(self) -> tuple[list[Tensor], list[Tensor]]:
        """Outputs of the primitives' own implementations, and the inputs after the run."""
        inputs = self.fresh_inputs()
        return _interpret(self.gm, inputs, wide=False), inputs

    def reference(self) -> list[Tensor] | None:
        """Outputs computed in float64; None if a primitive is not defined on it."""
        try:
            return _interpret(self.gm, [_widened(x) for x in self.fresh_inputs()], wide=True)
        except (RuntimeError, ValueError, NotImplementedError):
            return None  # a rule or a kernel that takes no float64: judged against eager alone


def _widened(x: Tensor) -> Tensor:
    wide = WIDE.get(x.dtype)
    return x if wide is None else x.to(wide)


def _interpret(gm: fx.GraphModule, inputs: Sequence[Tensor], wide: bool) -> list[Tensor]:
    values: dict[fx.Node, Any] = dict(
        zip((n for n in gm.graph.nodes if n.op == "placeholder"), inputs, strict=True)
    )
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            continue
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        if node.op == "output":
            return list(args[0])
        if node.op == "get_attr":
            item = operator.attrgetter(node.target)(gm)
            values[node] = _widened(item) if wide else item
            continue
        if wide and isinstance(kwargs.get("dtype"), torch.dtype):
            kwargs = {**kwargs, "dtype": WIDE.get(kwargs["dtype"], kwargs["dtype"])}
        values[node] = node.target(*args, **kwargs)
    raise ValueError("the graph has no output")


class Builder:
    """Records calls of primitives into a graph."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.recorder = GraphRecorder(self.graph, FakeTensorMode())
        self.inputs: list[Tensor] = []
        self._after_inputs: fx.Node | None = None

    def input(self, x: Tensor) -> TracedValue:
        """A new input of the program, placed after the others."""
        position = len(self.inputs)
        first = next((n for n in self.graph.nodes if n.op != "placeholder"), None)
        if first is None:
            node = self.graph.placeholder(f"x{position}")
        else:
            with self.graph.inserting_before(first):
                node = self.graph.placeholder(f"x{position}")
        self.inputs.append(x)
        return self.recorder.entering(TensorMeta.of(x), node)

    def call(self, overload: OpOverload, args: Iterable[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Record a call; its results, those that are not None."""
        from flambeau_prims._op import prim_of

        prim = prim_of(overload)
        if prim is None:
            raise ValueError(f"{overload} is not a primitive")
        result = self.recorder.prim(prim, tuple(args), kwargs)
        return [r for r in (result if isinstance(result, tuple) else (result,)) if r is not None]

    def build(self, outputs: Sequence[TracedValue]) -> fx.GraphModule:
        """The finished graph."""
        self.graph.output(tuple(value.node for value in outputs))
        self.graph.lint()
        return fx.GraphModule(torch.nn.Module(), self.graph)


def program_of(name: str, cases: Sequence[Case], judge: Callable[[Case, int], str]) -> KitProgram:
    """One graph of independent calls, all their results being outputs."""
    builder = Builder()
    outputs: list[TracedValue] = []
    judges: list[str] = []
    parts: list[str] = []
    written: list[int] = []
    calls: list[tuple[Case, int, int]] = []

    def entered(item: Any) -> Any:
        return builder.input(item) if isinstance(item, Tensor) else item

    for case in cases:
        first = len(builder.inputs)
        args, kwargs = map_values(entered, (case.args, case.kwargs))
        if "mutating" in case.prim.tags:
            written.append(first)
        results = builder.call(case.prim.overload, args, kwargs)
        calls.append((case, len(outputs), len(results)))
        for position, value in enumerate(results):
            outputs.append(value)
            judges.append(judge(case, position))
            parts.append(case.label)
    return KitProgram(
        name=name,
        family=cases[0].prim.family,
        gm=builder.build(outputs),
        inputs=tuple(builder.inputs),
        judges=tuple(judges),
        dtypes=frozenset().union(*(case.dtypes for case in cases)),
        prims=frozenset(case.prim.name for case in cases),
        written=tuple(written),
        parts=tuple(parts),
        calls=tuple(calls),
    )
