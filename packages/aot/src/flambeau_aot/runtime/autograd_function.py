"""The autograd function around a compiled forward and backward graph.

In: two boxed callables, what crosses between them, and derivatives of higher order. Out: a callable
on primals whose outputs autograd can differentiate, any number of times.
Invariant: everything saved goes through `save_for_backward`, so that writing to a saved tensor
before the backward pass raises as it does in eager; what only a higher derivative reads is kept on
the node, and a write to that is an error only there.

The forward and backward methods are generated: straight lines with no loop over what a graph does
not have.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch.autograd import forward_ad

from flambeau_aot._torch_compat import (
    CTX_MATERIALIZE,
    CTX_NON_DIFFERENTIABLE,
    CTX_TO_SAVE,
    FORWARD_AD_LEVEL,
    as_view,
    backward_keeps_graph,
    hooks_may_change_values,
    kept_with_versions,
    no_view,
    pass_accumulates,
    saved_tensors_released,
    saved_where_checked,
    sees_layout,
    separate_hooks,
    transforms_active,
    version,
    versions,
    will_run,
    within_older_vmap,
    write_counter,
)
from flambeau_aot.errors import DoubleBackwardError
from flambeau_aot.interface import Boxed
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.ambient_state import streams
from flambeau_aot.runtime.codegen import defined, display, settling
from flambeau_aot.runtime.epilogue import replay
from flambeau_aot.runtime.result_nodes import (
    Request,
    ResultNodes,
    arrived,
    own_results,
    still_there,
)
from flambeau_aot.runtime.saved_values import (
    Crossing,
    DerivativeCall,
    DeviceFlags,
    Freed,
    HigherOrder,
    as_traced,
    assembled,
    harmless,
    have_tangents,
    laid_as,
    over_samples,
)
from flambeau_aot.runtime.single_run import Gradient, gradients, new_anchor, waiting
from flambeau_aot.runtime.unneeded_derivatives import refuse_unasked, unasked
from flambeau_aot.runtime_plan import FreedInside, RuntimePlan, Saved, Watched

_NOTHING_DONE: tuple[frozenset[int], list[Any]] = (frozenset(), [])


class Life:
    """What whoever may still run an autograd function holds: its caller, and every node that it has
    made. The class itself lives until the collector runs, what its methods use does not."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, eq=False)
class Differentiation:
    """What the autograd function of one program is made of: its plan, what crosses from its forward
    to its backward graph, and derivatives of higher order; without them, a backward pass with
    `create_graph=True` raises DoubleBackwardError."""

    plan: RuntimePlan
    crossing: Crossing
    higher: HigherOrder | None

    @property
    def once(self) -> bool:
        """Whether the backward part must run once for all gradients of a backward pass."""
        return bool(self.crossing.late) or not self.plan.linear

    @cached_property
    def watched(self) -> tuple[Watched, ...]:
        """What is not saved and must not be written to before the backward pass all the same."""
        return tuple(x for x in self.plan.watched if x.source not in self.crossing.saved)

    @property
    def watched_after(self) -> bool:
        """Whether primals are to be watched from the end of the call on, which changes them."""
        inputs = (item.source for item in self.watched if item.source.kind == "input")
        return any(item.index in self.plan.written for item in inputs)

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Primals that only a higher derivative reads."""
        if self.higher is None or self.higher.unrepeatable:
            return ()
        saved = {item.index for item in self.crossing.saved if item.kind == "input"}
        saved -= {*self.higher.kept}
        saved |= {item.primal for item in self.crossing.late}
        return tuple(index for index in self.higher.read if index not in saved)

    @cached_property
    def reads_vary(self) -> bool:
        """Whether something saved is not read for every cotangent."""
        every = len(self.plan.differentiable)
        return any(len(readers) < every for readers in self.crossing.readers_of)

    @property
    def is_freed(self) -> bool:
        """Whether a backward pass that keeps no graph leaves less than another one needs: reading
        what was saved raises then."""
        return bool(self.crossing.saved) or self.once or any(self.plan.freed_with)

    @cached_property
    def in_turn(self) -> bool:
        """Whether backward passes of some cotangents leave what others need, as in eager."""
        every = len(self.plan.differentiable)
        some = bool(self.crossing.saved) or any(self.plan.freed_with)
        return some and not self.once and any(len(freed) < every for freed in self.plan.freed_with)

    @property
    def refusal(self) -> str:
        """Why the backward pass cannot be run as eager runs it; "" where it can."""
        if self.higher is None:
            return "it was compiled with Options(higher_order=False)"
        return self.higher.unrepeatable

    def result_nodes(self) -> ResultNodes | None:
        """What puts results that depend on others on nodes of their own; None if there are none."""
        nodes = self.plan.result_nodes
        return ResultNodes(nodes, self.parts, self.refusal) if nodes else None

    def read_for(self, ctx: Any, given: Sequence[Any], in_turn: bool = False) -> list[torch.Tensor]:
        """What was saved; in place of what only undefined cotangents need, and was written to or
        freed, numbers that index nothing out of bounds.

        in_turn: whether the node holds on to what other cotangents need. Raises what autograd does
        where something that is read was freed, or written to.
        """
        now = frozenset(index for index, item in enumerate(given) if item is not None)
        read = [not readers.isdisjoint(now) for readers in self.crossing.readers_of]
        read += [True] * self.once
        done, found = getattr(ctx, "rest", _NOTHING_DONE)
        if not done:
            found = saved_where_checked(ctx, read, ctx.saved_versions)
        else:
            known = [(x, was) for x, was, own in zip(found, ctx.saved_versions, read) if own]
            if self._freed(done) & now or any(isinstance(x, Freed) for x, _ in known):
                return list(ctx.saved_tensors)  # raises: that is freed
            _unchanged(known)
        if in_turn and not backward_keeps_graph():
            done |= now
            ctx.rest = done, self._left(found, self._freed(done))
        return [
            item.stand_in()
            if isinstance(item, Freed)
            else item
            if known or version(item) == was
            else harmless(item)
            for item, known, was in zip(found, read, ctx.saved_versions, strict=True)
        ]

    def _freed(self, done: Iterable[int]) -> frozenset[int]:
        return frozenset().union(*(self.plan.freed_with[index] for index in done))

    def _left(self, found: Sequence[Any], freed: frozenset[int]) -> list[Any]:
        """What is read for cotangents for which nothing is freed yet; the rest is."""
        saved = zip(found, self.crossing.saved, self.crossing.readers_of, strict=True)
        return [
            item
            if isinstance(item, Freed)
            else Freed.of(item)
            if not readers - freed
            else item.detach()  # a result would lead back to the node
            if source.kind == "output"
            else item
            for item, source, readers in saved
        ]

    def shares(self, ctx: Any) -> bool:
        """Whether the node holds on to something that was read."""
        return any(not isinstance(x, Freed) for x in getattr(ctx, "rest", _NOTHING_DONE)[1])

    def written_between(self, ctx: Any, given: Sequence[Any]) -> None:
        """Raise what autograd does where something watched, that is read for a cotangent which is
        defined, was written to."""
        defined = {index for index, item in enumerate(given) if item is not None}
        known = zip(self.watched, ctx.watched, ctx.watched_versions, strict=True)
        _unchanged([(x, was) for item, x, was in known if not item.readers.isdisjoint(defined)])

    def watch_from_now(self, node: Any) -> None:
        """Count the writes to what the call has changed from here on; `node` is the call's."""
        if hasattr(node, "watched"):
            node.watched_versions = versions(node.watched)

    def derive(
        self, ctx: Any, given: Sequence[Gradient], request: Request | None = None
    ) -> Sequence[Gradient]:
        """The gradients that the derivative gives as part of the autograd graph."""
        crossing, higher = self.crossing, self.higher
        if higher is None:
            raise refusal("AO0156")
        if higher.unrepeatable or (higher.refusal and torch.is_grad_enabled()):
            raise DoubleBackwardError(higher.refusal)
        alone = not self.in_turn and not hasattr(ctx, "rest")
        if alone:
            saved = ctx.saved_tensors if self.is_freed else ()
        else:
            saved = self.read_for(ctx, given, self.in_turn)
        pairs = zip(crossing.saved, saved, strict=False)
        known = {item.index: tensor for item, tensor in pairs if item.kind == "input"}
        if self.kept:
            if versions(ctx.held) != ctx.versions:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    "inplace operation: an input of a compiled graph was written to between the "
                    "forward pass and a backward pass with create_graph=True"
                )
            known.update(zip(self.kept, ctx.held, strict=True))
        for n, item in enumerate(crossing.late):
            known[item.primal] = ctx.late[n]
        symbols = ctx.symbols if self.plan.inputs.symbols or crossing.sizes else ()
        cotangents = [
            None if item is None else as_traced(item, layout.at(symbols))
            for item, layout in zip(given, crossing.tangents, strict=True)
        ]
        streams_before = ctx.streams if higher.draws else ()
        main = ctx if self.once and torch.is_grad_enabled() else None
        read = [known[index] for index in higher.handed]
        assert higher.call is not None
        sizes = symbols[: len(self.plan.inputs.symbols)]
        return higher.call(DerivativeCall(read, cotangents, streams_before, sizes, request, main))

    def differentiable(
        self, ctx: Any, given: Sequence[Any], request: Request | None = None
    ) -> tuple[Any, ...]:
        """The gradients as part of the autograd graph."""
        if (
            request is None
            and torch.is_grad_enabled()
            and still_there(ctx)
            and not self._why_whole()
        ):
            request = Request(ctx, {}, alive=True)
        found = self.crossing.by_primal(self.derive(ctx, given, request))
        defined = self.crossing.defined(found, given)
        if any(item is None for item in given):
            refuse_unasked(ctx, self.plan.partly, given)
        return defined

    def laid(self, ctx: Any, given: Sequence[Any], found: Sequence[Gradient]) -> Sequence[Gradient]:
        """The gradients laid out as eager's are for these cotangents, if anyone sees it: of one
        that a leaf takes without hooks, only what it is a part of is seen, for the leaf lays it out
        as itself. Those of sizes by data lie as traced."""
        if self.higher is None or self.higher.layouts is None or self.crossing.sizes:
            return found
        symbols = ctx.symbols if self.plan.inputs.symbols else ()
        layouts = [layout.at(symbols) for layout in self.crossing.tangents]
        pairs = [(x, own) for x, own in zip(given, layouts, strict=True) if x is not None]
        plain = all(x.layout == torch.strided and x.dtype == own.dtype for x, own in pairs)
        if not plain or all(x.stride() == own.stride for x, own in pairs):
            return found
        ends = enumerate(zip(ctx.next_functions, found, strict=False))
        parts = self.crossing.parts
        seen = any(
            x is not None and (place in parts or sees_layout(end)) for place, ((end, _), x) in ends
        )
        if pass_accumulates() and not seen:
            return found
        known = self.higher.layouts(given, symbols)
        return laid_as(found, self.crossing.by_primal(known), given) if known else found

    def in_one_run(self, ctx: Any, given: Sequence[Gradient]) -> tuple[Any, ...]:
        """The gradients where those of an earlier pass bring some, too."""
        seeds, earlier = waiting(ctx)
        found = gradients(ctx, [*ctx.rerun.seeds(given), *seeds], earlier)
        return tuple(self.crossing.by_primal(found))

    def as_eager(
        self, ctx: Any, given: Sequence[Gradient], whole: Mapping[int, Gradient]
    ) -> tuple[Any, ...]:
        """The gradients where those of some results are known as a whole."""
        self._refuse_parts()
        return self.differentiable(ctx, given, Request(ctx, whole))

    def with_tangents(self, ctx: Any, given: Sequence[Gradient]) -> tuple[Any, ...]:
        """The gradients with the tangents of forward-mode differentiation, which kernels do not
        see: as eager gives them."""
        why = self.refusal or "it writes to an input" * bool(self.crossing.late)
        if why:
            raise refusal("AO0155", why=why)
        return self.differentiable(ctx, given, Request(ctx, {}, tangents=True))

    def undefined(self, ctx: Any) -> tuple[Any, ...]:
        """The gradients where every cotangent is undefined: eager runs derivatives of a user's,
        which may give some, unless the backward pass comes here through another call alone."""
        cotangents = [None] * len(self.plan.differentiable)
        if unasked(ctx):
            return (None,) * len(self.crossing.tangents_of)
        if any(len(tangents) < len(cotangents) for tangents in self.plan.users):
            raise refusal("AO0172")
        self._refuse_parts()
        found = self.derive(ctx, cotangents, Request(ctx, {}, undefined=True))
        return tuple(self.crossing.by_primal(found))

    def parts(
        self, ctx: Any, grads: Mapping[int, Gradient], asked: Sequence[int]
    ) -> Sequence[Gradient]:
        """What gradients of results give to the results that are requested."""
        self._refuse_parts()
        given = [grads.get(output) for output in self.plan.differentiable]
        return self.derive(ctx, given, Request(ctx, {}, asked))

    def _why_whole(self) -> str:
        """Why the program is not run again for parts of its gradients; "" where it can be."""
        if self.crossing.late:
            return "its backward part writes to an input"
        if transforms_active() or within_older_vmap():
            return "its backward pass runs inside of vmap"
        return self.refusal

    def _refuse_parts(self) -> None:
        why = self._why_whole()
        if why:
            raise refusal("AO0157", why=why)


def _unchanged(known: Sequence[tuple[torch.Tensor, int]]) -> None:
    """Raise what autograd does where one of these tensors is not of the version that it was."""
    for tensor, was in known:
        if version(tensor) != was:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: [{tensor.type()}] is at version {version(tensor)}; "
                f"expected version {was} instead. Hint: enable anomaly detection to find the "
                "operation that failed to compute its gradient, with "
                "torch.autograd.set_detect_anomaly(True)."
            )


def autograd_function(
    own: Differentiation, forward: Boxed, backward: Boxed
) -> tuple[type[torch.autograd.Function], Life]:
    """Build the autograd function of one compile; it takes all primals, static ones first. It can
    be called as long as its `Life` lives."""
    life = Life()
    methods = {
        "forward": staticmethod(_forward(own, forward, life)),
        "backward": staticmethod(_backward(own, backward, life)),
    }
    made = type("CompiledGraph", (torch.autograd.Function,), methods)
    if len(own.plan.differentiable) > 1:
        separate_hooks(made)
    return made, life


def _forward(own: Differentiation, graph: Boxed, life: Life) -> Callable[..., tuple[Any, ...]]:
    """Run the forward graph, save what crosses, return what the caller sees."""
    plan, crossing, higher = own.plan, own.crossing, own.higher
    saved = [
        f"primals[{item.index}]" if item.kind == "input" else f"outputs[{item.index}]"
        for item in crossing.saved
    ]
    lines = ["def forward(ctx, *primals):", "    ctx.life = life()"]
    if higher is not None and higher.draws:
        lines.append("    ctx.streams = streams(draws)")
    before = {index: f"before{index}" for index in (higher.kept if higher else ())}
    for index, name in before.items():
        lines.append(f"    {name} = primals[{index}].clone()")
    lines.append("    outputs = graph([*primals])")
    if own.once:
        lines.append("    anchor = new_anchor()")
        saved.append("anchor")
    if saved:
        lines.append(f"    ctx.{CTX_TO_SAVE} = {display(saved)}")
        lines.append("    if hooks_may_change_values():")
        lines.append("        warn_of_hooks()")
    if own.reads_vary or own.in_turn:
        lines.append(f"    ctx.saved_versions = versions(ctx.{CTX_TO_SAVE} or ())")
    symbols = f"primals[-{len(plan.inputs.symbols)}:]" if plan.inputs.symbols else ""
    by_data = [
        f"outputs[{place}].{'stride' if is_stride else 'size'}({dim})"
        for place, dim, is_stride in crossing.sizes
    ]
    if symbols or by_data:
        lines.append(f"    ctx.symbols = {display([f'*{symbols}'] * bool(symbols) + by_data)}")
    if crossing.late:
        late = [f"primals[{item.primal}]" for item in crossing.late]
        lines.append(f"    ctx.late = {display(late)}")
    lines.append(f"    ctx.{CTX_MATERIALIZE} = False")
    given = [f"outputs[{index}]" for index in range(plan.visible)]

    def shown(source: Saved) -> str:
        return f"primals[{source.index}]" if source.kind == "input" else given[source.index]

    for index in sorted(plan.handed - {*plan.differentiable}):
        given[index] = f"result{index}"
        lines.append(f"    result{index} = no_view(outputs[{index}])")
    for index in sorted(plan.views & {*plan.differentiable}):
        given[index] = f"as_view(outputs[{index}])"
    for place, view in enumerate(plan.inside):
        numbers = display([f"outputs[{number}].item()" for number in view.numbers])
        args = [shown(view.source), f"steps{place}", "False", symbols or "()", numbers]
        lines.append(f"    view{place} = view_again({', '.join(args)})")
        given.append(f"view{place}")
    if own.watched:
        counters = [f"write_counter({shown(item.source)})" for item in own.watched]
        lines.append(f"    ctx.watched = {display(counters)}")
        lines.append("    ctx.watched_versions = versions(ctx.watched)")
    constant = [given[at] for at in range(plan.visible) if at not in plan.differentiable]
    if constant:
        lines.append(f"    ctx.{CTX_NON_DIFFERENTIABLE} = {display(constant)}")
    if own.kept:
        kept = [before.get(index, f"primals[{index}]") for index in own.kept]
        lines.append(f"    ctx.held, ctx.versions = kept_with_versions({display(kept)})")
    lines.append(f"    return {display([*given, *['anchor'] * own.once])}")
    scope: dict[str, Any] = {
        "new_anchor": new_anchor,
        "hooks_may_change_values": hooks_may_change_values,
        "warn_of_hooks": cache(_warn_of_hooks),
        "streams": streams,
        "draws": () if higher is None else higher.draws,
        "versions": versions,
        "kept_with_versions": kept_with_versions,
        "as_view": as_view,
        "no_view": no_view,
        "view_again": replay,
        "write_counter": write_counter,
        "life": weakref.ref(life),
        **{f"steps{place}": view.steps for place, view in enumerate(plan.inside)},
    }
    scope["graph"] = settling(graph, scope, "graph")
    return defined("forward", lines, scope, life)


def _backward(
    own: Differentiation, graph: Boxed, life: Life, one_of_many: bool = False
) -> Callable[..., Any]:
    """Run the backward graph on what was saved, then on the cotangents.

    one_of_many: it is run several times, for the samples of a batch, and leaves what was saved.
    """
    plan, crossing = own.plan, own.crossing
    given = [f"c{index}" for index in plan.differentiable]
    results = ["None" if place is None else f"grads[{place}]" for place in crossing.grads]
    for primal in crossing.parts:
        results[primal] = f"as_view({results[primal]})"
    for spec in crossing.sparse:
        results[spec.primal] = f"sparse{spec.primal}({results[spec.primal]}, {results[spec.place]})"
    copies = [
        f"ctx.late[{n}]{'' if item.counted else '.data'}.copy_({results[item.place]})"
        for n, item in enumerate(crossing.late)
    ]
    results = results[: len(crossing.tangents_of)]
    anchor = ["anchor"] * own.once
    count = plan.visible + len(plan.inside)

    def again(found: str) -> str:
        return found if one_of_many else f"own.laid(ctx, {display(given)}, {found})"

    inputs = ", ".join([*(f"c{index}" for index in range(count)), *anchor])
    lines = [f"def backward(ctx, {inputs}):"]
    if given:
        lines.append(f"    if {' and '.join(f'{name} is None' for name in [*given, *anchor])}:")
        nothing = display(["None"] * len(results))
        lines.append(f"        return {'own.undefined(ctx)' if plan.users else nothing}")
        if plan.reentrant:
            through = " or ".join(f"{given[order]} is not None" for order in plan.reentrant)
            lines.append(f"    if not pass_accumulates() and ({through}):")
            lines.append("        refuse_reentrant()")
        if plan.freed_inside:
            lines.append(f"    refuse_freed(ctx, freed_inside, {display(given)})")
        if own.once:
            lines.append("    if anchor is not None:")
            lines.append(f"        return own.in_one_run(ctx, {display(given)})")
        if plan.result_nodes:
            lines.append("    if hasattr(ctx, 'sent'):")
            lines.append(f"        given, whole = arrived(ctx, {display(given)}, depended)")
            lines.append("        if whole:")
            lines.append("            return own.as_eager(ctx, given, whole)")
            lines.append(f"        {display(given)} = given")
        if not one_of_many:
            lines.append("    if transforms_active() or within_older_vmap():")
            lines.append(f"        return batched(ctx, ({inputs},))")
    lines.append(f"    if {FORWARD_AD_LEVEL} >= 0 and have_tangents({display(given)}):")
    lines.append(f"        return own.with_tangents(ctx, {display(given)})")
    if own.watched:
        lines.append("    if versions(ctx.watched) != ctx.watched_versions:")
        lines.append(f"        own.written_between(ctx, {display(given)})")
    lines.append("    if is_grad_enabled():")
    lines.append(f"        return own.differentiable(ctx, {display(given)})")
    missing = " or ".join(f"{name} is None" for name in given)
    if own.reads_vary or own.in_turn:
        read = f"own.read_for(ctx, {display(given)}, {own.in_turn and not one_of_many})"
        some = f"{missing} or hasattr(ctx, 'rest')" if own.in_turn else missing
        freed = frozenset().union(*plan.freed_with)  # by a backward pass of all
        left = own.in_turn and len(freed) < len(plan.differentiable)
        lines.append(f"    args = {read}" + f" if {some} else [*ctx.saved_tensors]" * (not left))
    elif own.is_freed:
        lines.append("    args = [*ctx.saved_tensors]")  # which raises once eager's are freed
    else:
        lines.append("    args = []")
    if own.once:
        lines.append("    del args[-1]")
    if crossing.reusable:
        copied = [f"args[{i}] = args[{i}].clone()" for i in crossing.reusable]
        if one_of_many:
            lines.extend(f"    {copy}" for copy in copied)
        else:
            rest = " or own.shares(ctx)" * own.in_turn
            lines.append(f"    if keeps_graph(){rest}:")
            lines.extend(f"        {copy}" for copy in copied)
            lines.append("    else:")
            lines.append("        release(ctx)")
    for place, name in enumerate(given):
        at = "" if crossing.tangents[place].sized is None else ".at(ctx.symbols)"
        lines.append(f"    args.append(as_traced({name}, layout{place}{at}))")
    if given:
        other = [f"args[{at - len(given)}] is not {name}" for at, name in enumerate(given)]
        lines.append(f"    moved = {' or '.join(other)}")
    for place, presence in enumerate(crossing.presences):
        known = " and ".join(f"{given[i]} is None" for i in presence.tangents)
        lines.append(f"    args.append(flag{place}[not ({known})])")
    if crossing.late:
        lines.append("    args.extend(ctx.late)")
    if plan.inputs.symbols:
        lines.append(f"    args.extend(ctx.symbols[:{len(plan.inputs.symbols)}])")
    lines.append("    grads = graph(args)")
    lines.extend(f"    {copy}" for copy in copies)
    if len(given) > 1:
        lines.append(f"    if {missing}:")
        lines.append(f"        found = own.crossing.defined({display(results)}, {display(given)})")
        lines.append(f"        refuse_unasked(ctx, partly, {display(given)})")
        lines.append(f"        return {again('found')}")
    if given and not one_of_many:
        lines.append("    if moved:")
        lines.append(f"        return {again(display(results))}")
    lines.append(f"    return {display(results)}")
    scope: dict[str, Any] = {
        "is_grad_enabled": torch.is_grad_enabled,
        "forward_ad": forward_ad,
        "have_tangents": have_tangents,
        "keeps_graph": backward_keeps_graph,
        "release": saved_tensors_released,
        "as_traced": as_traced,
        "own": own,
        "arrived": arrived,
        "depended": own_results(plan),
        "as_view": as_view,
        "pass_accumulates": pass_accumulates,
        "refuse_reentrant": _refuse_reentrant,
        "refuse_unasked": refuse_unasked,
        "refuse_freed": _refuse_freed,
        "freed_inside": plan.freed_inside,
        "partly": plan.partly,
        "versions": versions,
        "transforms_active": transforms_active,
        "within_older_vmap": within_older_vmap,
        "batched": _batched(own, graph),
        **{f"sparse{spec.primal}": assembled(spec) for spec in crossing.sparse},
        **{f"flag{at}": DeviceFlags(item.device) for at, item in enumerate(crossing.presences)},
        **{f"layout{place}": item for place, item in enumerate(crossing.tangents)},
    }
    scope["graph"] = settling(graph, scope, "graph")
    return defined("backward", lines, scope, life)


def _batched(own: Differentiation, graph: Boxed) -> Callable[..., Sequence[Any]]:
    made: list[Callable[..., Any]] = []

    def batched(ctx: Any, cotangents: Sequence[Any]) -> Sequence[Any]:
        """The gradients inside of a `vmap`: one sample after the other."""
        if not made:
            made.append(_backward(own, graph, ctx.life, one_of_many=True))
        return over_samples(made[0], ctx, cotangents)

    return batched


def _warn_of_hooks() -> None:
    warnings.warn(str(refusal("AO0167")), stacklevel=2)


def _refuse_freed(ctx: Any, freed: Sequence[FreedInside], given: Sequence[Gradient]) -> None:
    """Raise what autograd does in a backward pass that comes to what the program has freed."""
    for item in freed:
        ends = (ctx.next_functions[place][0] for place in item.primals)
        if any(given[order] is not None for order in item.tangents) and any(
            end is not None and will_run(end) for end in ends
        ):
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved "
                "tensors after they have already been freed). Saved intermediate values of the "
                "graph are freed when you call .backward() or autograd.grad(). Specify "
                "retain_graph=True if you need to backward through the graph a second time or if "
                "you need to access saved tensors after calling backward."
            )


def _refuse_reentrant() -> None:
    raise RuntimeError(
        "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing "
        "an `inputs` parameter to .backward(); use use_reentrant=False"
    )
