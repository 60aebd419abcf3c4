"""The differentiation of one compiled program, beyond what its backward graph gives.

In: a plan, what crosses between forward and backward graph, derivatives of higher order; the node
of a call. Out: what was saved, checked as eager checks it; gradients by the derivative of higher
order, where those of the compiled backward part are not eager's.
Invariant: a method that is given a node changes nothing but what that node keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    backward_keeps_graph,
    pass_accumulates,
    result_hooks,
    saved_where_checked,
    sees_layout,
    transforms_active,
    unseen_where_undefined,
    version,
    versions,
    will_run,
    within_older_vmap,
)
from flambeau_aot.errors import DoubleBackwardError
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.deferred_hooks import Deferred, overtaken, refuse_overtaken
from flambeau_aot.runtime.gated_inputs import ends
from flambeau_aot.runtime.pullbacks import Gradient
from flambeau_aot.runtime.result_nodes import Request, ResultNodes, still_there
from flambeau_aot.runtime.saved_values import (
    Crossing,
    DerivativeCall,
    Freed,
    HigherOrder,
    as_it_lies,
    harmless,
    laid_as,
    memory,
    of_memory,
)
from flambeau_aot.runtime.single_run import gradients, waiting
from flambeau_aot.runtime.unneeded_derivatives import refuse_unasked, unasked
from flambeau_aot.runtime_plan import FromGraph, RuntimePlan, View, Watched

_NOTHING_DONE: tuple[frozenset[int], list[Any]] = (frozenset(), [])


@dataclass(frozen=True, eq=False)
class Differentiation:
    """What the autograd function of one program is made of: its plan, what crosses from its forward
    to its backward graph, and derivatives of higher order; without them, a backward pass with
    `create_graph=True` raises DoubleBackwardError. conditions: where one of them does not hold in a
    backward pass, the program is run again."""

    plan: RuntimePlan
    crossing: Crossing
    higher: HigherOrder | None
    conditions: tuple[Callable[[], bool], ...] = ()

    @cached_property
    def watched(self) -> tuple[Watched, ...]:
        """What is not saved and must not be written to before the backward pass all the same."""
        saved = {item.place for item in self.crossing.saved}
        return tuple(x for x in self.plan.watched if x.source not in saved)

    def unreplaced(self, ctx: Any, saved: Sequence[Any], read: Sequence[bool] = ()) -> list[Any]:
        """What was saved. Raises Unsupported where the `.data` of an input that is read was
        assigned to since the call, and eager keeps both the input and what was made of it."""
        remade = self.crossing.remade
        for place, known in zip(remade, ctx.memory if remade else (), strict=True):
            if not read or read[place]:
                storage, stride = memory(saved[place])
                if storage is not known[0] or stride != known[1]:
                    raise refusal("AO0183")
        return list(saved)

    @property
    def watched_after(self) -> bool:
        """Whether primals are to be watched from the end of the call on, which changes them."""
        inputs = (item.source for item in self.watched if item.source.kind == "input")
        return any(item.index in self.plan.written for item in inputs)

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Primals that only a higher derivative reads, or the history of which it does."""
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
        return bool(self.crossing.saved) or self.plan.once or bool(self.plan.keeping)

    @cached_property
    def by_results(self) -> bool:
        """Whether backward passes of some cotangents leave what others need, as in eager."""
        keeping, count = self.plan.keeping, len(self.plan.differentiable)
        freed = [
            frozenset().union(*(node.tangents for node in keeping if tangent in node.tangents))
            for tangent in range(count)
        ]
        return self._some_left and any(len(each) < count for each in freed)

    @cached_property
    def in_turn(self) -> bool:
        """Whether backward passes of some cotangents, or for some inputs, leave what others
        need."""
        by_primal = enumerate(self.crossing.grads[: len(self.crossing.tangents_of)])
        every = {primal for primal, place in by_primal if place is not None}
        partly = any(not node.primals >= every for node in self.plan.keeping)
        return self.by_results or (self._some_left and partly)

    @property
    def _some_left(self) -> bool:
        return not self.plan.once and (bool(self.crossing.saved) or bool(self.plan.keeping))

    def in_part(self, ctx: Any) -> bool:
        """Whether the pass being run frees a part alone, or comes after one that did."""
        if hasattr(ctx, "rest"):
            return True
        return (
            not pass_accumulates()
            and not backward_keeps_graph()
            and any(end is not None and not will_run(end) for end in ends(ctx))
        )

    @property
    def refusal(self) -> str:
        """Why the backward pass cannot be run as eager runs it; "" where it can."""
        if self.higher is None:
            return "it was compiled with Options(higher_order=False)"
        return self.higher.unrepeatable

    def result_nodes(self) -> ResultNodes | None:
        """What puts results that depend on others on nodes of their own; None if there are none."""
        if not (self.plan.result_nodes or self.plan.gates):
            return None
        return ResultNodes(self.plan, self.parts, self.refusal, self.kept_results, self.defers)

    @cached_property
    def kept_results(self) -> dict[int, int]:
        """Results that gradients depend on in turn, each with the output that it is."""
        if self.refusal:
            return {}
        pairs = ((place, self.plan.results[place]) for place in self.plan.kept_results)
        return {place: x.output for place, x in pairs if isinstance(x, FromGraph)}

    def read_for(self, ctx: Any, given: Sequence[Any], in_turn: bool = False) -> list[torch.Tensor]:
        """What was saved; in place of what only undefined cotangents need, and was written to or
        freed, numbers that index nothing out of bounds.

        in_turn: whether the node holds on to what other passes need. Raises what autograd does
        where something that is read was freed, or written to.
        """
        now = frozenset(index for index, item in enumerate(given) if item is not None)
        read = [not readers.isdisjoint(now) for readers in self.crossing.readers_of]
        read += [True] * self.plan.once
        done, found = getattr(ctx, "rest", _NOTHING_DONE)
        comes_to = self._comes_to(ctx if in_turn else None, now)
        if hasattr(ctx, "rest"):
            known = zip(found, ctx.saved_versions, read, strict=True)
            if comes_to & done:
                return list(ctx.saved_tensors)  # raises: that is freed
            _unchanged([(x, was) for x, was, own in known if own and not isinstance(x, Freed)])
        elif hasattr(ctx, "saved_versions"):
            found = saved_where_checked(ctx, read, ctx.saved_versions)
        else:
            found = list(ctx.saved_tensors)
            ctx.saved_versions = versions(found)  # as they were saved, or that has raised
        self.unreplaced(ctx, found, read)
        if in_turn and not backward_keeps_graph():
            done |= comes_to
            ctx.rest = done, self._left(found, self._spent(done))
        return [
            item.stand_in()
            if isinstance(item, Freed)
            else item
            if known or version(item) == was
            else harmless(item)
            for item, known, was in zip(found, read, ctx.saved_versions, strict=True)
        ]

    def _comes_to(self, ctx: Any, now: frozenset[int]) -> frozenset[int]:
        """Which of the nodes that keep something a pass from these cotangents comes to; `ctx`: None
        where it is one for all inputs."""
        run: frozenset[int] | None = None
        if ctx is not None and not pass_accumulates():
            known = enumerate(ends(ctx))
            run = frozenset(at for at, end in known if end is not None and will_run(end))
        return frozenset(
            number
            for number, node in enumerate(self.plan.keeping)
            if node.tangents & now and (run is None or node.primals & run)
        )

    def _spent(self, done: frozenset[int]) -> frozenset[int]:
        """The cotangents from which a pass comes to something freed, for whatever input."""
        numbered = list(enumerate(self.plan.keeping))
        found = set()
        for tangent in range(len(self.plan.differentiable)):
            own = [(number, node) for number, node in numbered if tangent in node.tangents]
            primals = frozenset().union(*(node.primals for _, node in own))
            ways = [{number for number, node in own if at in node.primals} for at in primals]
            if ways and all(way & done for way in ways):
                found.add(tangent)
        return frozenset(found)

    def _left(self, found: Sequence[Any], freed: frozenset[int]) -> list[Any]:
        """What is read for cotangents from which a pass may still run; the rest is freed."""
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
            saved = self.unreplaced(ctx, ctx.saved_tensors) if self.is_freed else []
        else:
            # parts of a gradient are not the last that a pass reads: it comes to the node itself
            last = request is None or not request.asked
            saved = self.read_for(ctx, given, self.in_turn and last)
        pairs = zip(crossing.saved, saved, strict=False)
        known = {item.index: tensor for item, tensor in pairs if item.kind != "output"}
        if self.kept:
            if versions(ctx.held) != ctx.versions:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    "inplace operation: an input of a compiled graph was written to between the "
                    "forward pass and a backward pass with create_graph=True"
                )
            for index, tensor in zip(self.kept, ctx.held, strict=True):
                known[index] = of_memory(known[index], tensor) if index in known else tensor
        for n, item in enumerate(crossing.late):
            known[item.primal] = ctx.late[n]
        symbols = ctx.symbols if self.plan.inputs.symbols or crossing.sizes else ()
        layouts = [layout.at(symbols) for layout in crossing.tangents]
        cotangents = list(map(as_it_lies, given, layouts))
        streams_before = ctx.streams if higher.draws else ()
        main = ctx if self.plan.once and torch.is_grad_enabled() else None
        read = [known[index] for index in higher.handed]
        assert higher.call is not None
        sizes = symbols[: len(self.plan.inputs.symbols)]
        return higher.call(
            DerivativeCall(read, cotangents, streams_before, sizes, layouts, request, main)
        )

    def differentiable(
        self, ctx: Any, given: Sequence[Any], request: Request | None = None
    ) -> tuple[Any, ...]:
        """The gradients as part of the autograd graph."""
        if (
            request is None
            and torch.is_grad_enabled()
            and still_there(ctx)
            and not self.plan.once
            and not self._why_whole()
        ):
            request = Request(ctx, {}, alive=True)
        found = self.crossing.by_primal(self.derive(ctx, given, request))
        defined = self.crossing.defined(found, given)
        if any(item is None for item in given):
            refuse_unasked(ctx, self.plan.partly_given, given)
        if not self.plan.users:
            unseen_where_undefined(ctx, defined)
        return defined

    def laid(self, ctx: Any, given: Sequence[Any], found: Sequence[Gradient]) -> Sequence[Gradient]:
        """The gradients laid out as eager's are for these cotangents, if anyone sees it: of one
        that a leaf takes without hooks, only what it is a part of is seen, for the leaf lays it out
        as itself, but for the strides of dimensions of one: those of an input are. Those of sizes
        by data lie as traced."""
        if self.higher is None or self.higher.layouts is None or self.crossing.sizes:
            return found
        symbols = ctx.symbols if self.plan.inputs.symbols else ()
        layouts = [layout.at(symbols) for layout in self.crossing.tangents]
        pairs = [(x, own) for x, own in zip(given, layouts, strict=True) if x is not None]
        plain = all(x.layout == torch.strided and x.dtype == own.dtype for x, own in pairs)
        if not plain or all(x.stride() == own.stride for x, own in pairs):
            return found
        known_ends = enumerate(zip(ends(ctx), found, strict=False))
        parts, static = self.crossing.parts, self.plan.inputs.static
        seen = any(
            x is not None
            and (place in parts or sees_layout(end) or (place >= static and 1 in x.shape))
            for place, (end, x) in known_ends
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

    def defers(self, ctx: Any, given: Sequence[Gradient] | None = None) -> bool:
        """Whether hooks on results are called when the engine comes to leaves, in the pass being
        run: eager calls some on leaves before. Where it does with these cotangents, and ours cannot
        be called later, Unsupported is raised."""
        plan = self.plan
        if not (result_hooks(ctx) and plan.result_order and overtaken(ctx, plan)):
            return False
        if self._deferrable and not self._why_whole():
            return True
        if given is not None:
            refuse_overtaken(ctx, plan, given)
        return False

    @cached_property
    def _deferrable(self) -> bool:
        """Whether gradients of leaves may be computed one by one, and no hook of a result is called
        by a node of a view or of an input written to, which would not wait for those before."""
        plan, crossing = self.plan, self.crossing
        outside = plan.updates or any(isinstance(x, View) for x in plan.results)
        apart = outside or plan.reentrant or plan.raising
        return not (self.plan.once or crossing.sparse or apart)

    def deferred(self, ctx: Any, given: Sequence[Gradient]) -> tuple[Any, ...]:
        """Gradients of leaves that are computed when the engine comes to these."""
        later = Deferred(ctx, self.plan)
        self.derive(ctx, given, Request(ctx, {}, deferred=later))
        found = later.begin(given, len(self.crossing.tangents_of))
        if not self.plan.users:
            unseen_where_undefined(ctx, found)
        return tuple(found)

    def still_holds(self) -> bool:
        """Whether the backward graph gives what eager would now."""
        return all(holds() for holds in self.conditions)

    def as_now(self, ctx: Any, given: Sequence[Gradient]) -> tuple[Any, ...]:
        """The gradients where that does not hold any more."""
        why = self._why_never_in_parts()
        if why:
            raise refusal("AO0179", why=why)
        return self.differentiable(ctx, given, Request(ctx, {}, changed=True))

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
        if transforms_active() or within_older_vmap():
            return "its backward pass runs inside of vmap"
        return self._why_never_in_parts()

    def _why_never_in_parts(self) -> str:
        return "its backward part writes to an input" * bool(self.crossing.late) or self.refusal

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
