"""What the runtime must do around a compiled graph, as data.

What comes in: facts that `analyze` found while the program was traced. What goes out: frozen
dataclasses that `runtime` reads.
Invariant: a plan names tensors by position only; it can be printed, and holds no value of a call
but literals of the program itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flambeau_aot.joint.tracer import ViewStep


@dataclass(frozen=True)
class InputPlan:
    """How the caller's arguments become the graph's primals.

    primals: for each primal after the static ones, the position of the argument it is.
    duplicates: (position, primal): this argument was the same tensor as that primal.
    literals: (position, value): an argument that is no tensor, fixed at its traced value.
    """

    static: int
    primals: tuple[int, ...]
    duplicates: tuple[tuple[int, int], ...] = ()
    literals: tuple[tuple[int, Any], ...] = ()


@dataclass(frozen=True)
class InputUpdate:
    """An input the program writes to: the graph's output `output` is copied into it.

    differentiable: the write is part of the autograd graph, as in-place operators are.
    """

    primal: int
    output: int
    differentiable: bool


@dataclass(frozen=True)
class FromGraph:
    """A result the graph returns, at this position."""

    output: int


@dataclass(frozen=True)
class IsInput:
    """A result that is an input itself."""

    primal: int


@dataclass(frozen=True)
class ViewOfInput:
    """A result that is a view of an input, made again at every call."""

    primal: int
    steps: tuple[ViewStep, ...]
    requires_grad: bool


@dataclass(frozen=True)
class ViewOfOutput:
    """A result that shares memory with what the graph returns at this position."""

    output: int
    steps: tuple[ViewStep, ...]
    requires_grad: bool


@dataclass(frozen=True)
class Literal:
    """A result that does not depend on the inputs' values."""

    value: Any


OutputPlan = FromGraph | IsInput | ViewOfInput | ViewOfOutput | Literal


@dataclass(frozen=True)
class Plan:
    """Everything outside the graphs.

    differentiable: positions of the graph's outputs that autograd knows of, in tangent order.
    visible: number of graph outputs the caller gets or that update inputs; saved ones follow.
    grad_mode_after: the grad mode the program leaves behind, None where it leaves it alone.
    offsets: (primal, storage offset): primals whose offset in their storage the graph relies on.
    """

    inputs: InputPlan
    updates: tuple[InputUpdate, ...]
    results: tuple[OutputPlan, ...]
    differentiable: tuple[int, ...]
    visible: int
    structure: Any
    grad_mode_after: bool | None = None
    offsets: tuple[tuple[int, int], ...] = ()


def shifted(plan: Plan, start: int, by: int) -> Plan:
    """The plan after `by` static tensors were inserted before primal `start`."""

    def moved(primal: int) -> int:
        return primal + by if primal >= start else primal

    def result(item: OutputPlan) -> OutputPlan:
        if isinstance(item, (IsInput, ViewOfInput)):
            return replace(item, primal=moved(item.primal))
        return item

    duplicates = tuple((position, moved(primal)) for position, primal in plan.inputs.duplicates)
    return replace(
        plan,
        inputs=replace(plan.inputs, static=plan.inputs.static + by, duplicates=duplicates),
        updates=tuple(replace(item, primal=moved(item.primal)) for item in plan.updates),
        results=tuple(result(item) for item in plan.results),
        offsets=tuple((moved(primal), offset) for primal, offset in plan.offsets),
    )
