"""Bodies of higher-order operators, traced, and operators made of them.

In: a function and the functional tensors it is called on. Out: its joint graph; callables that
compute its results and gradients; an operator that calls such a one.
Invariant: a function is traced when the program is, and what it does besides computing new tensors
of one metadata is refused. What it draws is drawn once: a gradient draws the same again.

Each operator is registered under a name that no other process and no other trace gives, so that a
stored graph which names one is not mistaken for another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import torch
from torch import fx

from flambeau_aot._torch_compat import (
    current_value,
    is_functional,
    outside_tracing,
    pytree,
    storage_key,
)
from flambeau_aot.errors import TraceError
from flambeau_aot.joint.program import of_callable
from flambeau_aot.joint.trace import Joint, trace
from flambeau_aot.joint.tracer import JointTracer
from flambeau_aot.partition.classify import is_random, runs_anyway
from flambeau_aot.partition.split import backward_only
from flambeau_aot.plan import FromGraph
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.ambient_state import streams

NAMESPACE = "flambeau_aot_branches"
Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]
Run = Callable[..., Sequence[Any]]


def tensors_of(name: str, operands: Sequence[Any]) -> list[torch.Tensor]:
    """The operands; Unsupported where one is no tensor."""
    for item in operands:
        if not isinstance(item, torch.Tensor):
            raise refusal("AO0139", name=name, item=item)
    return list(operands)


def traced(
    tracer: JointTracer,
    body: Any,
    operands: Sequence[torch.Tensor],
    name: str,
    needed: Sequence[bool] | None = None,
) -> Joint:
    """A function at the metadata of its operands; `needed`: which of them require grad in it."""
    values = [current_value(x) if is_functional(x) else x for x in operands]
    if needed is None:
        needed = [x.requires_grad for x in operands]
    with outside_tracing():
        examples = [tracer.fakes.like(x) for x in values]
        for example, needs in zip(examples, needed, strict=True):
            example.requires_grad_(needs)
        try:
            program = of_callable(body, len(examples), name)
            joint = trace(program, examples, {}, tracer.higher_order)
        except TraceError as error:
            if "is being used in an in-place operation" in str(error):
                raise refusal("AO0140", name=name) from error
            raise
    plan = joint.plan
    pure = not plan.updates and not plan.extras and plan.grad_mode_after is None
    if not pure or any(type(item) is not FromGraph for item in plan.results) or joint.sparse:
        raise refusal("AO0140", name=name)
    return joint


def layout_of(value: torch.Tensor) -> Layout:
    """Sizes, strides, dtype and device."""
    return tuple(value.shape), tuple(value.stride()), value.dtype, value.device


def layouts_of(joint: Joint) -> list[Layout]:
    """What the results of a function are."""
    return [layout_of(joint.outputs[place].meta["val"]) for place in outputs_of(joint)]


def outputs_of(joint: Joint) -> list[int]:
    """For each result of a function, the output of its graph that it is."""
    return [item.output for item in joint.plan.results if isinstance(item, FromGraph)]


def differentiable_results(joint: Joint) -> list[bool]:
    """Which results of a function have a gradient."""
    return [place in joint.plan.differentiable for place in outputs_of(joint)]


def rebuilt(joint: Joint, results: Any) -> Any:
    """Results in the structure that the function returns them in."""
    values = list(results) if isinstance(results, (list, tuple)) else [results]
    return pytree.tree_unflatten(values, joint.plan.structure)


def forward(joint: Joint) -> Run:
    """A function's results from its operands."""
    return _runner(joint, [joint.outputs[place] for place in outputs_of(joint)])


def gradients(joint: Joint, wanting: Sequence[int]) -> Run:
    """A function's gradients by these operands, from all and the cotangents of its results."""
    if not joint.training:
        return lambda given, cotangents: [None] * len(wanting)
    first, outputs = len(joint.static), outputs_of(joint)
    runner = _runner(joint, [joint.grads[first + index] for index in wanting])
    # Two results may be one output, whose cotangent is the sum of theirs.
    places = [
        [place for place, output in enumerate(outputs) if output == wanted]
        for wanted in joint.plan.differentiable
    ]

    def run(given: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]) -> Sequence[Any]:
        return runner(given, [sum(cotangents[place] for place in own) for own in places])

    return run


def _runner(joint: Joint, results: Sequence[fx.Node | None]) -> Run:
    """What computes these nodes of a function's joint graph from operands, and from cotangents.

    It draws whatever the function draws, so that both runs of one do so in the same order.
    """
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in joint.graph.nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(None if node is None else made[node] for node in results))
    graph.eliminate_dead_code(lambda n: n.op != "call_function" or runs_anyway(n.target))
    module = fx.GraphModule(torch.nn.Module(), graph)
    static, missing = list(joint.static), [None] * len(joint.tangents)

    def run(operands: Sequence[torch.Tensor], cotangents: Sequence[Any] = missing) -> Sequence[Any]:
        with torch.no_grad():
            found: Sequence[Any] = module(*static, *operands, *cotangents)
        return found

    return run


def draws_on(joints: Sequence[Joint]) -> tuple[torch.device, ...]:
    """The devices whose random streams these functions draw on."""
    found: dict[torch.device, None] = {}
    for joint in joints:
        for node in joint.graph.nodes:
            if is_random(node.target):
                value = node.meta["val"]
                first = value if isinstance(value, torch.Tensor) else value[0]
                found[first.device] = None
    return tuple(found)


def refuse_unrepeatable(joints: Sequence[Joint], name: str) -> None:
    """A gradient draws again what its function drew; not every draw can be made again."""
    for joint in joints:
        drawing = [node for node in joint.graph.nodes if is_random(node.target)]
        late = backward_only(joint) if drawing else set()
        for node in drawing:
            given = (*node.args, *node.kwargs.values())
            if node in late or any(isinstance(item, torch.Generator) for item in given):
                raise refusal("AO0141", name=name, target=node.target)


def noted(draws: Sequence[torch.device]) -> list[torch.Tensor]:
    """The states of these devices' generators, as an operator returns them."""
    return [state for _, state in streams(draws)]


def state_layouts(draws: Sequence[torch.device]) -> list[Layout]:
    """What the states of these devices' generators are."""
    return [layout_of(state) for state in noted(draws)]


def registered(
    arguments: str, run: Run, layouts: Sequence[Layout], draws: Sequence[torch.device] = ()
) -> Any:
    """An operator of this one call, on whose schema's arguments `run` is called."""
    name = f"chosen_{uuid4().hex}"
    results = ", ".join(["Tensor"] * len(layouts))
    returns = f"({results})" if len(layouts) != 1 else results
    tags = (torch.Tag.nondeterministic_seeded,) if draws else ()
    torch.library.define(f"{NAMESPACE}::{name}", f"({arguments}) -> {returns}", tags=tags)

    def real(*args: Any) -> Any:
        given = {storage_key(value) for value in pytree.tree_leaves(args)}
        own: list[torch.Tensor] = []
        for value, (shape, stride, dtype, device) in zip(run(*args), layouts, strict=True):
            if tuple(value.stride()) != stride or storage_key(value) in given:
                made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
                value = made.copy_(value)
            given.add(storage_key(value))
            own.append(value)
        return own[0] if len(own) == 1 else tuple(own)

    def fake(*args: Any) -> Any:
        own = [
            torch.empty_strided(shape, stride, dtype=dtype, device=device)
            for shape, stride, dtype, device in layouts
        ]
        return own[0] if len(own) == 1 else tuple(own)

    torch.library.impl(f"{NAMESPACE}::{name}", "CompositeExplicitAutograd", real)
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


class Differentiated(torch.autograd.Function):
    """What an operator computes, with a derivative by another operator.

    run: from operands to results, and after these the states of generators before it. derive: from
    operands, cotangents and states to the gradients by the operands `wanting`. constant: results
    without a gradient.
    """

    @staticmethod
    def forward(ctx: Any, run: Any, derive: Any, wanting: Any, constant: Any, *given: Any) -> Any:
        """The results at the call."""
        count, *operands = given
        results = run(list(operands))
        results = tuple(results) if isinstance(results, (list, tuple)) else (results,)
        ctx.derive, ctx.wanting, ctx.count = derive, wanting, count
        ctx.operands = len(operands)
        ctx.save_for_backward(*operands, *results[count:])
        ctx.mark_non_differentiable(*(results[place] for place in constant), *results[count:])
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradients by the operands that require grad."""
        saved = ctx.saved_tensors
        operands, states = list(saved[: ctx.operands]), list(saved[ctx.operands :])
        found = ctx.derive(operands, list(grads[: ctx.count]), states)
        found = list(found) if isinstance(found, (list, tuple)) else [found]
        by_operand: list[Any] = [None] * ctx.operands
        for index, grad in zip(ctx.wanting, found, strict=True):
            by_operand[index] = grad
        return (None, None, None, None, None, *by_operand)
