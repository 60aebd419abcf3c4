"""`cond` and `while_loop`: their bodies traced, and operators made of them.

In: a call of torch's operator on functional tensors. Out: the results of an operator made for it,
which decides, or loops, at each call; its derivative is another one.
Invariant: functions are traced when the program is, and what one does besides computing new tensors
of one metadata is refused; a branch is never taken at trace time. What is drawn is drawn once: a
gradient draws the same again. Open sizes are numbers that the operator is called with: one trace
serves all of them. No value of a round is kept from forward to backward: the derivative
loops again, keeps what is carried into each round while it runs, and goes back through them.

Each operator is registered under a name that no other process and no other trace gives, so that a
stored graph which names one is not mistaken for another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from flambeau_aot.joint.dispatch_mode import JointTracer
from flambeau_aot.joint.metadata.corrections import contiguous
from flambeau_aot.joint.program import of_callable
from flambeau_aot.joint.trace import Joint, trace
from flambeau_aot.partition.cost import has_own_generator, is_random, runs_anyway
from flambeau_aot.partition.split import backward_only
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.ambient_state import replayed, streams
from flambeau_aot.runtime_plan import FromGraph
from flambeau_aot.sizes import (
    TensorLayout,
    numbers_of,
    same_sizes,
    sized,
    symbolic_parts,
    symbols_of,
)

NAMESPACE = "flambeau_aot_branches"
Run = Callable[..., Sequence[Any]]


def open_numbers(operands: Sequence[Any]) -> list[Any]:
    """The symbols of operands as numbers, in the order in which functions are given them."""
    known = [current_value(x) if is_functional(x) else x for x in operands]
    parts = list(symbolic_parts(known))
    if any(not isinstance(part, torch.SymInt) for part in parts):
        raise refusal("AO0039", shape=parts)
    return numbers_of(parts, symbols_of(parts))


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
    numbers: Sequence[Any],
    needed: Sequence[bool] | None = None,
) -> Joint:
    """A function at the metadata of its operands; numbers: the open ones, from `open_numbers`, of
    which it computes; `needed`: which operands require grad in it."""
    values = [current_value(x) if is_functional(x) else x for x in operands]
    if needed is None:
        needed = [x.requires_grad for x in operands]
    with outside_tracing():
        examples = [tracer.fakes.like(x) for x in values]
        for example, needs in zip(examples, needed, strict=True):
            example.requires_grad_(needs)
        try:
            own, count = (*examples, *numbers), len(examples)
            program = of_callable(lambda *given: body(*given[:count]), len(own), name)
            program = replace(program, symbolic=own if numbers else ())
            given: list[Any] = [*examples, *[None] * len(numbers)]
            joint = trace(program, given, {}, tracer.attempt.higher_order)
        except TraceError as error:
            if "is being used in an in-place operation" in str(error):
                raise refusal("AO0140", name=name) from error
            raise
    plan = joint.plan
    pure = not plan.updates and not plan.extras and plan.grad_mode_after is None
    if not pure or any(type(item) is not FromGraph for item in plan.results) or joint.sparse:
        raise refusal("AO0140", name=name)
    return joint


def layouts_of(joint: Joint, symbols: Sequence[Any]) -> list[TensorLayout]:
    """What the results of a function are, of these symbols."""
    values = (joint.outputs[place].meta["val"] for place in outputs_of(joint))
    return [TensorLayout.of(value, symbols) for value in values]


def _dense_layout(value: torch.Tensor, symbols: Sequence[Any]) -> TensorLayout:
    """The contiguous layout of a tensor's sizes."""
    layout, stride = TensorLayout.of(value, symbols), contiguous(tuple(value.shape))
    open_sizes = None if layout.sized is None else sized((layout.shape, stride), symbols)
    return replace(layout, stride=stride, sized=open_sizes)


def alike(one: Sequence[TensorLayout], other: Sequence[TensorLayout], strides: bool = True) -> bool:
    """Whether layouts are equal whatever the symbols are, their strides too if wanted."""
    return len(one) == len(other) and all(
        (x.dtype, x.device) == (y.dtype, y.device)
        and same_sizes(x.shape, y.shape)
        and (not strides or same_sizes(x.stride, y.stride))
        for x, y in zip(one, other, strict=True)
    )


def outputs_of(joint: Joint) -> list[int]:
    """For each result of a function, the output of its graph that it is."""
    return [item.output for item in joint.plan.results if isinstance(item, FromGraph)]


def differentiable_results(joint: Joint) -> list[bool]:
    """Which results of a function have a gradient."""
    return [place in joint.plan.differentiable for place in outputs_of(joint)]


def forward(joint: Joint) -> Run:
    """A function's results from its operands, and the open numbers."""
    return _runner(joint, [joint.outputs[place] for place in outputs_of(joint)])


def gradients(joint: Joint, wanting: Sequence[int]) -> Run:
    """A function's gradients by these operands, from all, the open numbers and the cotangents of
    its results."""
    if not joint.training:
        return lambda given, sizes, cotangents: [None] * len(wanting)
    first, outputs = len(joint.static), outputs_of(joint)
    runner = _runner(joint, [joint.grads[first + index] for index in wanting])
    # Two results may be one output, whose cotangent is the sum of theirs.
    places = [
        [place for place, output in enumerate(outputs) if output == wanted]
        for wanted in joint.plan.differentiable
    ]

    def run(
        given: Sequence[torch.Tensor], sizes: Sequence[int], cotangents: Sequence[torch.Tensor]
    ) -> Sequence[Any]:
        return runner(given, sizes, [sum(cotangents[place] for place in own) for own in places])

    return run


def _runner(joint: Joint, results: Sequence[fx.Node | None]) -> Run:
    """What computes these nodes of a function's joint graph from operands, open numbers, and
    cotangents.

    It draws whatever the function draws, so that both runs of one do so in the same order.
    """
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    given = (*joint.primals, *joint.tangents)  # the order in which the module takes them
    for node in (*given, *(node for node in joint.graph.nodes if node not in given)):
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(None if node is None else made[node] for node in results))
    graph.eliminate_dead_code(lambda n: n.op != "call_function" or runs_anyway(n.target))
    module = fx.GraphModule(torch.nn.Module(), graph)
    static, missing = list(joint.static), [None] * len(joint.tangents)

    def run(
        operands: Sequence[torch.Tensor], sizes: Sequence[int], cotangents: Sequence[Any] = missing
    ) -> Sequence[Any]:
        with torch.no_grad():
            found: Sequence[Any] = module(*static, *operands, *sizes, *cotangents)
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


def registered(
    arguments: str, run: Run, layouts: Sequence[TensorLayout], draws: Sequence[torch.device] = ()
) -> Any:
    """An operator of this one call, on whose schema's arguments `run` is called; the last are the
    open numbers, of which the layouts of its results are."""
    arguments = f"{arguments}, SymInt[] sizes"
    name = f"chosen_{uuid4().hex}"
    results = ", ".join(["Tensor"] * len(layouts))
    returns = f"({results})" if len(layouts) != 1 else results
    tags = (torch.Tag.nondeterministic_seeded,) if draws else ()
    torch.library.define(f"{NAMESPACE}::{name}", f"({arguments}) -> {returns}", tags=tags)

    def real(*args: Any) -> Any:
        given = {storage_key(value) for value in pytree.tree_leaves(args[:-1])}
        own: list[torch.Tensor] = []
        for value, open_layout in zip(run(*args), layouts, strict=True):
            layout = open_layout.at(args[-1])
            if tuple(value.stride()) != layout.stride or storage_key(value) in given:
                value = layout.empty().copy_(value)
            given.add(storage_key(value))
            own.append(value)
        return own[0] if len(own) == 1 else tuple(own)

    def fake(*args: Any) -> Any:
        own = [layout.at(args[-1]).empty() for layout in layouts]
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
    def forward(ctx: Any, run: Any, derive: Any, own: Control, *operands: Any) -> Any:
        """The results at the call."""
        results, count = _several(run(list(operands))), len(own.layouts)
        ctx.derive, ctx.own = derive, own
        ctx.save_for_backward(*operands, *results[count:])
        ctx.mark_non_differentiable(*(results[place] for place in own.constant), *results[count:])
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradients by the operands that require grad."""
        own: Control = ctx.own
        first = len(ctx.needs_input_grad) - 3
        operands, states = list(ctx.saved_tensors[:first]), list(ctx.saved_tensors[first:])
        found = _several(ctx.derive(operands, list(grads[: len(own.layouts)]), states))
        by_operand = dict(zip(own.wanting, found, strict=True))
        return (None, None, None, *map(by_operand.get, range(first)))


def _several(results: Any) -> tuple[Any, ...]:
    """An operator's results, of which one is no tuple."""
    return tuple(results) if isinstance(results, (list, tuple)) else (results,)


@dataclass(frozen=True)
class Control:
    """A call that decides, or loops, by values.

    functions: what it runs. run: from operands and the open numbers to results, of these layouts;
    gradients: from operands, open numbers and cotangents of all results to gradients by the
    operands `wanting`, None for zeros. constant: results without a gradient. structure: of the
    results.
    """

    functions: Sequence[Joint]
    layouts: Sequence[TensorLayout]
    run: Run
    gradients: Run
    wanting: Sequence[int]
    constant: Sequence[int]
    structure: Any

    def results(self, operands: Sequence[torch.Tensor], numbers: Sequence[Any]) -> Any:
        """The call's results, in the structure that the functions return them in; numbers: the open
        ones."""
        draws = draws_on(self.functions)

        def noted() -> list[torch.Tensor]:
            """The states of the generators, as an operator returns them."""
            return [state for _, state in streams(draws)]

        def run(given: list[torch.Tensor], sizes: list[int]) -> list[Any]:
            states = noted()
            return [*self.run(given, sizes), *states]

        def derive(
            given: list[Any], cotangents: list[Any], states: list[Any], sizes: list[int]
        ) -> list[Any]:
            with replayed(tuple(zip(draws, states, strict=True))):
                grads = self.gradients(given, sizes, cotangents)
            return [
                torch.zeros_like(given[place]) if grad is None else grad
                for place, grad in zip(self.wanting, grads, strict=True)
            ]

        layouts = [*self.layouts, *map(TensorLayout.of, noted())]
        chosen, sizes = registered("Tensor[] given", run, layouts, draws), list(numbers)

        def call(given: list[Any]) -> Any:
            return chosen(given, sizes)

        if self.wanting:
            values = [current_value(operands[place]) for place in self.wanting]
            wanted = [_dense_layout(x, symbols_of(sizes)) for x in values]
            of_call = registered(
                "Tensor[] given, Tensor[] cotangents, Tensor[] states", derive, wanted
            )

            def back(*given: Any) -> Any:
                return of_call(*given, sizes)

            found = Differentiated.apply(call, back, self, *operands)  # type: ignore[no-untyped-call]
        else:
            found = _several(call(list(operands)))
        return pytree.tree_unflatten(list(found[: len(self.layouts)]), self.structure)


def cond(
    tracer: JointTracer, pred: Any, true: Any, false: Any, operands: Sequence[Any] = ()
) -> Any:
    """`torch.ops.higher_order.cond`."""
    if not isinstance(pred, torch.Tensor):
        return true(*operands) if pred else false(*operands)
    tensors = tensors_of("cond", operands)
    numbers = open_numbers(tensors)
    sides = [traced(tracer, side, tensors, "cond", numbers) for side in (true, false)]
    layouts, others = (layouts_of(side, symbols_of(numbers)) for side in sides)
    if not alike(layouts, others) or sides[0].plan.structure != sides[1].plan.structure:
        raise refusal("AO0142", layouts=layouts, others=others)
    wanting = [index for index, tensor in enumerate(tensors) if tensor.requires_grad]
    if not (torch.is_grad_enabled() and any(side.training for side in sides)):
        wanting = []
    if wanting:
        refuse_unrepeatable(sides, "cond")
    runs = [forward(side) for side in sides]
    backs = [gradients(side, wanting) for side in sides if wanting]
    known = zip(*map(differentiable_results, sides), strict=True)
    return Control(
        functions=sides,
        layouts=layouts,
        run=lambda given, sizes: runs[not given[0]](given[1:], sizes),
        gradients=lambda given, *others: backs[not given[0]](given[1:], *others),
        wanting=[1 + index for index in wanting],
        constant=[place for place, either in enumerate(known) if True not in either],
        structure=sides[0].plan.structure,
    ).results([pred, *tensors], numbers)


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
    numbers = open_numbers(tensors)
    symbols = symbols_of(numbers)
    step, inside = traced_round(tracer, body, tensors, "while_loop", numbers, needed, count)
    ask = traced(tracer, condition, tensors, "while_loop", numbers, [False] * len(tensors))
    starts = [TensorLayout.of(current_value(tensor), symbols) for tensor in tensors[:count]]
    if not alike(layouts_of(step, symbols), starts, strides=False):
        raise refusal("AO0143", name="while_loop")
    wanting = [index for index, needs in enumerate(needed) if needs and step.training]
    if wanting:
        refuse_unrepeatable((ask, step), "while_loop")
    loop = _Loop(forward(ask), forward(step), starts, draws_on((ask, step)))
    differentiated = [index for index, needs in enumerate(inside) if needs]
    back = gradients(step, differentiated if wanting else [])
    return Control(
        functions=(ask, step),
        layouts=starts,
        run=loop.run,
        gradients=partial(loop.gradients, back, differentiated, wanting),
        wanting=wanting,
        constant=[place for place in range(count) if not inside[place]],
        structure=step.plan.structure,
    ).results(tensors, numbers)


def traced_round(
    tracer: JointTracer,
    body: Callable[..., Any],
    given: Sequence[torch.Tensor],
    name: str,
    numbers: Sequence[Any],
    needed: Sequence[bool],
    carried: int,
    *,
    gives_more: bool = False,
) -> tuple[Joint, list[bool]]:
    """The body of a loop called `name`, and which of its operands require grad in some round: what
    is carried into a round requires grad from when what a round before it carried out did.
    gives_more: whether the body returns something besides what it carries."""
    inside = list(needed)
    while True:
        step = traced(tracer, body, given, name, numbers, inside)
        flags = differentiable_results(step)
        if len(flags) < carried or (len(flags) > carried and not gives_more):
            raise refusal("AO0144", name=name, returned=len(flags), count=carried)
        after = [old or (place < carried and flags[place]) for place, old in enumerate(inside)]
        if after == inside:
            return step, inside
        inside = after


@dataclass(frozen=True)
class _Loop:
    """A loop by its condition, its body, and the layouts that it begins with; draws:
    the devices whose random streams it draws on."""

    ask: Run
    body: Run
    starts: Sequence[TensorLayout]
    draws: Sequence[torch.device]

    def once(self, values: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
        """One round, from all operands to all; what is carried keeps the strides it began with."""
        starts = [layout.at(sizes) for layout in self.starts]
        carried = [
            value if tuple(value.stride()) == layout.stride else layout.empty().copy_(value)
            for value, layout in zip(self.body(values, sizes), starts, strict=True)
        ]
        return [*carried, *values[len(carried) :]]

    def run(self, operands: Sequence[torch.Tensor], sizes: Sequence[int]) -> Sequence[torch.Tensor]:
        """What is carried out."""
        while bool(self.ask(operands, sizes)[0]):
            operands = self.once(operands, sizes)
        return operands[: len(self.starts)]

    def gradients(
        self,
        back: Run,
        differentiated: Sequence[int],
        wanting: Sequence[int],
        given: Sequence[torch.Tensor],
        sizes: Sequence[int],
        cotangents: Sequence[torch.Tensor],
    ) -> list[torch.Tensor | None]:
        """Gradients by the operands `wanting`; back: those of the body by `differentiated`, which
        require grad in some round."""
        count = len(self.starts)
        rounds: list[tuple[Sequence[torch.Tensor], Any]] = []
        values = given
        while bool(self.ask(values, sizes)[0]):
            rounds.append((values, streams(self.draws)))
            values = self.once(values, sizes)
        grads: list[torch.Tensor | None] = [*cotangents, *[None] * (len(given) - count)]
        while rounds:
            values, before = rounds.pop()
            flowing = [
                torch.zeros_like(value) if grad is None else grad
                for grad, value in zip(grads[:count], values[:count], strict=True)
            ]
            with replayed(before):
                found = dict(zip(differentiated, back(values, sizes, flowing), strict=True))
            for place, known in enumerate(grads):
                own = found.get(place)
                if place < count or known is None:
                    grads[place] = own
                elif own is not None:
                    grads[place] = known + own
        return [grads[place] for place in wanting]
