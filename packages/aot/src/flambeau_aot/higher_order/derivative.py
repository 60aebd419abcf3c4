"""Double backward: the derivative of a program as a program.

In: a program and the joint graph of its first trace. Out: a program of the program's inputs and the
cotangents of its results, whose results are the gradients.
Invariant: the derivative is what torch's autograd engine does with `create_graph=True` on the
operators of the program itself, so that a region without gradient, a user's own derivative and a
stop of the gradient mean in the second derivative what they mean in eager.

A derivative is a `InputProgram` like any other: it is traced, cut and compiled by the same passes,
and has a derivative in turn. It runs the program's forward part again; of the inputs it takes only
those whose values the gradients depend on (a bias that is merely added is not among them).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import (
    autograd_nodes,
    current_value,
    pytree,
    raises_when_run,
    without_autocast,
)
from flambeau_aot.errors import AotError
from flambeau_aot.higher_order.control_flow import NAMESPACE as BRANCHES
from flambeau_aot.inputs.functional_inputs import FunctionalInput, stand_in_over
from flambeau_aot.intercept.writes.custom_operators import taken_message
from flambeau_aot.joint.absent_derivatives import led_to
from flambeau_aot.joint.analysis import analyze
from flambeau_aot.joint.dispatch_mode import JointTracer
from flambeau_aot.joint.program import InputProgram
from flambeau_aot.joint.reach import computed_from
from flambeau_aot.joint.trace import Joint, run_program
from flambeau_aot.partition.cost import has_own_generator, is_random
from flambeau_aot.partition.split import backward_only, tangents_of
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.result_nodes import own_results
from flambeau_aot.runtime.saved_values import HigherOrder
from flambeau_aot.runtime_plan import InputPlan, View
from flambeau_aot.simplify import inputs_of_result
from flambeau_aot.sizes import TensorLayout

UNREAD = "stands for an unread input"
"""Metadata key of a node that stands for an input whose value no gradient depends on."""


def higher_order(program: InputProgram, joint: Joint, name: str) -> HigherOrder:
    """What the derivative of a traced program depends on besides the cotangents: constants of the
    trace are left out of what is read, and what the program overwrites without autograd (buffers)
    is copied ahead of the call. What it overwrites with autograd is copied where gradients of
    results may be requested: without its history they have no derivative in turn."""
    reached = computed_from(joint.grads, inputs_of_result)
    statics = len(program.static)
    read = _read(joint, statics, reached)
    gone = joint.plan.written & joint.wanting
    drawing = [node for node in joint.graph.nodes if is_random(node.target)]
    draws = tuple({node.meta["val"].device: None for node in map(_first, drawing)})
    refused = _not_repeatable(joint, name, drawing)
    again = None if refused else _without_history(joint, name, [x for x in read if x in gone])
    why = refused.message if refused else again.message if again else ""
    unrepeatable = "" if again and joint.plan.depended else why
    if not unrepeatable and (joint.keeps_undefined or not _hand_on(joint, reached)):
        more = computed_from(joint.outputs, inputs_of_result)
        read = _read(joint, statics, reached | more)
    kept = () if unrepeatable else tuple(index for index in read if index in joint.plan.written)
    return HigherOrder(read, statics, draws, why, unrepeatable, kept)


def _read(joint: Joint, statics: int, reached: Collection[fx.Node]) -> tuple[int, ...]:
    """The primals among these nodes, those that the backward part writes to, and where there is a
    user's derivative those it may give a gradient: its function may not have read them."""
    late = {item.primal for item in joint.late_writes}
    if joint.plan.users:
        through, tangents = frozenset().union(*joint.plan.users), tangents_of(joint)
        late |= {place for place in joint.wanting if tangents[place] & through}
    led = frozenset[str]().union(*map(led_to, reached))
    return tuple(
        index
        for index, node in enumerate(joint.primals[: len(joint.primals) - len(joint.symbols)])
        if (node.name in led or index in late) and not statics <= index < len(joint.static)
    )


def _hand_on(joint: Joint, reached: Container[fx.Node]) -> bool:
    """Whether the gradients of all results that others depend on go on to inputs; what leads to
    one that does not may read what no gradient of an input does."""
    plan = joint.plan
    orders = plan.cotangents
    for place, order in own_results(plan):
        item = plan.results[place] if place >= 0 else None
        if isinstance(item, View):
            if item.source.kind == "input":
                if joint.grads[item.source.index] is None:
                    return False
                continue
            order = orders.get(item.output)
        if order is None or joint.tangents[order] not in reached:
            return False
    return True


def refuse_requests(joint: Joint, needed: HigherOrder, name: str) -> None:
    """Raise Unsupported where gradients of results that others depend on could be requested, which
    a run of the program by eager would have to give, and cannot: parts of them, too, which make up
    the whole of none that a derivative of a user's is not linear in."""
    why = (
        needed.unrepeatable
        or "its backward part writes to an input" * bool(joint.late_writes)
        or "its backward part is not linear in the gradient" * (not joint.plan.linear)
    )
    if joint.plan.depended and why:
        raise refusal("AO0166", name=name, why=why)


def _without_history(joint: Joint, name: str, gone: Sequence[int]) -> AotError | None:
    """Why gradients that a run on copies of what is written to would give have no derivative in
    turn; None where they have one. gone: primals read that the program overwrites."""
    if gone:
        names = ", ".join(joint.primals[index].name for index in gone)
        return refusal("AO0147", name=name, names=names)
    return refusal("AO0148", name=name) if joint.plan.inputs.merged else None


def _not_repeatable(joint: Joint, name: str, drawing: Sequence[fx.Node]) -> AotError | None:
    """Why the program cannot be run again; None where it can.

    Of the nodes `drawing`, those of the backward part, and those from a generator of the program's
    own, cannot draw again.
    """
    plan = joint.plan
    if plan.begin_grad or plan.end_grad:
        return refusal("AO0148", name=name)
    if any(getattr(n.target, "namespace", "") == BRANCHES for n in joint.graph.nodes):
        return refusal("AO0149", name=name)
    late = backward_only(joint) if drawing else set()
    draws = [str(node.target) for node in drawing if node in late or has_own_generator(node)]
    return refusal("AO0150", name=name, draws=", ".join(draws)) if draws else None


def _first(node: fx.Node) -> fx.Node:
    """The node of an operator's first result."""
    if isinstance(node.meta["val"], torch.Tensor):
        return node
    return next(user for user in node.users if isinstance(user.meta["val"], torch.Tensor))


Eagerly = Callable[
    [Mapping[int, torch.Tensor], Sequence[torch.Tensor | None]], Sequence[torch.Tensor | None]
]


def derivative(
    program: InputProgram,
    joint: Joint,
    needed: HigherOrder,
    name: str,
    symbols: Sequence[int] = (),
    defined: Sequence[int] | None = None,
    create_graph: bool = True,
    eagerly: Eagerly | None = None,
) -> InputProgram:
    """The program of the gradients, of those of `joint.grads` that are not None, in that order.

    symbols: the values of the open sizes; the derivative is that of these sizes alone. defined: the
    cotangents there are, all of them by default; a gradient that depends on none of them is None.
    create_graph: whether they are differentiated in turn, for which eager has formulas of its own.
    eagerly: the same by a run that is not traced, of primals read and of all cotangents.
    Its static tensors and first inputs are the primals read, its further inputs the cotangents.
    Running it raises DoubleBackwardError where the program now does something else than when it was
    first traced.
    """
    defined = range(len(joint.tangents)) if defined is None else defined
    plan = plan_of(joint, needed.static, symbols)
    program = replace(program, symbolic=())
    own = own_inputs(joint, needed.static)
    inputs_read = needed.handed
    static_read = [index for index in needed.read if index not in inputs_read]

    def run(params: Sequence[torch.Tensor], args: Sequence[Any], tracer: JointTracer) -> Any:
        given = dict(zip(static_read, params, strict=True))
        given.update(zip(inputs_read, args[: len(inputs_read)], strict=True))
        tangents = list(args[len(inputs_read) :])
        if eagerly is not None and not isinstance(tracer, JointTracer):
            known = dict(zip(defined, tangents, strict=True))
            return eagerly(given, [known.get(place) for place in range(len(joint.tangents))])
        for index in own:
            if index not in given:
                given[index] = made = unread_input(joint, index, symbols)
                tracer.node_of(current_value(made)).meta[UNREAD] = joint.primals[index].name
                made.requires_grad_(index in joint.wanting)
            elif index in joint.wanting and not given[index].requires_grad:  # it is kept separate
                given[index] = given[index].detach().requires_grad_()
        stand_ins = [stand_in_over(given[index]) for index in own]
        outputs = _differentiable(program, plan, joint.plan.grad_mode, stand_ins, tracer)
        same = len(outputs) == len(joint.tangents)
        outputs = [outputs[place] for place in defined] if same else []
        wanted = [
            item.leaf
            for index, item in zip(own, stand_ins, strict=True)
            if joint.grads[index] is not None
        ]
        leaves = [leaf for leaf in wanted if leaf is not None]
        shapes = [tuple(item.shape) for item in outputs] == [tuple(t.shape) for t in tangents]
        if not shapes or len(leaves) != len(wanted):
            raise refusal("AO0145", name=program.name)
        with (
            torch.enable_grad(),
            torch.autograd.set_multithreading_enabled(False),
            without_autocast(),
        ):
            for node, _ in autograd_nodes([output.grad_fn for output in outputs]):
                taken_message(node)  # which the call's own backward pass raises
            grads = torch.autograd.grad(
                outputs, leaves, tangents, create_graph=create_graph, allow_unused=True
            )
            _refuse_errors_inside(program.name, grads)
            return grads

    return InputProgram(
        name=name,
        static=tuple(joint.static[index] for index in static_read),
        static_names=tuple(program.static_names[index] for index in static_read),
        input_names=(
            *(joint.primals[index].name for index in inputs_read),
            *(f"cotangent_{place}" for place in defined),
        ),
        run=run,
        lines_from_stack=program.lines_from_stack,
        checked=False,
    )


def _refuse_errors_inside(name: str, grads: Sequence[torch.Tensor | None]) -> None:
    """Raise where a gradient leads to a node that raises when it is differentiated: it does so in
    eager where a backward pass gets there, and only there."""
    with torch._C.DisableTorchFunction():  # the mode that rewrites calls has its own answers
        ends = [grad.grad_fn for grad in grads if grad is not None]
    nodes = autograd_nodes([end for end in ends if end is not None])
    if any(raises_when_run(node) for node, _ in nodes):
        raise refusal("AO0146", name=name)


def own_inputs(joint: Joint, statics: int) -> list[int]:
    """The primals that are the program's, in order: no constants of the trace, no symbols."""
    tensors = range(len(joint.primals) - len(joint.symbols))
    return [i for i in tensors if not statics <= i < len(joint.static)]


def plan_of(joint: Joint, statics: int, symbols: Sequence[int]) -> InputPlan:
    """How the program's own inputs are bound, without the constants that the trace has put after
    the static tensors, and with these values of the open sizes."""
    plan = joint.plan.inputs.moved(statics, statics - len(joint.static))
    numbers = tuple(
        (place.position, value)
        for place, value in zip(plan.symbols, symbols, strict=True)
        if place.dim is None
    )
    return replace(plan, literals=(*plan.literals, *numbers), symbols=())


def unread_input(joint: Joint, index: int, symbols: Sequence[int]) -> torch.Tensor:
    """A tensor of the metadata of an input whose elements no gradient depends on."""
    value = joint.primals[index].meta["val"]
    return TensorLayout.of(value, joint.open_sizes).at(symbols).empty()


def _differentiable(
    program: InputProgram,
    plan: InputPlan,
    grad_mode: bool,
    stand_ins: Sequence[FunctionalInput],
    tracer: JointTracer,
) -> list[torch.Tensor]:
    """The values that have a cotangent, in the order of the first trace."""
    with torch.set_grad_enabled(grad_mode):
        results = run_program(program, stand_ins, plan, tracer)
    flat, _ = pytree.tree_flatten(results)
    effects = analyze(tracer, [item.value for item in stand_ins], stand_ins, flat)
    found = [item.wrapper for item in effects.from_function if item.differentiable]
    return [wrapper for wrapper in found if wrapper is not None]


def read_after_all(joint: Joint) -> list[str]:
    """Inputs thought unread whose elements something in this graph reads; must be empty.

    An operator that makes a new tensor after another's shape does not read it.
    """
    returned = {*joint.outputs, *(node for node in joint.grads if node is not None)}
    return [
        str(node.meta[UNREAD])
        for node in joint.graph.nodes
        if UNREAD in node.meta and (node in returned or not all(map(_takes_shape_only, node.users)))
    ]


def _takes_shape_only(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.name in SHAPE_ONLY


_LIKE = (
    "empty_like full_like new_empty new_empty_strided new_full new_ones new_zeros ones_like "
    "rand_like randn_like zeros_like"
)
SHAPE_ONLY = frozenset(f"aten::{name}" for name in _LIKE.split())
