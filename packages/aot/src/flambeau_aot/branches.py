"""`cond` and `while_loop` inside a program, kept as operators of their own.

What comes in: a call of torch's higher-order operator on functional tensors. What goes out: the
results of an operator made for it, which decides at each call; its derivative is another one.
Invariant: both sides of a `cond` are traced when the program is, and what they do besides
computing results of one metadata is refused; a branch is never taken at trace time.

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
    beside_tracing,
    current_value,
    is_functional,
    pytree,
    storage_key,
)
from flambeau_aot.errors import TraceError, Unsupported
from flambeau_aot.joint.fakes import contiguous
from flambeau_aot.joint.trace import Joint, trace
from flambeau_aot.joint.tracer import Tracer
from flambeau_aot.partition.classify import is_random
from flambeau_aot.plan import FromGraph
from flambeau_aot.program import of_callable

NAMESPACE = "flambeau_aot_branches"
Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]


def cond(tracer: Tracer, pred: Any, true: Any, false: Any, operands: Sequence[Any] = ()) -> Any:
    """`torch.ops.higher_order.cond`."""
    if not isinstance(pred, torch.Tensor):
        return true(*operands) if pred else false(*operands)
    tensors = _tensors("cond", operands)
    sides = [_traced(tracer, side, tensors, "cond") for side in (true, false)]
    layouts = [_layouts(side) for side in sides]
    if layouts[0] != layouts[1] or sides[0].plan.structure != sides[1].plan.structure:
        raise Unsupported(
            f"the two functions of cond give results of other shapes, strides or dtypes: "
            f"{layouts[0]} and {layouts[1]}; let both return the same"
        )
    wanting = [index for index, tensor in enumerate(tensors) if tensor.requires_grad]
    if not (torch.is_grad_enabled() and wanting and any(side.training for side in sides)):
        return _rebuilt(sides[0], _operator(sides, layouts[0])(pred, list(tensors)))
    if any(is_random(node.target) for side in sides for node in side.graph.nodes):
        raise Unsupported(
            "a function of cond draws random numbers and is differentiated; draw outside of it"
        )
    run = _operator(sides, layouts[0])
    derive = _derivative(sides, tensors, wanting)
    known = [
        {_outputs(side)[place] in side.plan.differentiable for side in sides}
        for place in range(len(layouts[0]))
    ]
    constant = [place for place, either in enumerate(known) if True not in either]
    given = (run, derive, wanting, constant, pred, *tensors)
    results = _Chosen.apply(*given)  # type: ignore[no-untyped-call]
    return _rebuilt(sides[0], results)


def while_loop(
    tracer: Tracer,
    condition: Callable[..., Any],
    body: Callable[..., Any],
    carried: Sequence[Any],
    additional: Sequence[Any] = (),
) -> Any:
    """`torch.ops.higher_order.while_loop`; it has no derivative."""
    tensors = _tensors("while_loop", (*carried, *additional))
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise Unsupported(
            "while_loop on a tensor that requires grad; call it under torch.no_grad() or on "
            "detached tensors, or let it run outside the graph"
        )
    ask = _traced(tracer, condition, tensors, "while_loop")
    step = _traced(tracer, body, tensors, "while_loop")
    count = len(carried)
    layouts = _layouts(step)
    starts = [_layout(current_value(tensor)) for tensor in tensors[:count]]
    if [x[0] for x in layouts] != [x[0] for x in starts] or [x[2] for x in layouts] != [
        x[2] for x in starts
    ]:
        raise Unsupported("the body of while_loop changes the shape or dtype of what it carries")
    keep_going, once = _forward(ask), _forward(step)

    def run(operands: list[torch.Tensor]) -> list[torch.Tensor]:
        values = list(operands)
        while bool(keep_going(values)[0]):
            values = [*once(values), *operands[count:]]
        return values[:count]

    made = _registered("Tensor[] operands", run, layouts)
    return _rebuilt(step, made(list(tensors)))


def _tensors(name: str, operands: Sequence[Any]) -> list[torch.Tensor]:
    for item in operands:
        if not isinstance(item, torch.Tensor):
            raise Unsupported(f"{name} with an operand that is no tensor: {item!r}")
    return list(operands)


def _traced(tracer: Tracer, side: Any, operands: Sequence[torch.Tensor], name: str) -> Joint:
    """One function of a higher-order operator at the metadata of its operands."""
    values = [current_value(x) if is_functional(x) else x for x in operands]
    needed = [x.requires_grad for x in operands]
    with beside_tracing():
        examples = [tracer.fakes.like(x) for x in values]
        for example, needs in zip(examples, needed, strict=True):
            example.requires_grad_(needs)
        try:
            joint = trace(of_callable(side, len(examples), name), examples, {}, HIGHER_ORDER)
        except TraceError as error:
            if "is being used in an in-place operation" in str(error):
                raise Unsupported(_IMPURE.format(name)) from error
            raise
    plan = joint.plan
    pure = not plan.updates and not plan.extras and plan.grad_mode_after is None
    if not pure or any(type(item) is not FromGraph for item in plan.results) or joint.sparse:
        raise Unsupported(_IMPURE.format(name))
    return joint


_IMPURE = (
    "a function of {} writes to an operand, or returns one, a view of one or a value that is no "
    "tensor; return a new tensor (clone)"
)


def _layout(value: torch.Tensor) -> Layout:
    return tuple(value.shape), tuple(value.stride()), value.dtype, value.device


def _layouts(joint: Joint) -> list[Layout]:
    """What the results of a function are."""
    return [_layout(joint.outputs[item.output].meta["val"]) for item in joint.plan.results]  # type: ignore[union-attr]


def _rebuilt(joint: Joint, results: Any) -> Any:
    values = list(results) if isinstance(results, (list, tuple)) else [results]
    return pytree.tree_unflatten(values, joint.plan.structure)


def _runner(joint: Joint, results: Sequence[fx.Node | None]) -> Callable[..., Any]:
    """What computes these nodes of a function's joint graph from operands, and from cotangents."""
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in joint.graph.nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(None if node is None else made[node] for node in results))
    graph.eliminate_dead_code()
    module = fx.GraphModule(torch.nn.Module(), graph)
    static, missing = list(joint.static), [None] * len(joint.tangents)

    def run(operands: Sequence[torch.Tensor], cotangents: Sequence[Any] = missing) -> Any:
        with torch.no_grad():
            return module(*static, *operands, *cotangents)

    return run


def _forward(joint: Joint) -> Callable[..., Any]:
    """A function's results from its operands."""
    return _runner(joint, [joint.outputs[place] for place in _outputs(joint)])


def _outputs(joint: Joint) -> list[int]:
    """For each result, the output it is."""
    return [item.output for item in joint.plan.results if isinstance(item, FromGraph)]


def _operator(sides: Sequence[Joint], layouts: Sequence[Layout]) -> Any:
    true, false = (_forward(side) for side in sides)

    def run(pred: torch.Tensor, operands: list[torch.Tensor]) -> Any:
        return true(operands) if bool(pred) else false(operands)

    return _registered("Tensor pred, Tensor[] operands", run, layouts)


def _derivative(
    sides: Sequence[Joint], operands: Sequence[torch.Tensor], wanting: Sequence[int]
) -> Any:
    """The gradients of the operands that require grad; zeros where there is none."""
    gradients = [_gradients(side, wanting) for side in sides]

    def run(
        pred: torch.Tensor, given: list[torch.Tensor], cotangents: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        found = gradients[0 if bool(pred) else 1](given, cotangents)
        return [
            torch.zeros_like(given[index]) if grad is None else grad
            for index, grad in zip(wanting, found, strict=True)
        ]

    layouts: list[Layout] = []
    for index in wanting:
        shape, _, dtype, device = _layout(current_value(operands[index]))
        layouts.append((shape, contiguous(shape), dtype, device))
    return _registered("Tensor pred, Tensor[] operands, Tensor[] cotangents", run, layouts)


def _gradients(joint: Joint, wanting: Sequence[int]) -> Callable[..., Sequence[Any]]:
    """One function's gradients from its operands and the cotangents of its results."""
    if not joint.training:
        return lambda given, cotangents: [None] * len(wanting)
    first, outputs = len(joint.static), _outputs(joint)
    runner = _runner(joint, [joint.grads[first + index] for index in wanting])
    # Two results may be one output, whose cotangent is the sum of theirs.
    places = [
        [place for place, output in enumerate(outputs) if output == wanted]
        for wanted in joint.plan.differentiable
    ]

    def run(given: list[torch.Tensor], cotangents: list[torch.Tensor]) -> Sequence[Any]:
        found: Sequence[Any] = runner(
            given, [sum(cotangents[place] for place in own) for own in places]
        )
        return found

    return run


class _Chosen(torch.autograd.Function):
    """The derivative of a `cond`, by the operators made for it."""

    @staticmethod
    def forward(
        ctx: Any, run: Any, derive: Any, wanting: Any, constant: Any, pred: Any, *operands: Any
    ) -> Any:
        """The results of the branch that is taken at the call."""
        ctx.derive, ctx.wanting = derive, wanting
        ctx.save_for_backward(pred, *operands)
        results = run(pred, list(operands))
        results = tuple(results) if isinstance(results, (list, tuple)) else (results,)
        ctx.mark_non_differentiable(*(results[place] for place in constant))
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradients of the same branch."""
        pred, *operands = ctx.saved_tensors
        found = ctx.derive(pred, operands, list(grads))
        found = list(found) if isinstance(found, (list, tuple)) else [found]
        by_operand: list[Any] = [None] * len(operands)
        for index, grad in zip(ctx.wanting, found, strict=True):
            by_operand[index] = grad
        return (None, None, None, None, None, *by_operand)


def _registered(arguments: str, run: Callable[..., Any], layouts: Sequence[Layout]) -> Any:
    """An operator of this one call."""
    name = f"chosen_{uuid4().hex}"
    results = ", ".join(["Tensor"] * len(layouts))
    returns = f"({results})" if len(layouts) != 1 else results
    torch.library.define(f"{NAMESPACE}::{name}", f"({arguments}) -> {returns}")

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


HIGHER_ORDER: dict[str, Callable[..., Any]] = {"cond": cond, "while_loop": while_loop}
"""By the operator's name, what is called in its place."""
