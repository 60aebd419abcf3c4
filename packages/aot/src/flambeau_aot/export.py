"""Export of a joint graph, with a description of its inputs and outputs.

In: a callable, module or FX graph and example inputs. Out: a `JointExport`.
Invariant: `inputs` and `outputs` describe the graph module's inputs and outputs, in order; each is
named by where the program has it (`layer.weight`, `args[0]['mask']`, `result[1]`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx

from flambeau_aot._torch_compat import pytree
from flambeau_aot.frontends import program_of
from flambeau_aot.higher_order.operators import HIGHER_ORDER
from flambeau_aot.joint.dispatch_mode import Decompositions
from flambeau_aot.joint.trace import Joint, trace
from flambeau_aot.partition.split import TracedModule, extract
from flambeau_aot.runtime_plan import FromFunction, FromGraph, View
from flambeau_aot.simplify import simplify

InputKind = Literal["parameter", "buffer", "constant", "argument", "tangent"]
OutputKind = Literal["result", "base of results", "mutation", "gradient"]


@dataclass(frozen=True)
class JointInput:
    """One input of a joint graph.

    source: the name of a parameter or buffer, the path of an argument, or, of a tangent, what it is
    the cotangent of.
    """

    name: str
    kind: InputKind
    source: str
    requires_grad: bool
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class JointOutput:
    """One output of a joint graph.

    source: the path of a result, the input that a mutation writes to, or the input that a gradient
    is of. A "base of results" is what the results named are views of.
    """

    name: str
    kind: OutputKind
    source: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class JointExport:
    """A joint graph as a graph module: primals then tangents in, results then gradients out.

    joint: the same for `min_cut_partition`, `draw_joint` and `show_joint`.
    """

    module: fx.GraphModule
    inputs: tuple[JointInput, ...]
    outputs: tuple[JointOutput, ...]
    joint: Joint


def export_joint(
    source: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    decompositions: Decompositions | None = None,
) -> JointExport:
    """Trace a callable, module or FX graph; where nothing requires grad, its forward part alone.

    Raises `AotError` as `compile` does.
    """
    program, structure = program_of(source, tuple(args), dict(kwargs or {}))
    flat, _ = pytree.tree_flatten((tuple(args), dict(kwargs or {})))
    joint, _ = simplify(trace(program, flat, decompositions or {}, HIGHER_ORDER))
    paths = _named(structure, lambda tree: list(zip(("args", "kwargs"), tree, strict=True)))
    inputs = _inputs(joint, program.static_names, paths, flat)
    outputs = _outputs(joint, inputs)
    tangents = [_tangent(joint, outputs, place) for place in range(len(joint.tangents))]
    results = (*joint.outputs, *(node for node in joint.grads if node is not None))
    every = [node for node in joint.graph.nodes if node.op == "call_function"]
    graph, _ = extract((*joint.primals, *joint.tangents), results, joint.graph, every)
    return JointExport(TracedModule(graph), (*inputs, *tangents), outputs, joint)


def _named(structure: Any, parts: Callable[[Any], Sequence[tuple[str, Any]]]) -> list[str]:
    """Where each leaf is, of parts with their names: `args[0]`, `kwargs['mask'][1]`."""
    tree = pytree.tree_unflatten(list(range(structure.num_leaves)), structure)
    found = [""] * structure.num_leaves
    for base, part in parts(tree):
        for path, place in pytree.tree_flatten_with_path(part)[0]:
            found[place] = base + pytree.keystr(path)
    return found


def _inputs(
    joint: Joint, static_names: Sequence[str], paths: Sequence[str], flat: Sequence[Any]
) -> tuple[JointInput, ...]:
    found: list[JointInput] = []
    plan = joint.plan.inputs
    for index, node in enumerate(joint.primals):
        kind: InputKind = "argument"
        requires_grad = joint.grads[index] is not None
        place = index - len(joint.static)
        if index < len(static_names):
            source = static_names[index]
            tensor = joint.static[index]
            kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
            requires_grad = tensor.requires_grad
        elif place < 0:
            kind, source = "constant", f"constant {index - len(static_names)}"
        elif place < len(plan.primals):
            position = plan.primals[place]
            same = [paths[other] for other, primal in plan.duplicates if primal == index]
            source = " is ".join([paths[position], *same])
            requires_grad = flat[position].requires_grad
        else:
            members = plan.merged[place - len(plan.primals)].members
            source = "the memory of " + ", ".join(paths[item.position] for item in members)
        found.append(JointInput(node.name, kind, source, requires_grad, *_metadata(node)))
    return tuple(found)


def _outputs(joint: Joint, inputs: Sequence[JointInput]) -> tuple[JointOutput, ...]:
    names = _named(joint.plan.structure, lambda tree: [("result", tree)])
    results = list(zip(names, joint.plan.results, strict=True))
    found: list[JointOutput] = []
    updates = {update.output: update.primal for update in joint.plan.updates}
    for index, node in enumerate(joint.outputs):
        if index in updates:
            primal = updates[index]
            source = inputs[primal].source if primal < len(inputs) else f"input {primal}"
            found.append(JointOutput(node.name, "mutation", source, *_metadata(node)))
            continue
        own = [n for n, x in results if isinstance(x, FromGraph) and x.output == index]
        views = [n for n, x in results if isinstance(x, View) and x.output == index]
        kind: OutputKind = "result" if own else "base of results"
        found.append(JointOutput(node.name, kind, ", ".join(own or views), *_metadata(node)))
    for grad, given in zip(joint.grads[: len(inputs)], inputs, strict=True):
        if grad is not None:
            found.append(JointOutput(grad.name, "gradient", given.source, *_metadata(grad)))
    return tuple(found)


def _tangent(joint: Joint, outputs: Sequence[JointOutput], place: int) -> JointInput:
    node = joint.tangents[place]
    position = joint.plan.differentiable[place]
    if position >= joint.plan.visible:
        result = joint.plan.results.index(FromFunction(position - joint.plan.visible))
        return JointInput(node.name, "tangent", f"result {result}", False, *_metadata(node))
    of = outputs[position]
    source = of.source if of.kind == "result" else f"{of.kind}: {of.source}"
    return JointInput(node.name, "tangent", source, False, *_metadata(node))


def _metadata(node: fx.Node) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]:
    value = node.meta["val"]
    return tuple(value.shape), tuple(value.stride()), value.dtype, value.fake_device
