"""The part of a package that a C++ program reads.

In: a kept program, its call and its tensors. Out: one text: what the machine has to be, what the
arguments have to be, and the steps of the program, each as a list in parentheses. Invariant: what
the text says is all that runs; a program that needs Python for something raises `NoForm`, which
says what for, and its package is for Python alone.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from flambeau_aot.runtime_plan import (
    FromGraph,
    IsInput,
    LiteralResult,
    RuntimePlan,
    SameResult,
    View,
)
from flambeau_inductor import Artifact
from flambeau_inductor.wrapper.without_python import (
    GIVEN,
    OUTPUT,
    NoForm,
    called,
    expression,
    listed,
    quoted,
    steps,
)

from flambeau.packaging.archive import TENSORS, Bundle
from flambeau.packaging.guard_expressions import OpenForm, open_form_from, written

FORMAT = 1
aten = torch.ops.aten
PLAIN = frozenset(
    {"inputs", "results", "differentiable", "visible", "structure", "grad_mode", "recorded",
     "linear", "watched", "apart", "kept_results", "keeping", "users", "partly",
     "leaf_order", "hook_order", "node_order", "result_nodes", "reentrant", "raising"}
)  # fmt: skip
"""What of a plan means nothing to a call without a backward pass, or is looked at here."""


def beyond(plan: RuntimePlan, *known: str) -> str:
    """What a call of the plan does besides returning results and what is known, in words."""
    others = [each.name for each in fields(plan) if each.name not in PLAIN.union(known)]
    return ", ".join(name.replace("_", " ") for name in others if getattr(plan, name))


def cpp_program(
    bundle: Bundle, call: Mapping[str, Any], facts: Mapping[str, Any], prefix: str = ""
) -> str:
    """The text, which names files that begin with `prefix`. Raises NoForm."""
    if len(bundle.halves) != 1 or bundle.stored.backward is not None:
        raise NoForm("it has a backward part: make it under torch.no_grad()")
    (half,) = bundle.halves
    if half.gpu is not None:
        raise NoForm("its kernels are a GPU's")
    lines = [listed("flambeau", str(FORMAT)), *_machine(facts)]
    lines += [listed("function", quoted(facts["function"]))]
    lines += _arguments(call) + _inputs(bundle, call) + _kernels(half, prefix)
    found, count = steps(half.wrapper)
    plan = bundle.stored.plan
    if count != plan.inputs.static + len(plan.inputs.primals) + len(plan.inputs.symbols):
        raise NoForm("inputs that are made before the call")
    return "\n".join([*lines, *found, *_writes(plan), *_results(plan), ""])


def _machine(facts: Mapping[str, Any]) -> list[str]:
    release = facts["torch"].split("+")[0].split(".")[:2]
    return [
        listed("torch", *release),
        listed("machine", quoted(facts["machine"])),
        listed("features", *map(quoted, facts["features"])),
    ]


def _arguments(call: Mapping[str, Any]) -> list[str]:
    """What each argument has to be, and the open sizes with their conditions."""
    form = open_form_from(call["open"])
    lines: list[str] = []
    if form is not None:
        for name, (at, dim) in zip(form.names, form.places, strict=True):
            lines.append(listed("open", name, str(at), str(dim)))
        lines += [_condition(tree, form) for tree in form.conditions]
    names = () if form is None else form.names
    for place, each in enumerate(call["forms"]):
        if "value" in each:
            lines.append(listed("fixed", str(place)))
            continue
        shape, stride = (
            listed("list", *(expression(written(tree, names)) for tree in each[part]))
            for part in ("shape", "stride")
        )
        kind = (quoted(each["dtype"]), quoted(each["device"]))
        lines.append(listed("argument", str(place), *kind, shape, stride))
    return lines


def _condition(tree: Any, form: OpenForm) -> str:
    text = written(tree, form.names)
    return listed("condition", expression(text), quoted(text))


def _inputs(bundle: Bundle, call: Mapping[str, Any]) -> list[str]:
    """Where the inputs of the graph come from, in order."""
    plan = bundle.stored.plan
    inputs = plan.inputs
    if others := beyond(plan, "updates"):
        raise NoForm(f"the call does more than return results ({others})")
    if inputs.duplicates or inputs.literals or inputs.merged:
        raise NoForm("arguments that share memory, or are numbers")
    lines: list[str] = []
    for number, each in enumerate(call["static"]):
        if not each["inside"]:
            raise NoForm("it is made with weights=False")
        lines.append(listed("weight", quoted(each["name"] or ""), str(number)))
    lines += [listed("stored", str(number)) for number in range(len(bundle.stored.constants))]
    # arguments of the graph are the tensors among those of the call
    tensors = [place for place, form in enumerate(call["forms"]) if "value" not in form]
    lines += [listed("given", str(tensors[position])) for position in inputs.primals]
    for symbol in inputs.symbols:
        if symbol.dim is None:
            raise NoForm("a number as an argument that is left open")
        read = "stride" if symbol.stride else "size"
        lines.append(listed("read", read, str(tensors[symbol.position]), str(symbol.dim)))
    return lines


def _kernels(half: Artifact, prefix: str) -> list[str]:
    lines = [listed("tensors", quoted(prefix + TENSORS))]
    for number, part in enumerate(half.parts):
        if part.loader != "cpp":
            raise NoForm(f"kernels that {part.loader} loads")
        lines.append(listed("kernels", quoted(f"{prefix}forward-{number}-kernels.so"),
                            str(part.data["count"])))  # fmt: skip
    if len(half.parts) > 1:
        raise NoForm("kernels of several files")
    return lines + [listed("constant", name) for name in sorted(half.constants)]


def _writes(plan: RuntimePlan) -> list[str]:
    """What is written to arguments and buffers, when all is computed."""
    lines = [listed("written", *(str(each.primal) for each in plan.updates))]
    for each in plan.updates:
        names = [GIVEN.format(each.primal), OUTPUT.format(each.output)]
        lines.append(listed("do", called(aten.copy_.default, names, {})))
    return lines


def _results(plan: RuntimePlan) -> list[str]:
    """The results that are tensors, in order; views are made after what is written."""
    lines: list[str] = []
    names: list[str] = []
    for place, result in enumerate(plan.results):
        if isinstance(result, SameResult):
            result = plan.results[result.result]
        match result:
            case FromGraph(output=output, leaf=False):
                names.append(OUTPUT.format(output))
            case IsInput(primal=primal):
                names.append(GIVEN.format(primal))
            case View(leaf=False, numbers=()):
                names.append(f"view_{place}")
                lines += _view(names[-1], result, plan)
            case LiteralResult(value=value) if not isinstance(value, torch.Tensor):
                pass
            case _:
                raise NoForm(f"a result that is no new tensor ({type(result).__name__})")
    lines.append(listed("return", *names))
    return [*lines, listed("results", *map(str, range(len(names))))]


def _view(name: str, view: View, plan: RuntimePlan) -> list[str]:
    """The steps of a view, the last of which has this name."""
    source = GIVEN if view.source.kind == "input" else OUTPUT
    before = base = source.format(view.source.index)
    first = plan.inputs.static + len(plan.inputs.primals)
    symbols = [GIVEN.format(first + k) for k in range(len(plan.inputs.symbols))]
    lines = []
    for step in view.steps:
        text = repr((step.args, step.kwargs)) if step.sized is None else step.sized.text
        given: Any = ast.parse(text, mode="eval").body
        if step.sized is not None:
            given = _Known(symbols, base, step.sized.constants).visit(given)
        args, kwargs = given.elts
        values = [expression(ast.unparse(each)) for each in (*args.elts, *kwargs.values)]
        positional, named = values[: len(args.elts)], values[len(args.elts) :]
        by_name = dict(zip(map(ast.literal_eval, kwargs.keys), named, strict=True))
        made = called(step.func, [before, *positional], by_name)
        lines.append(listed("set", name, made))
        if step.index is not None:
            lines.append(listed("set", name, listed("item", name, str(step.index))))
        before = name
    return lines


class _Known(ast.NodeTransformer):
    """Puts names into the text of a `Sized`: of symbols, of sizes of a base, of constants."""

    def __init__(self, symbols: Sequence[str], base: str, constants: Sequence[Any]) -> None:
        self.symbols, self.base, self.constants = symbols, base, constants

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """`s[3]`."""
        place = ast.literal_eval(node.slice)
        if place < len(self.symbols):
            return ast.Name(self.symbols[place])
        own = f"{self.base}.size({place - len(self.symbols)})"
        return ast.parse(own, mode="eval").body

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """`c0`."""
        value = self.constants[int(node.id.removeprefix("c"))]
        return ast.parse(repr(value), mode="eval").body
