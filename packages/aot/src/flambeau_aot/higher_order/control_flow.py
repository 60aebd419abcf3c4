"""`cond` and `while_loop`: their bodies traced, and operators made of them.

In: a call of torch's operator on functional tensors. Out: the results of an operator made for it,
which decides, or loops, at each call; its derivative is another one.
Invariant: functions are traced when the program is, and what one does besides computing new tensors
of one metadata is refused; a branch is never taken at trace time. What is drawn is drawn once: a
gradient draws the same again. No value of a round is kept from forward to backward: the derivative
loops again, keeps what is carried into each round while it runs, and goes back through them.

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
from flambeau_aot.joint.corrections import contiguous
from flambeau_aot.joint.program import of_callable
from flambeau_aot.joint.trace import Joint, trace
from flambeau_aot.joint.tracer import JointTracer
from flambeau_aot.partition.classify import has_own_generator, is_random, runs_anyway
from flambeau_aot.partition.split import backward_only
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.ambient_state import replayed, streams
from flambeau_aot.runtime_plan import FromGraph

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
            if node in late or has_own_generator(node):
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


def cond(
    tracer: JointTracer, pred: Any, true: Any, false: Any, operands: Sequence[Any] = ()
) -> Any:
    """`torch.ops.higher_order.cond`."""
    if not isinstance(pred, torch.Tensor):
        return true(*operands) if pred else false(*operands)
    tensors = tensors_of("cond", operands)
    sides = [traced(tracer, side, tensors, "cond") for side in (true, false)]
    layouts = [layouts_of(side) for side in sides]
    if layouts[0] != layouts[1] or sides[0].plan.structure != sides[1].plan.structure:
        raise refusal("AO0142", layouts=layouts[0], others=layouts[1])
    count, draws = len(layouts[0]), draws_on(sides)
    wanting = [1 + index for index, tensor in enumerate(tensors) if tensor.requires_grad]
    if not (torch.is_grad_enabled() and wanting and any(side.training for side in sides)):
        run = _choice(sides, layouts[0], draws)
        return rebuilt(sides[0], run([pred, *tensors])[:count] if draws else run([pred, *tensors]))
    refuse_unrepeatable(sides, "cond")
    run = _choice(sides, layouts[0], draws)
    derive = _choice_derivative(sides, tensors, wanting, draws)
    known = zip(*(differentiable_results(side) for side in sides), strict=True)
    constant = [place for place, either in enumerate(known) if True not in either]
    given = (run, derive, wanting, constant, count, pred, *tensors)
    results = Differentiated.apply(*given)  # type: ignore[no-untyped-call]
    return rebuilt(sides[0], results[:count])


def _choice(
    sides: Sequence[Joint], layouts: Sequence[Layout], draws: Sequence[torch.device]
) -> Any:
    """From the predicate and the operands to the results, and to the generators' states."""
    true, false = (forward(side) for side in sides)

    def run(given: list[torch.Tensor]) -> list[Any]:
        pred, *operands = given
        states = noted(draws)
        return [*(true(operands) if bool(pred) else false(operands)), *states]

    return registered("Tensor[] given", run, [*layouts, *state_layouts(draws)], draws)


def _choice_derivative(
    sides: Sequence[Joint],
    operands: Sequence[torch.Tensor],
    wanting: Sequence[int],
    draws: Sequence[torch.device],
) -> Any:
    """The gradients of the operands that require grad; zeros where there is none."""
    found = [gradients(side, [place - 1 for place in wanting]) for side in sides]

    def run(
        given: list[torch.Tensor], cotangents: list[torch.Tensor], states: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        pred, *own = given
        with replayed(tuple(zip(draws, states, strict=True))):
            grads = found[0 if bool(pred) else 1](own, cotangents)
        return [
            torch.zeros_like(given[place]) if grad is None else grad
            for place, grad in zip(wanting, grads, strict=True)
        ]

    layouts: list[Layout] = []
    for place in wanting:
        shape, _, dtype, device = layout_of(current_value(operands[place - 1]))
        layouts.append((shape, contiguous(shape), dtype, device))
    return registered("Tensor[] given, Tensor[] cotangents, Tensor[] states", run, layouts)


def while_loop(
    tracer: JointTracer,
    condition: Callable[..., Any],
    body: Callable[..., Any],
    carried: Sequence[Any],
    additional: Sequence[Any] = (),
) -> Any:
    """`torch.ops.higher_order.while_loop`."""
    tensors = tensors_of("while_loop", (*carried, *additional))
    count = len(carried)
    needed = [torch.is_grad_enabled() and tensor.requires_grad for tensor in tensors]
    step, inside = _step(tracer, body, tensors, needed, count)
    ask = traced(tracer, condition, tensors, "while_loop", [False] * len(tensors))
    starts = [layout_of(current_value(tensor)) for tensor in tensors[:count]]
    layouts = layouts_of(step)
    if [x[0] for x in layouts] != [x[0] for x in starts] or [x[2] for x in layouts] != [
        x[2] for x in starts
    ]:
        raise refusal("AO0143")
    draws = draws_on((ask, step))
    once = _round(forward(step), starts, len(tensors))
    run = _loop(forward(ask), once, starts, draws)
    if not any(needed) or not step.training:
        results = run(tensors)
        return rebuilt(step, results[:count] if draws else results)
    refuse_unrepeatable((ask, step), "while_loop")
    wanting = [index for index, needs in enumerate(needed) if needs]
    derive = _loop_derivative(forward(ask), once, step, inside, wanting, tensors, draws)
    constant = [place for place in range(count) if not inside[place]]
    given = (run, derive, wanting, constant, count, *tensors)
    results = Differentiated.apply(*given)  # type: ignore[no-untyped-call]
    return rebuilt(step, results[:count])


def _step(
    tracer: JointTracer,
    body: Callable[..., Any],
    tensors: Sequence[torch.Tensor],
    needed: Sequence[bool],
    count: int,
) -> tuple[Joint, list[bool]]:
    """The body, and which of its operands require grad in some round: what is carried into a round
    requires grad from when what a round before it carried out did."""
    inside = list(needed)
    while True:
        step = traced(tracer, body, tensors, "while_loop", inside)
        carried_out = differentiable_results(step)
        if len(carried_out) != count:
            raise refusal("AO0144", returned=len(carried_out), count=count)
        after = [
            before or (place < count and carried_out[place]) for place, before in enumerate(inside)
        ]
        if after == inside:
            return step, inside
        inside = after


def _round(once: Run, starts: Sequence[Layout], operands: int) -> Run:
    """One round, from all operands to all; what is carried keeps the strides it began with."""
    count = len(starts)

    def run(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        carried: list[torch.Tensor] = []
        for value, (shape, stride, dtype, device) in zip(once(values), starts, strict=True):
            if tuple(value.stride()) != stride:
                made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
                value = made.copy_(value)
            carried.append(value)
        return [*carried, *values[count:operands]]

    return run


def _loop(ask: Run, once: Run, starts: Sequence[Layout], draws: Sequence[torch.device]) -> Any:
    """From the operands to what is carried out, and to the generators' states before it."""

    def run(operands: list[torch.Tensor]) -> list[torch.Tensor]:
        values: Sequence[torch.Tensor] = list(operands)
        states = noted(draws)
        while bool(ask(values)[0]):
            values = once(values)
        return [*values[: len(starts)], *states]

    return registered("Tensor[] operands", run, [*starts, *state_layouts(draws)], draws)


def _loop_derivative(
    ask: Run,
    once: Run,
    step: Joint,
    inside: Sequence[bool],
    wanting: Sequence[int],
    operands: Sequence[torch.Tensor],
    draws: Sequence[torch.device],
) -> Any:
    """From operands, cotangents of what is carried out, and states to gradients."""
    differentiated = [place for place, needs in enumerate(inside) if needs]
    back = gradients(step, differentiated)
    count = len(differentiable_results(step))

    def run(
        given: list[torch.Tensor], cotangents: list[torch.Tensor], states: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        rounds: list[tuple[Sequence[torch.Tensor], Any]] = []
        values: Sequence[torch.Tensor] = list(given)
        with replayed(tuple(zip(draws, states, strict=True))):
            while bool(ask(values)[0]):
                rounds.append((values, streams(draws)))
                values = once(values)
        grads: list[torch.Tensor | None] = [None] * len(given)
        grads[:count] = cotangents
        while rounds:
            values, before = rounds.pop()
            flowing = [
                torch.zeros_like(value) if grad is None else grad
                for grad, value in zip(grads[:count], values[:count], strict=True)
            ]
            with replayed(before):
                found = dict(zip(differentiated, back(values, flowing), strict=True))
            for place in range(len(given)):
                own, known = found.get(place), grads[place]
                if place < count or known is None or own is None:
                    grads[place] = own if place < count or known is None else known
                else:
                    grads[place] = known + own
        return [
            torch.zeros_like(given[place]) if grads[place] is None else grads[place]  # type: ignore[misc]
            for place in wanting
        ]

    layouts: list[Layout] = []
    for place in wanting:
        shape, _, dtype, device = layout_of(current_value(operands[place]))
        layouts.append((shape, contiguous(shape), dtype, device))
    return registered("Tensor[] given, Tensor[] cotangents, Tensor[] states", run, layouts)


HIGHER_ORDER: dict[str, Callable[..., Any]] = {"cond": cond, "while_loop": while_loop}
"""By the operator's name, what is called in its place."""
