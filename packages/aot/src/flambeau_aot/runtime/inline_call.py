"""Inlined call of a graph with an empty prologue and epilogue.

What comes in: a plan and what runs the graph. What goes out: the whole call as one function, or
None where the plan asks for more than binding arguments and returning results.
Invariant: it does what `prologue` and `epilogue` do for such a plan; a plan with a part that this
module does not know is not straight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch

from flambeau_aot._torch_compat import appliers, pytree
from flambeau_aot.info import Boxed
from flambeau_aot.plan import (
    FromFunction,
    FromGraph,
    InputPlan,
    IsInput,
    LiteralResult,
    RuntimePlan,
    SymbolPlace,
)
from flambeau_aot.runtime.codegen import defined, display, settling
from flambeau_aot.runtime.prologue import still_leaves

Call = Callable[..., Any]

_OWN_PARTS = {
    "inputs", "results", "differentiable", "visible", "structure", "grad_mode", "leaves", "inside",
    "apart", "watched", "reentrant", "linear",
}  # fmt: skip


def is_straight(plan: RuntimePlan, arguments: int) -> bool:
    """Whether arguments are the graph's inputs, in order, and results its outputs or inputs."""
    inputs = plan.inputs
    open_numbers = {place.position for place in inputs.symbols if place.dim is None}
    tensors = tuple(p for p in range(arguments) if p not in open_numbers)
    if inputs != InputPlan(inputs.static, tensors, symbols=inputs.symbols):
        return False
    if not all(
        item in (FromGraph(getattr(item, "output", -1)), IsInput(getattr(item, "primal", -1)))
        or type(item) in (LiteralResult, FromFunction)
        for item in plan.results
    ):
        return False
    return not any(getattr(plan, part.name) for part in fields(plan) if part.name not in _OWN_PARTS)


def inference_line(
    plan: RuntimePlan,
    static: Sequence[torch.Tensor],
    arguments: int,
    graph: Boxed,
    without_grad: Callable[[list[torch.Tensor]], None] | None,
) -> Call | None:
    """The call without derivatives; `without_grad` is asked first wherever grad is enabled."""
    if not is_straight(plan, arguments):
        return None
    scope: dict[str, Any] = {}
    scope["graph"] = settling(graph, scope, "graph")
    inputs = _inputs(plan, static)
    checks = []
    if without_grad is not None:
        scope["is_grad_enabled"], scope["without_grad"] = torch.is_grad_enabled, without_grad
        tensors = ", ".join([*_statics(static), *_tensors(plan)])
        checks = ["    if is_grad_enabled():", f"        without_grad([{tensors}])"]
    made = _call(plan, static, arguments, f"graph([{inputs}])", scope, checks)
    made.straight = True  # type: ignore[attr-defined]
    return made


def training_line(
    plan: RuntimePlan,
    static: Sequence[torch.Tensor],
    arguments: int,
    function: type[torch.autograd.Function],
) -> Call | None:
    """The call that autograd can differentiate."""
    if not is_straight(plan, arguments) or not plan.grad_mode:
        return None
    if any(primal < plan.inputs.static for primal in plan.apart):
        return None
    general, direct, transforms_active = appliers(function)
    scope: dict[str, Any] = {"general": general, "direct": direct}
    scope["transforms_active"] = transforms_active
    inputs = _inputs(plan, static)
    chosen = "(general if transforms_active() else direct)"
    checks = []
    if plan.leaves:
        scope["leaves"], scope["still_leaves"] = plan.leaves, still_leaves
        tests = " and ".join(f"{_primal(plan, primal)}.is_leaf" for primal in plan.leaves)
        checks = [f"    if not ({tests}):", f"        still_leaves(leaves, [{inputs}])"]
    given = _inputs(plan, static, plan.apart)
    made = _call(plan, static, arguments, f"{chosen}({given})", scope, checks)
    # whoever compiles it for other arguments has to be told
    made.straight = not plan.leaves  # type: ignore[attr-defined]
    return made


def _call(
    plan: RuntimePlan,
    static: Sequence[torch.Tensor],
    arguments: int,
    graph: str,
    scope: dict[str, Any],
    checks: Sequence[str] = (),
) -> Call:
    scope["static"] = tuple(static)
    results: list[str] = []
    for place, item in enumerate(plan.results):
        if isinstance(item, FromGraph):
            results.append(f"outputs[{item.output}]")
        elif isinstance(item, IsInput):
            results.append(_primal(plan, item.primal))
        elif isinstance(item, FromFunction):
            results.append(f"outputs[{plan.visible + item.place}]")
        else:
            assert isinstance(item, LiteralResult)
            scope[f"literal{place}"] = item.value
            results.append(f"literal{place}")
    flat = pytree.tree_structure(tuple(results))
    if plan.structure == flat:
        finish = f"return {display(results)}"
    elif plan.structure == pytree.tree_structure(None) and len(results) == 1:
        finish = f"return {results[0]}"
    else:
        scope["rebuild"], scope["structure"] = pytree.tree_unflatten, plan.structure
        finish = f"return rebuild({display(results)}, structure)"
    names = ", ".join(_names(arguments))
    lines = [f"def compiled_graph({names}):", *checks]
    lines += [f"    outputs = {graph}", f"    {finish}"]
    return defined("compiled_graph", lines, scope)


def _names(arguments: int) -> list[str]:
    return [f"a{index}" for index in range(arguments)]


def _statics(static: Sequence[torch.Tensor]) -> list[str]:
    return ["*static"] if static else []


def _tensors(plan: RuntimePlan, apart: Sequence[int] = ()) -> list[str]:
    return [
        f"a{position}.detach()" if plan.inputs.static + place in apart else f"a{position}"
        for place, position in enumerate(plan.inputs.primals)
    ]


def _inputs(plan: RuntimePlan, static: Sequence[torch.Tensor], apart: Sequence[int] = ()) -> str:
    """The graph's inputs: static tensors, arguments, values of symbols; no edges to those apart."""
    symbols = [_symbol(place) for place in plan.inputs.symbols]
    return ", ".join([*_statics(static), *_tensors(plan, apart), *symbols])


def _symbol(place: SymbolPlace) -> str:
    if place.dim is None:
        return f"a{place.position}"
    return f"a{place.position}.{'stride' if place.stride else 'size'}({place.dim})"


def _primal(plan: RuntimePlan, primal: int) -> str:
    static = plan.inputs.static
    if primal < static:
        return f"static[{primal}]"
    return f"a{plan.inputs.primals[primal - static]}"
