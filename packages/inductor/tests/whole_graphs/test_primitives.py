"""Every primitive of the registry, whatever its operands are made of.

The family: the primitives' own sample calls x where a tensor comes from (an input, a constant, an
attribute, one element or one row that is repeated inside of the graph, an input with gaps or in
another order, an input whose elements are one in memory). A new primitive is in it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_prims._op import PRIMS
from flambeau_prims.conformance.samples.cases import cases_of
from flambeau_prims.conformance.samples.registry import Case
from tests.evaluated import compiled
from torch import Tensor, fx

prims = torch.ops.flambeau_prims

UNWRITTEN = frozenset({"ctc_loss"})
"""Parts of a result that nobody reads are memory that nobody wrote."""
APART = frozenset({"random", "effect", "data_dependent", "mutating"})
"""Tags of primitives that other tests are about."""
FITTING = ("ctc_", "pool_backward", "as_strided_scatter")
"""In the names of those whose operands must fit together: positions, lengths, what is written."""
UNEVEN = frozenset({"int_mm", "median", "nanmedian"})
"""The library reads other memory where operands of these have elements that are one in memory."""
EXACT = frozenset({"view", "shape", "index", "creation"})
TOLERANCE = {
    torch.float64: 1e-6,
    torch.complex128: 1e-6,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
}

Ref = fx.Node
Graphed = Callable[[fx.Graph, Ref | None], Ref]


@dataclass
class Operand:
    """A tensor that eager is given, and the input (None: there is none) and node that stand for it
    in a graph."""

    eager: Tensor
    input: Tensor | None
    node: Graphed


def _given(value: Tensor) -> Operand:
    return Operand(value, value, lambda graph, node: node)  # type: ignore[arg-type, return-value]


def _spread(part: Tensor, like: Tensor, dims: list[int]) -> Operand:
    def node(graph: fx.Graph, ref: Ref | None) -> Ref:
        return graph.call_function(prims.broadcast_in_dim.default, (ref, list(like.shape), dims))

    return Operand(part.expand(like.shape), part, node)


def _constant(value: Tensor) -> Operand | None:
    if value.is_complex() or not value.numel():
        return None
    number = value.flatten()[0].item()
    known = {"dtype": value.dtype, "device": value.device}

    def node(graph: fx.Graph, ref: Ref | None) -> Ref:
        return graph.call_function(prims.full.default, (list(value.shape), number), known)

    return Operand(
        torch.full_like(value, number, memory_format=torch.contiguous_format), None, node
    )


def _with_gaps(value: Tensor) -> Operand:
    size = [2 * n for n in reversed(value.shape)]
    gaps = torch.empty(size, dtype=value.dtype)[tuple(slice(None, None, 2) for _ in size)]
    return _given(gaps.permute(list(reversed(range(value.dim())))).copy_(value))


KINDS: dict[str, Callable[[Tensor], Operand | None]] = {
    "input": _given,
    "attribute": lambda t: Operand(t, None, lambda graph, node: node),  # type: ignore[arg-type, return-value]
    "constant": _constant,
    "repeated": lambda t: _spread(t.flatten()[0].clone(), t, []) if t.numel() else None,
    "rows": lambda t: (
        _spread(t[:1].contiguous(), t, list(range(t.dim()))) if t.dim() and t.numel() else None
    ),
    "gaps": _with_gaps,
    "one element": lambda t: (
        _given(t.flatten()[:1].clone().as_strided(t.shape, [0] * t.dim())) if t.numel() else None
    ),
}


def _each(value: Any, of: Callable[[Tensor], Any]) -> Any:
    if isinstance(value, Tensor):
        return of(value)
    if isinstance(value, list | tuple):
        return type(value)(_each(v, of) for v in value)
    if isinstance(value, dict):
        return {k: _each(v, of) for k, v in value.items()}
    return value


@dataclass
class Graph:
    """Many calls as one graph; what eager gives for each result, and what it is of."""

    root: torch.nn.Module = field(default_factory=torch.nn.Module)
    graph: fx.Graph = field(default_factory=fx.Graph)
    calls: list[tuple[Case, dict[int, tuple[Operand, str | None]]]] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    wanted: list[tuple[str, Case, Tensor]] = field(default_factory=list)
    results: list[Ref] = field(default_factory=list)

    def add(self, case: Case, kind: str) -> None:
        """A call with all its tensors of a kind, if eager takes those."""
        operands = {id(t): KINDS[kind](t) for t in case.tensors}
        if any(o is None for o in operands.values()):
            return
        known = {key: o for key, o in operands.items() if o is not None}
        args, kwargs = _each((case.args, case.kwargs), lambda t: known[id(t)].eager)
        try:
            want = case.prim.overload(*args, **kwargs)
        except (RuntimeError, ValueError):  # its rule or the library refuses such operands
            return
        refs: dict[int, Ref | None] = {}
        for key, operand in known.items():
            refs[key] = None
            if operand.input is not None:
                refs[key] = self.graph.placeholder(f"in{len(self.inputs)}")
                self.inputs.append(operand.input)
            elif kind == "attribute":
                name = f"t{len(self.results)}_{len(list(self.root.buffers()))}"
                self.root.register_buffer(name, operand.eager)
                refs[key] = self.graph.get_attr(name)
        args, kwargs = _each(
            (case.args, case.kwargs), lambda t: known[id(t)].node(self.graph, refs[id(t)])
        )
        made = self.graph.call_function(case.prim.overload, args, kwargs)
        several = isinstance(want, tuple | list)
        for place, value in enumerate(want if several else [want]):
            if isinstance(value, Tensor):
                part = (
                    self.graph.call_function(operator.getitem, (made, place)) if several else made
                )
                self.results.append(part)
                self.wanted.append((f"{case.label} of {kind}", case, value))

    def module(self) -> fx.GraphModule:
        """The graph, its inputs first."""
        self.graph.output(tuple(self.results))
        first = next(node for node in self.graph.nodes if node.op != "placeholder")
        for node in self.graph.find_nodes(op="placeholder"):
            first.prepend(node)
        return fx.GraphModule(self.root, self.graph)


def _calls(kinds: tuple[str, ...], each: int) -> Iterator[Graph]:
    graph = Graph()
    for number, (name, prim) in enumerate(PRIMS.items()):
        if prim.tags & APART or name in UNWRITTEN:
            continue
        samples = list(cases_of(prim))
        for k in range(min(each, len(samples))):
            case = samples[(7 * number + 5 * k) % len(samples)]
            for kind in kinds:
                plain = kind in ("input", "attribute")
                if plain or not (any(part in name for part in FITTING) or name in UNEVEN):
                    graph.add(case, kind)
        if len(graph.results) > 200:
            yield graph
            graph = Graph()
    yield graph


def _same(name: str, case: Case, got: Any, want: Tensor) -> None:
    exact = bool(case.prim.tags & EXACT) or not (want.is_floating_point() or want.is_complex())
    close = 0.0 if exact else TOLERANCE.get(want.dtype, 3e-2)
    torch.testing.assert_close(
        got, want, rtol=close, atol=close, equal_nan=True, msg=lambda text: f"{name}: {text}"
    )


@pytest.mark.parametrize(
    ("how", "kinds", "each"),
    [("evaluated", tuple(KINDS), 1), ("cpp", ("constant", "repeated", "gaps"), 1)],
)
def test_every_primitive(how: str, kinds: tuple[str, ...], each: int, tmp_path: Path) -> None:
    reached: set[str] = set()
    for graph in _calls(kinds, each):
        low = flambeau_prims.lower(graph.module(), graph.inputs)
        if how == "evaluated":
            found = list(compiled(low, list(graph.inputs)).results)
        else:
            options = Options(kernels="cpp", cache_dir=str(tmp_path), verify=True)
            made = flambeau_inductor.compile(low, graph.inputs, options=options)
            found = list(made(list(graph.inputs)))
        for (name, case, want), got in zip(graph.wanted, found, strict=True):
            _same(name, case, got, want)
            reached.add(case.prim.name)
    every = {n for n, p in PRIMS.items() if not p.tags & APART}
    assert len(reached) > 0.8 * len(every)
