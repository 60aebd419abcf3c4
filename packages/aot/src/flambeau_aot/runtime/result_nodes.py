"""Autograd nodes of their own for results that depend on other results, or come after them.

In: what the autograd function of a compiled program returned. Out: the same tensors, with edges to
the results that they depend on.
Invariant: a backward pass that nobody observes goes through the compiled backward part alone, and
nothing goes along those edges. Where a hook or `retain_grad` is on such a result, or its gradient
is requested, what other results give to it is sent along them, and the compiled call drops it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    as_view,
    autograd_nodes,
    backward_keeps_graph,
    current_backward_pass,
    hooked,
    is_of_python,
    keeps_something,
    pass_accumulates,
    separate_hooks,
    will_run,
)
from flambeau_aot.runtime.batch_samples import over_samples
from flambeau_aot.runtime.gated_inputs import come_to, edges_to_gates, ends, gates
from flambeau_aot.runtime.pullbacks import Gradient, Sources, pulled_back, with_history
from flambeau_aot.runtime.unneeded_derivatives import note_unasked
from flambeau_aot.runtime_plan import FromFunction, FromGraph, ResultNode, RuntimePlan

Runs = Callable[[Any, int], bool]
"""Of a call's node and an output, whether the backward pass that comes to the node would come to
one of that output alone."""
Parts = Callable[[Any, Mapping[int, Gradient], Sequence[int]], Sequence[Gradient]]
"""Of a call's node, gradients of what its function returned, and the places that are requested:
what those gradients give to the results there."""


@dataclass(frozen=True)
class Request:
    """What is wanted of a program that is run again, eagerly.

    main: the node of the compiled call. whole: results, by place, whose gradients come with the
    cotangents as a whole: what other results would add to them is dropped. `asked`: results whose
    gradients are wanted in the place of those of primals, what comes to one through another left
    out. tangents: the gradients have some. undefined: all cotangents are, and derivatives of a
    user's run all the same. alive: the caller still has what the gradients depend on. changed: the
    program depends in a backward pass on what has changed since. deferred: what computes the
    gradients later, from the run.
    """

    main: Any
    whole: Mapping[int, Gradient]
    asked: Sequence[int] = ()
    tangents: bool = False
    undefined: bool = False
    alive: bool = False
    changed: bool = False
    deferred: Any = None


@dataclass(frozen=True)
class Depended:
    """What other results depend on, or gradients, at this place, with as many hooks as it had after
    the call."""

    place: int
    tensor: weakref.ref[torch.Tensor]
    hooks: int

    @classmethod
    def on(cls, place: int, tensor: torch.Tensor) -> Depended:
        """The same of a tensor at the end of a call."""
        return cls(place, weakref.ref(tensor), _count(tensor))

    def observed(self) -> bool:
        """Whether the caller has put something on it since."""
        tensor = self.tensor()
        return tensor is not None and (tensor.retains_grad or _count(tensor) > self.hooks)


@dataclass
class Sent:
    """What was sent to results in one backward pass, by place.

    parts: of the gradients that the call's own node is given, too.
    """

    parts: dict[int, list[Gradient]] = field(default_factory=dict)


class ResultNodes:
    """Puts the results of one compiled program on nodes of their own.

    refusal: why `parts` gives none, "" where it does. kept: results that eager keeps for the
    backward pass, each with the output that it is. defers: of a call's node, whether hooks on
    results are called later in the pass being run.
    """

    def __init__(
        self,
        plan: RuntimePlan,
        parts: Parts,
        refusal: str,
        kept: Mapping[int, int],
        defers: Callable[[Any], bool],
    ) -> None:
        self.kept = kept
        own = parts, refusal, plan.views, would_run(plan), defers
        led = {at: {plan.differentiable[n] for n in orders} for at, orders in plan.gates.items()}

        def functions(nodes: Sequence[ResultNode]) -> list[tuple[ResultNode, Any, list[int]]]:
            """Each with its function, and the inputs that it leads to by gates."""
            return [
                (x, _function(x, *own), [at for at in led if not led[at].isdisjoint(x.outputs)])
                for x in nodes
            ]

        self.functions = functions(plan.result_nodes)
        self.gated = functions(plan.gated_nodes) if plan.gates else []

    def attach(
        self, outputs: list[Any], result: Callable[[int, Sequence[Any]], torch.Tensor]
    ) -> dict[int, torch.Tensor]:
        """Replace outputs by those on nodes of their own; the results that these depend on, by
        place, each made by `result` from its place and the outputs so far."""
        made: dict[int, torch.Tensor] = {}
        known_nodes = (*self.gated, *self.functions)
        main = next(outputs[at].grad_fn for node, *_ in known_nodes for at in node.outputs)
        if main is None or not torch.is_grad_enabled():
            return made
        known_gates = edges_to_gates(main)
        for node, function, led_to in known_nodes if known_gates else self.functions:
            for place in node.behind:
                if place not in made:
                    made[place] = result(place, outputs)
            given = [outputs[at] for at in node.outputs]
            edges = [made[place] for place in node.behind]
            own_gates = [known_gates[at] for at in led_to if at in known_gates]
            own = function.apply(*given, *edges, *own_gates)
            for at, tensor in zip(node.outputs, own, strict=True):
                outputs[at] = tensor
        known = {place: outputs[at] for place, at in self.kept.items()} | made
        main.depended = tuple(Depended.on(place, tensor) for place, tensor in known.items())
        return made


def _count(tensor: torch.Tensor) -> int:
    return len(tensor._backward_hooks or ())


def _function(
    node: ResultNode,
    parts: Parts,
    refusal: str,
    views: Container[int],
    would_run: Runs,
    defers: Callable[[Any], bool],
) -> type[torch.autograd.Function]:
    count = len(node.outputs)
    is_view = [at in views for at in node.outputs]

    def forward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        own = zip(given[:count], is_view, strict=True)
        return tuple(as_view(x.detach()) if view else x.detach() for x, view in own)

    def backward(ctx: Any, *grads: Gradient) -> tuple[Gradient, ...]:
        main = ctx.next_functions[0][0]
        edges = dict(zip(node.behind, ctx.next_functions[count:], strict=False))
        if gates(main):
            come_to(main, node.outputs, grads)
        given = any(g is not None for g in grads) and not defers(main)
        asked = requested(main, edges, refusal) if given else ()
        found: Sequence[Gradient] = ()
        if asked:
            found = parts(main, dict(zip(node.outputs, grads, strict=True)), asked)
        own = dict(zip(asked, found, strict=True))
        for place, part in own.items():
            sent_to(main, place, part)
        to_gates = [None] * (len(ctx.next_functions) - count - len(node.behind))
        return (*grads, *(own.get(place) for place in node.behind), *to_gates)

    def place(own: Any, position: int) -> tuple[Any, int]:
        return own.next_functions[0][0], node.outputs[position]

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made = type("ResultOfCompiledGraph", (torch.autograd.Function,), methods)
    if not node.together:
        separate_hooks(made, range(count), place, would_run, defers)
    return made


def linked(
    main: Any, found: Sequence[Gradient], inner: Mapping[int, torch.Tensor], sources: Sources
) -> list[Gradient]:
    """Gradients that a program, run again on leaves, gives as part of the autograd graph: on a node
    with edges to what the leaves are outside, and to the results of the first run; `inner` are
    those of this one, by place."""
    outer = {
        item.place: item.tensor() for item in getattr(main, "depended", ()) if item.place in inner
    }
    edges = {place: tensor for place, tensor in outer.items() if tensor is not None}
    leaves = tuple({id(leaf): (leaf, x) for leaf, x in sources}.values())

    def attach(ends: tuple[Any, ...]) -> Sequence[torch.Tensor]:
        link = _Link(main, ends, inner, tuple(edges), leaves)
        own: Sequence[torch.Tensor] = _Linked.apply(  # type: ignore[no-untyped-call]
            link, torch.empty(0, requires_grad=True), *(x for _, x in leaves), *edges.values()
        )
        return own

    return with_history(found, attach)


@dataclass(frozen=True)
class _Link:
    """Gradients of a program that was run again on leaves, each with what it is outside, and the
    results that they depend on, by place."""

    main: Any
    ends: tuple[Any, ...]
    inner: Mapping[int, torch.Tensor]
    places: tuple[int, ...]
    leaves: Sources

    def parts(self, grads: Sequence[Gradient], asked: Sequence[int]) -> Sequence[Gradient]:
        """What these give to what the leaves are outside, but for what they give to the results
        that are requested, and those."""
        kept = torch.is_grad_enabled()
        pairs = [(end, g) for end, g in zip(self.ends, grads, strict=True) if g is not None]
        given = [(end, g.detach().requires_grad_(kept and g.requires_grad)) for end, g in pairs]
        by = [leaf for leaf, _ in self.leaves] + [self.inner[place] for place in asked]
        with ended(dict.fromkeys(asked), self.inner, [end for end, _ in given]):
            found = pulled_back(given, by, kept) if by else []
        if not kept:
            return found
        known = zip(given, pairs, strict=True)
        more = [(leaf, g) for (_, leaf), (_, g) in known if leaf.requires_grad]
        return linked(self.main, found, self.inner, [*self.leaves, *more])


class _Linked(torch.autograd.Function):
    """The ends of a link outside of the run, whose nodes no pass outside comes to; it frees what
    they keep as if it did."""

    @staticmethod
    def forward(ctx: Any, link: _Link, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.link = link
        ctx.set_materialize_grads(False)
        inside = autograd_nodes([x.grad_fn for x in link.ends if x.grad_fn is not None])
        if any(keeps_something(node) for node, _ in inside):
            ctx.save_for_backward(given[0])
        return tuple(tensor.detach() for tensor in link.ends)

    @staticmethod
    def backward(ctx: Any, *grads: Gradient) -> tuple[Gradient, ...]:
        freed = bool(ctx.saved_tensors) and not backward_keeps_graph()  # raises if they are already
        link: _Link = ctx.link
        if freed:
            del ctx.link
        leaves = len(link.leaves)
        edges = dict(zip(link.places, ctx.next_functions[1 + leaves :], strict=True))
        asked = requested(link.main, edges, "") if any(g is not None for g in grads) else ()
        note_unasked([link.main])
        found: Sequence[Gradient] = [None] * leaves
        if any(g is not None for g in grads):
            found = over_samples(lambda ctx, *sample: link.parts(sample, asked), ctx, grads)
        own = dict(zip(asked, found[leaves:], strict=True))
        return (None, None, *found[:leaves], *(own.get(place) for place in link.places))


@contextmanager
def ended(
    whole: Mapping[int, Gradient], results: Mapping[int, torch.Tensor], ends: Sequence[torch.Tensor]
) -> Iterator[None]:
    """Let nothing but these gradients go on from results in a backward pass from `ends`. Where none
    does, a derivative of a user's that nothing else leads to is not run: it might answer None."""
    handles = []
    cut = [results[place] for place, gradient in whole.items() if gradient is None]
    idle = _not_reached(cut, ends)
    for node in idle:
        node.apply = _nothing
    for place, gradient in whole.items():
        tensor = results[place]
        if tensor.grad_fn is not None:
            hook = partial(_with_one_changed, tensor.output_nr, gradient)
            handles.append(tensor.grad_fn.register_prehook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for node in idle:
            del node.apply


def _not_reached(cut: Sequence[torch.Tensor], ends: Sequence[torch.Tensor]) -> list[Any]:
    """The nodes of functions of Python's after these results that a pass from `ends` comes to by
    way of them alone."""
    starts = [x.grad_fn for x in cut if x.grad_fn is not None]
    functions = [node for node, _ in autograd_nodes(starts) if is_of_python(node)]
    if not functions:
        return []
    closed = {(x.grad_fn, x.output_nr) for x in cut}
    edges = [(x.grad_fn, x.output_nr) for x in ends]
    reached = set()
    while edges:
        edge = edges.pop()
        if edge[0] is not None and edge not in closed and edge[0] not in reached:
            reached.add(edge[0])
            edges.extend(edge[0].next_functions)
    return [node for node in functions if node not in reached]


def _nothing(*grads: Gradient) -> tuple[None, ...]:
    return _NONES


_NONES = (None,) * 1000
"""For more arguments than a function has: autograd drops what is too many."""


def _with_one_changed(
    at: int, gradient: Gradient, grads: tuple[Gradient, ...]
) -> tuple[Gradient, ...]:
    return (*grads[:at], gradient, *grads[at + 1 :])


def requested(main: Any, edges: Mapping[int, tuple[Any, int]], refusal: str) -> tuple[int, ...]:
    """The places that these edges lead to whose gradients somebody requests in this backward
    pass."""
    depended = getattr(main, "depended", ())
    known = [item for item in depended if edges.get(item.place, (None, 0))[0] is not None]
    observed = {
        item.place
        for item in known
        if item.observed() or edges[item.place][1] in hooked(edges[item.place][0])
    }
    if pass_accumulates():
        return tuple(sorted(observed))
    run = {item.place for item in known if will_run(edges[item.place][0])}
    further = any(will_run(other) for other in ends(main) if other is not None)
    if further:
        # one of them may be an input of the pass: the engine does not say
        alive = {item.place for item in known if item.tensor() is not None}
        run &= observed if refusal else observed | alive
    return tuple(sorted(run))


def still_there(main: Any) -> bool:
    """Whether the caller has a result that others depend on: of gradients that are differentiated
    in turn, which depend on it too, it may ask what they give to that result."""
    return any(item.tensor() is not None for item in getattr(main, "depended", ()))


def sent_to(main: Any, place: int | None = None, part: Gradient = None) -> Sequence[int]:
    """The results that parts of gradients were sent to in the backward pass being run, after this
    part, if it is one."""
    if place is not None and part is not None:
        _sent(main).parts.setdefault(place, []).append(part)
    return [*_sent(main).parts]


def _sent(main: Any) -> Sent:
    """What was sent in the backward pass being run, which may be inside of another one."""
    number = current_backward_pass()
    passes: dict[int, Sent] = main.__dict__.setdefault("sent", {})
    if number not in passes:
        for other in sorted(passes)[:-_NESTED]:
            del passes[other]
        passes[number] = Sent()
    return passes[number]


_NESTED = 8
"""How many backward passes are remembered besides the one being run."""


def arrived(
    main: Any, given: Sequence[Gradient], orders: Sequence[tuple[int, int | None]]
) -> tuple[list[Gradient], Mapping[int, Gradient]]:
    """The gradients that a compiled call is given, and the whole gradients of the results, by
    place, that were sent parts of them; these are none where the compiled backward part gives the
    same. orders: where in `given` that of each result stands that others depend on."""
    sent = _sent(main)
    if not sent.parts:
        return list(given), {}
    direct = list(given)
    whole: dict[int, Gradient] = {}
    same = not torch.is_grad_enabled()  # else the gradients depend on these results in turn
    for place, order in orders:
        if place in sent.parts:
            whole[place] = None if order is None else given[order]
            same = same and order is not None and _alone(sent.parts[place], whole[place])
            if order is not None:
                direct[order] = None
    return (direct, {}) if same else (list(given), whole)


def _alone(parts: Sequence[Gradient], whole: Gradient) -> bool:
    """Whether a gradient is the one part that was sent, unchanged."""
    return len(parts) == 1 and parts[0] is whole


def would_run(plan: RuntimePlan) -> Runs:
    """Of the outputs of this plan: a backward pass for some inputs alone comes to nothing that does
    not lead to them."""
    orders = {at: {order} for order, at in enumerate(plan.differentiable)}
    partly = dict(plan.partly)

    def would(main: Any, at: int) -> bool:
        if pass_accumulates():
            return True
        known = enumerate(ends(main))
        run = [place for place, end in known if end is not None and will_run(end)]
        # none: it is run for a result that is requested
        return not run or any(orders[at] <= partly.get(place, orders[at]) for place in run)

    return would


def own_results(plan: RuntimePlan) -> tuple[tuple[int, int | None], ...]:
    """What other results depend on, by place, and which cotangent is its own, if one is."""
    orders = plan.cotangents
    updates = {~item.primal: item.output for item in plan.updates if item.differentiable}
    return tuple((place, orders.get(_output(plan, place, updates))) for place in plan.depended)


def _output(plan: RuntimePlan, place: int, updates: Mapping[int, int]) -> int:
    """What the autograd function returns for a result, or an input written to; -1 for a view."""
    if place < 0:
        return updates[place]
    item = plan.results[place]
    if isinstance(item, FromGraph):
        return item.output
    return plan.visible + item.place if isinstance(item, FromFunction) else -1
