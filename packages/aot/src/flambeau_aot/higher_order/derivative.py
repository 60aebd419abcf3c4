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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import (
    autograd_nodes,
    current_value,
    expression_of,
    pytree,
    raises_when_run,
)
from flambeau_aot.inputs.functional_inputs import FunctionalInput, stand_in_over
from flambeau_aot.joint.analysis import analyze
from flambeau_aot.joint.program import InputProgram
from flambeau_aot.joint.trace import Joint, run_program
from flambeau_aot.joint.tracer import JointTracer
from flambeau_aot.partition.classify import is_random
from flambeau_aot.partition.split import backward_only
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import InputPlan
from flambeau_aot.simplify import inputs_of_result
from flambeau_aot.sizes import sized

UNREAD = "stands for an unread input"
"""Metadata key of a node that stands for an input whose value no gradient depends on."""


@dataclass(frozen=True)
class Needs:
    """What a derivative takes besides the cotangents, by primal of the traced program.

    statics: how many of the primals are the program's own static tensors. handed: those of the
    primals read that a call hands over; the others are bound to the derivative. read: primals whose
    values the gradients depend on, constants of the trace left out. written: those of them that the
    program overwrites, so that nothing is left to start from. kept: those that it overwrites
    without autograd (buffers): a copy is made ahead of the call. draws: devices whose random stream
    the program draws on. unrepeatable: draws that cannot be made again: those of the backward part,
    and those from a generator of the program's own.
    """

    statics: int
    read: tuple[int, ...]
    written: tuple[int, ...]
    kept: tuple[int, ...]
    draws: tuple[torch.device, ...]
    unrepeatable: tuple[str, ...]

    @property
    def handed(self) -> tuple[int, ...]:
        return tuple(x for x in self.read if x >= self.statics or x in self.kept)


def needs(program: InputProgram, joint: Joint) -> Needs:
    """What the derivative of a traced program depends on."""
    reached: set[fx.Node] = set()
    stack = [node for node in joint.grads if node is not None]
    while stack:
        node = stack.pop()
        if node not in reached:
            reached.add(node)
            stack.extend(inputs_of_result(node))
    statics = len(program.static)
    late = {item.primal for item in joint.late_writes}
    read = tuple(
        index
        for index, node in enumerate(joint.primals[: len(joint.primals) - len(joint.symbols)])
        if (node in reached or index in late) and not statics <= index < len(joint.static)
    )
    written = joint.plan.written
    gone = written & joint.wanting
    drawing = [node for node in joint.graph.nodes if is_random(node.target)]
    in_backward = backward_only(joint) if drawing else set()
    return Needs(
        statics=statics,
        read=read,
        written=tuple(index for index in read if index in gone),
        kept=tuple(index for index in read if index in written - gone),
        draws=tuple({node.meta["val"].device: None for node in map(_first, drawing)}),
        unrepeatable=tuple(
            str(node.target) for node in drawing if node in in_backward or _own_generator(node)
        ),
    )


def _first(node: fx.Node) -> fx.Node:
    """The node of an operator's first result."""
    if isinstance(node.meta["val"], torch.Tensor):
        return node
    return next(user for user in node.users if isinstance(user.meta["val"], torch.Tensor))


def _own_generator(node: fx.Node) -> bool:
    return any(isinstance(item, torch.Generator) for item in (*node.args, *node.kwargs.values()))


def derivative(
    program: InputProgram,
    joint: Joint,
    needed: Needs,
    name: str,
    symbols: Sequence[int] = (),
    defined: Sequence[int] | None = None,
) -> InputProgram:
    """The program of the gradients, of those of `joint.grads` that are not None, in that order.

    symbols: the values of the open sizes; the derivative is that of these sizes alone. defined: the
    cotangents there are, all of them by default; a gradient that depends on none of them is None.
    Its static tensors and first inputs are the primals read, its further inputs the cotangents.
    Running it raises DoubleBackwardError where the program now does something else than when it was
    first traced.
    """
    defined = range(len(joint.tangents)) if defined is None else defined
    _statics, constants = needed.statics, len(joint.static) - needed.statics
    plan = plan_of(joint, constants, symbols)
    program = replace(program, symbolic=())
    own = own_inputs(joint, needed)
    open_sizes = [expression_of(node.meta["val"]) for node in joint.symbols]
    inputs_read = needed.handed
    static_read = [index for index in needed.read if index not in inputs_read]

    def run(params: Sequence[torch.Tensor], args: Sequence[Any], tracer: JointTracer) -> Any:
        given = dict(zip(static_read, params, strict=True))
        given.update(zip(inputs_read, args[: len(inputs_read)], strict=True))
        tangents = list(args[len(inputs_read) :])
        stand_ins = [
            stand_in_over(
                given[index]
                if index in given
                else _unread(joint, index, tracer, open_sizes, symbols)
            )
            for index in own
        ]
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
        with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
            grads = torch.autograd.grad(
                outputs, leaves, tangents, create_graph=True, allow_unused=True
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


def own_inputs(joint: Joint, needed: Needs) -> list[int]:
    """The primals that are the program's, in order: no constants of the trace, no symbols."""
    tensors = range(len(joint.primals) - len(joint.symbols))
    return [i for i in tensors if not needed.statics <= i < len(joint.static)]


def plan_of(joint: Joint, constants: int, symbols: Sequence[int]) -> InputPlan:
    """How the program's own inputs are bound, with these values of the open sizes."""
    return _at_sizes(_before_constants(joint.plan.inputs, constants), symbols)


def _before_constants(plan: InputPlan, constants: int) -> InputPlan:
    """The input plan as it was before the trace's constants were put after the static tensors."""
    static = plan.static - constants
    return replace(
        plan,
        static=static,
        duplicates=tuple(
            (position, primal if primal < static else primal - constants)
            for position, primal in plan.duplicates
        ),
    )


def _at_sizes(plan: InputPlan, symbols: Sequence[int]) -> InputPlan:
    """The plan with numbers in the place of open ones."""
    numbers = tuple(
        (place.position, value)
        for place, value in zip(plan.symbols, symbols, strict=True)
        if place.dim is None
    )
    return replace(plan, literals=(*plan.literals, *numbers), symbols=())


def _unread(
    joint: Joint, index: int, tracer: JointTracer, open_sizes: Sequence[Any], symbols: Sequence[int]
) -> torch.Tensor:
    """A tensor of the metadata of an input, whose elements are never read."""
    value = joint.primals[index].meta["val"]
    shape, stride = sized((tuple(value.shape), tuple(value.stride())), open_sizes)(symbols)
    made = torch.empty_strided(shape, stride, dtype=value.dtype, device=value.fake_device)
    tracer.node_of(current_value(made)).meta[UNREAD] = joint.primals[index].name
    return made.requires_grad_(index in joint.wanting)


def _differentiable(
    program: InputProgram,
    plan: InputPlan,
    grad_mode: bool,
    stand_ins: Sequence[FunctionalInput],
    tracer: JointTracer,
) -> list[torch.Tensor]:
    """The values that have a cotangent, in the order of the first trace."""
    with torch.set_grad_enabled(grad_mode):
        results = run_program(program, stand_ins, plan, len(program.input_names), tracer)
    flat, _ = pytree.tree_flatten(results)
    effects = analyze(tracer, [item.value for item in stand_ins], stand_ins, flat)
    found = [item.wrapper for item in effects.from_function if item.differentiable]
    return [wrapper for wrapper in found if wrapper is not None]


def read_after_all(joint: Joint) -> list[str]:
    """Inputs thought unread whose elements something in this graph reads; must be empty.

    An operator that makes a new tensor after another's shape does not read it.
    """
    stand_ins = [node for node in joint.graph.nodes if UNREAD in node.meta]
    returned = {*joint.outputs, *(node for node in joint.grads if node is not None)}
    found = []
    for node in stand_ins:
        users = [user for user in node.users if not _takes_shape_only(user)]
        if users or node in returned:
            found.append(str(node.meta[UNREAD]))
    return found


def _takes_shape_only(node: fx.Node) -> bool:
    name = getattr(node.target, "_schema", None)
    return name is not None and name.name in SHAPE_ONLY


_LIKE = (
    "empty_like full_like new_empty new_empty_strided new_full new_ones new_zeros ones_like "
    "rand_like randn_like zeros_like"
)
SHAPE_ONLY = frozenset(f"aten::{name}" for name in _LIKE.split())
