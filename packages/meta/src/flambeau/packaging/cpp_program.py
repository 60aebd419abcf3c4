"""The part of a package that a C++ program reads.

In: a kept program, its call and its tensors. Out: one text: what the machine has to be, what the
arguments have to be, and the steps of the program, each as a list in parentheses. Invariant: what
the text says is all that runs; a program that needs Python for something raises `NoForm`, which
says what for, and its package is for Python alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from flambeau_aot.runtime_plan import FromGraph, RuntimePlan
from flambeau_inductor import Artifact
from flambeau_inductor.wrapper.without_python import NoForm, expression, listed, quoted, steps

from flambeau.packaging.archive import TENSORS, Bundle
from flambeau.packaging.guard_expressions import OpenForm, open_form_from, written

FORMAT = 1
PLAIN = frozenset(
    {"inputs", "results", "differentiable", "visible", "structure", "grad_mode", "recorded",
     "linear", "watched", "apart", "kept_results", "keeping", "users", "partly",
     "leaf_order"}
)  # fmt: skip
"""What of a plan means nothing to a call without a backward pass, or is looked at here."""


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
    return "\n".join([*lines, *found, *_results(plan), ""])


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
    special = [each.name for each in fields(RuntimePlan) if each.name not in PLAIN]
    inputs = plan.inputs
    for name in special:
        if getattr(plan, name):
            raise NoForm(f"the call does more than return results ({name.replace('_', ' ')})")
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


def _results(plan: RuntimePlan) -> Sequence[str]:
    outputs: list[str] = []
    for result in plan.results:
        if not isinstance(result, FromGraph):
            raise NoForm(f"a result that is no new tensor ({type(result).__name__})")
        outputs.append(str(result.output))
    return [listed("results", *outputs)]
