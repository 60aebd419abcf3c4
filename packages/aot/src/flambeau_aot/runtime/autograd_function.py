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

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from flambeau_aot._torch_compat import (
    CTX_MATERIALIZE,
    CTX_NON_DIFFERENTIABLE,
    CTX_TO_SAVE,
    FORWARD_AD_LEVEL,
    backward_keeps_graph,
    no_view,
    pass_accumulates,
    saved_tensors_released,
    saved_where_checked,
    separate_hooks,
    transforms_active,
    version,
    versions,
    within_older_vmap,
    write_counter,
)
from flambeau_aot.errors import DoubleBackwardError
from flambeau_aot.interface import Boxed
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.ambient_state import streams
from flambeau_aot.runtime.codegen import defined, display, settling
from flambeau_aot.runtime.epilogue import replay
from flambeau_aot.runtime.result_nodes import Gradient, Parts, Request, ResultNodes, arrived
from flambeau_aot.runtime.saved_values import (
    Crossing,
    DeviceFlags,
    HigherOrder,
    as_traced,
    assembled,
    harmless,
    over_samples,
    without_tangents,
)
from flambeau_aot.runtime.single_run import gradients, new_anchor, waiting
from flambeau_aot.runtime.unneeded_derivatives import refuse_unasked
from flambeau_aot.runtime_plan import ResultNode


class Life:
    """What whoever may still run an autograd function holds: its caller, and every node that it has
    made. The class itself lives until the collector runs, what its methods use does not."""

    __slots__ = ("__weakref__",)


def autograd_function(
    forward: Boxed, backward: Boxed, crossing: Crossing, higher: HigherOrder | None
) -> tuple[type[torch.autograd.Function], Life]:
    """Build the autograd function of one compile; it takes all primals, static ones first. It can
    be called as long as its `Life` lives.

    Without `higher`, a backward pass with `create_graph=True` raises DoubleBackwardError.
    """
    life = Life()
    methods = {
        "forward": staticmethod(_forward(forward, crossing, higher, life)),
        "backward": staticmethod(_backward(backward, crossing, higher, life)),
    }
    made = type("CompiledGraph", (torch.autograd.Function,), methods)
    if len(crossing.differentiable) > 1:
        separate_hooks(made)
    return made, life


def result_nodes(
    nodes: Sequence[ResultNode], crossing: Crossing, higher: HigherOrder | None
) -> ResultNodes | None:
    """What puts results that depend on others on nodes of their own; None where there are none."""
    return ResultNodes(nodes, _parts(crossing, higher), _refusal(higher)) if nodes else None


def higher_order_primals(crossing: Crossing, higher: HigherOrder | None) -> tuple[int, ...]:
    """Primals that only a higher derivative reads."""
    if higher is None or higher.refusal:
        return ()
    saved = {item.index for item in crossing.saved if item.kind == "input"} - {*higher.kept}
    saved |= {item.primal for item in crossing.late}
    return tuple(index for index in higher.read if index not in saved)


def _forward(
    graph: Boxed, crossing: Crossing, higher: HigherOrder | None, life: Life
) -> Callable[..., tuple[Any, ...]]:
    """Run the forward graph, save what crosses, return what the caller sees."""
    saved = [
        f"primals[{item.index}]" if item.kind == "input" else f"outputs[{item.index}]"
        for item in crossing.saved
    ]
    known = frozenset(crossing.differentiable)
    constant = [index for index in range(crossing.visible) if index not in known]
    kept = higher_order_primals(crossing, higher)
    lines = ["def forward(ctx, *primals):", "    ctx.life = life()"]
    if higher is not None and higher.draws:
        lines.append("    ctx.streams = streams(draws)")
    before = {index: f"before{index}" for index in (higher.kept if higher else ())}
    for index, name in before.items():
        lines.append(f"    {name} = primals[{index}].clone()")
    lines.append("    outputs = graph([*primals])")
    if crossing.once:
        lines.append("    anchor = new_anchor()")
        saved.append("anchor")
    if saved:
        lines.append(f"    ctx.{CTX_TO_SAVE} = {display(saved)}")
    if _reads_vary(crossing):
        lines.append(f"    ctx.saved_versions = versions(ctx.{CTX_TO_SAVE})")
    if crossing.symbols:
        lines.append(f"    ctx.symbols = primals[-{crossing.symbols}:]")
    if crossing.late:
        late = [f"primals[{item.primal}]" for item in crossing.late]
        lines.append(f"    ctx.late = {display(late)}")
    lines.append(f"    ctx.{CTX_MATERIALIZE} = False")
    given = [f"outputs[{index}]" for index in range(crossing.visible)]
    for index in crossing.handed:
        given[index] = f"result{index}"
        lines.append(f"    result{index} = no_view(outputs[{index}])")
    for place, view in enumerate(crossing.inside):
        source = view.source
        whole = given[source.index] if source.kind == "output" else f"primals[{source.index}]"
        symbols = f", primals[-{crossing.symbols}:]" if crossing.symbols else ""
        lines.append(f"    view{place} = view_again({whole}, steps{place}, False{symbols})")
        given.append(f"view{place}")
    if crossing.watched:
        own = [
            given[item.source.index]
            if item.source.kind == "output"
            else f"primals[{item.source.index}]"
            for item in crossing.watched
        ]
        counters = [f"write_counter({name})" for name in own]
        lines.append(f"    ctx.watched = {display(counters)}")
        lines.append("    ctx.watched_versions = versions(ctx.watched)")
    if constant:
        marked = display([given[index] for index in constant])
        lines.append(f"    ctx.{CTX_NON_DIFFERENTIABLE} = {marked}")
    if kept:
        lines.append(
            f"    ctx.held = {display([before.get(index, f'primals[{index}]') for index in kept])}"
        )
        lines.append("    ctx.versions = versions(ctx.held)")
    lines.append(f"    return {display([*given, 'anchor'] if crossing.once else given)}")
    scope: dict[str, Any] = {
        "new_anchor": new_anchor,
        "streams": streams,
        "draws": () if higher is None else higher.draws,
        "versions": versions,
        "no_view": no_view,
        "view_again": replay,
        "write_counter": write_counter,
        "life": weakref.ref(life),
    }
    scope.update({f"steps{place}": view.steps for place, view in enumerate(crossing.inside)})
    scope["graph"] = settling(graph, scope, "graph")
    return defined("forward", lines, scope, life)


def _backward(
    graph: Boxed,
    crossing: Crossing,
    higher: HigherOrder | None,
    life: Life,
    one_of_many: bool = False,
) -> Callable[..., Any]:
    """Run the backward graph on what was saved, then on the cotangents.

    one_of_many: it is run several times, for the samples of a batch, and leaves what was saved.
    """
    given = [f"c{index}" for index in crossing.differentiable]
    results = ["None" if place is None else f"grads[{place}]" for place in crossing.grads]
    for spec in crossing.sparse:
        results[spec.primal] = f"sparse{spec.primal}({results[spec.primal]}, {results[spec.rows]})"
    copies = [
        f"ctx.late[{n}]{'' if item.counted else '.data'}.copy_({results[item.place]})"
        for n, item in enumerate(crossing.late)
    ]
    results = results[: len(crossing.tangents_of)]
    nothing = display(["None"] * len(results))
    count = crossing.visible + len(crossing.inside)
    inputs = ", ".join([*(f"c{index}" for index in range(count)), *["anchor"] * crossing.once])
    every = [*given, *["anchor"] * crossing.once]
    lines = [f"def backward(ctx, {inputs}):"]
    if given:
        lines.append(f"    if {' and '.join(f'{name} is None' for name in every)}:")
        lines.append(f"        return {nothing}")
        if crossing.reentrant:
            through = " or ".join(f"{given[order]} is not None" for order in crossing.reentrant)
            lines.append(f"    if not pass_accumulates() and ({through}):")
            lines.append("        refuse_reentrant()")
        if crossing.once:
            lines.append("    if anchor is not None:")
            lines.append(f"        return in_one_run(ctx, {display(given)})")
        if crossing.depended:
            lines.append("    if hasattr(ctx, 'sent'):")
            lines.append(f"        given, whole = arrived(ctx, {display(given)}, depended)")
            lines.append("        if whole:")
            lines.append("            return as_eager(ctx, given, whole)")
            lines.append(f"        {display(given)} = given")
        if not one_of_many:
            lines.append("    if transforms_active() or within_older_vmap():")
            lines.append(f"        return batched(ctx, ({inputs},))")
    lines.append(f"    if {FORWARD_AD_LEVEL} >= 0:")
    lines.append(f"        without_tangents({display(given)})")
    if crossing.watched:
        lines.append("    if versions(ctx.watched) != ctx.watched_versions:")
        lines.append(f"        written_between(ctx, {display(given)})")
    lines.append("    if is_grad_enabled():")
    lines.append(f"        return higher(ctx, {display(given)})")
    missing = " or ".join(f"{name} is None" for name in given)
    if _reads_vary(crossing):
        lines.append(f"    if {missing}:")
        lines.append(f"        args = read_for(ctx, {display(given)})")
        lines.append("    else:")
        lines.append("        args = [*ctx.saved_tensors]")
    else:
        lines.append("    args = [*ctx.saved_tensors]")
    if crossing.once:
        lines.append("    del args[-1]")
    if crossing.reusable:
        copied = [f"args[{i}] = args[{i}].clone()" for i in crossing.reusable]
        if one_of_many:
            lines.extend(f"    {copy}" for copy in copied)
        else:
            lines.append("    if keeps_graph():")
            lines.extend(f"        {copy}" for copy in copied)
            lines.append("    else:")
            lines.append("        release(ctx)")
    for place, name in enumerate(given):
        at = "" if crossing.tangents[place].sized is None else ".at(ctx.symbols)"
        lines.append(f"    args.append(as_traced({name}, layout{place}{at}))")
    for place, presence in enumerate(crossing.presences):
        known = " and ".join(f"c{crossing.differentiable[i]} is None" for i in presence.tangents)
        lines.append(f"    args.append(flag{place}[not ({known})])")
    if crossing.late:
        lines.append("    args.extend(ctx.late)")
    if crossing.symbols:
        lines.append("    args.extend(ctx.symbols)")
    lines.append("    grads = graph(args)")
    lines.extend(f"    {copy}" for copy in copies)
    if len(given) > 1:
        lines.append(f"    if {missing}:")
        lines.append(f"        found = undefined({display(results)}, {display(given)})")
        lines.append("        refuse_unasked(ctx, found)")
        lines.append("        return found")
    lines.append(f"    return {display(results)}")
    scope: dict[str, Any] = {
        "is_grad_enabled": torch.is_grad_enabled,
        "forward_ad": forward_ad,
        "without_tangents": without_tangents,
        "keeps_graph": backward_keeps_graph,
        "release": saved_tensors_released,
        "as_traced": as_traced,
        "higher": _differentiable(crossing, higher),
        "arrived": arrived,
        "in_one_run": _in_one_run(crossing),
        "as_eager": _as_eager(crossing, higher),
        "depended": crossing.depended,
        "pass_accumulates": pass_accumulates,
        "refuse_reentrant": _refuse_reentrant,
        "undefined": _undefined(crossing),
        "refuse_unasked": refuse_unasked,
        "read_for": _read_for(crossing),
        "versions": versions,
        "written_between": _written_between(crossing),
        "transforms_active": transforms_active,
        "within_older_vmap": within_older_vmap,
        "batched": _batched(graph, crossing, higher),
    }
    scope.update({f"sparse{spec.primal}": assembled(spec) for spec in crossing.sparse})
    scope.update(
        {f"flag{at}": DeviceFlags(item.device) for at, item in enumerate(crossing.presences)}
    )
    scope.update({f"layout{place}": item for place, item in enumerate(crossing.tangents)})
    scope["graph"] = settling(graph, scope, "graph")
    return defined("backward", lines, scope, life)


def _batched(
    graph: Boxed, crossing: Crossing, higher: HigherOrder | None
) -> Callable[..., Sequence[Any]]:
    made: list[Callable[..., Any]] = []

    def batched(ctx: Any, cotangents: Sequence[Any]) -> Sequence[Any]:
        """The gradients inside of a `vmap`: one sample after the other."""
        if not made:
            made.append(_backward(graph, crossing, higher, ctx.life, one_of_many=True))
        return over_samples(made[0], ctx, cotangents)

    return batched


def _reads_vary(crossing: Crossing) -> bool:
    """Whether something saved is not read for every cotangent."""
    every = len(crossing.differentiable)
    return any(len(readers) < every for readers in crossing.readers_of)


def _read_for(crossing: Crossing) -> Callable[..., list[torch.Tensor]]:
    def read_for(ctx: Any, given: Sequence[Any]) -> list[torch.Tensor]:
        """What was saved; in place of what only undefined cotangents need, and was written to,
        numbers that index nothing out of bounds."""
        defined = {index for index, item in enumerate(given) if item is not None}
        read = [not readers.isdisjoint(defined) for readers in crossing.readers_of]
        read += [True] * crossing.once
        tensors = saved_where_checked(ctx, read, ctx.saved_versions)
        return [
            tensor if known or version(tensor) == was else harmless(tensor)
            for tensor, known, was in zip(tensors, read, ctx.saved_versions, strict=True)
        ]

    return read_for


def _written_between(crossing: Crossing) -> Callable[..., None]:
    def written_between(ctx: Any, given: Sequence[Any]) -> None:
        """Raise what autograd does where something watched, that is read for a cotangent which is
        defined, was written to."""
        defined = {index for index, item in enumerate(given) if item is not None}
        for item, known, was in zip(
            crossing.watched, ctx.watched, ctx.watched_versions, strict=True
        ):
            if version(known) != was and not item.readers.isdisjoint(defined):
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: [{known.type()}] is at version {version(known)}; "
                    f"expected version {was} instead. Hint: enable anomaly detection to find the "
                    "operation that failed to compute its gradient, with "
                    "torch.autograd.set_detect_anomaly(True)."
                )

    return written_between


def watch_from_now(node: Any, crossing: Crossing, primals: Sequence[torch.Tensor]) -> None:
    """Count the writes to what the call has changed from here on; `node` is the call's, if any."""
    if hasattr(node, "watched"):
        own = [item.source for item in crossing.watched]
        node.watched = tuple(
            write_counter(primals[source.index])
            if source.kind == "input" and source.index in crossing.changed
            else known
            for source, known in zip(own, node.watched, strict=True)
        )
        node.watched_versions = versions(node.watched)


def _undefined(crossing: Crossing) -> Callable[..., tuple[Any, ...]]:
    def undefined(grads: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients, None where no defined cotangent reaches."""
        missing = {index for index, item in enumerate(given) if item is None}
        return tuple(
            None if needed and needed <= missing else grad
            for grad, needed in zip(grads, crossing.tangents_of, strict=True)
        )

    return undefined


def _derive(crossing: Crossing, higher: HigherOrder | None) -> Callable[..., Sequence[Gradient]]:
    kept = {primal: place for place, primal in enumerate(higher_order_primals(crossing, higher))}
    saved = {item.index: place for place, item in enumerate(crossing.saved) if item.kind == "input"}
    late = {item.primal: place for place, item in enumerate(crossing.late)}

    def of_primal(ctx: Any, index: int, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        found: torch.Tensor = (
            ctx.late[late[index]]
            if index in late
            else ctx.held[kept[index]]
            if index in kept
            else tensors[saved[index]]
        )
        return found

    def derive(
        ctx: Any, given: Sequence[Gradient], request: Request | None = None
    ) -> Sequence[Gradient]:
        if higher is None:
            raise refusal("AO0156")
        if higher.refusal:
            raise DoubleBackwardError(higher.refusal)
        tensors = ctx.saved_tensors
        if kept and versions(ctx.held) != ctx.versions:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation: an input of a compiled graph was written to between the "
                "forward pass and a backward pass with create_graph=True"
            )
        handed = [x for x in higher.read if x >= higher.static or x in higher.kept]
        read = [of_primal(ctx, index, tensors) for index in handed]
        symbols = ctx.symbols if crossing.symbols else ()
        cotangents = [
            None if item is None else as_traced(item, layout.at(symbols))
            for item, layout in zip(given, crossing.tangents, strict=True)
        ]
        streams_before = ctx.streams if higher.draws else ()
        main = ctx if crossing.once and torch.is_grad_enabled() else None
        assert higher.call is not None
        return higher.call(read, cotangents, streams_before, symbols, request, main)

    return derive


def _differentiable(crossing: Crossing, higher: HigherOrder | None) -> Callable[..., Any]:
    derive, undefined = _derive(crossing, higher), _undefined(crossing)
    of_primals = crossing.grads[: len(crossing.tangents_of)]

    def differentiable(
        ctx: Any, given: Sequence[Any], request: Request | None = None
    ) -> tuple[Any, ...]:
        """The gradients as part of the autograd graph."""
        found = iter(derive(ctx, given, request))
        grads = [None if place is None else next(found) for place in of_primals]
        found_or_none = undefined(grads, given)
        if any(item is None for item in given):
            refuse_unasked(ctx, found_or_none)
        return found_or_none

    return differentiable


def _in_one_run(crossing: Crossing) -> Callable[..., tuple[Any, ...]]:
    of_primals = crossing.grads[: len(crossing.tangents_of)]

    def in_one_run(ctx: Any, given: Sequence[Gradient]) -> tuple[Any, ...]:
        """The gradients where those of an earlier pass bring some, too."""
        seeds, earlier = waiting(ctx)
        found = iter(gradients(ctx, [*ctx.rerun.seeds(given), *seeds], earlier))
        return tuple(None if place is None else next(found) for place in of_primals)

    return in_one_run


def _refuse_reentrant() -> None:
    raise RuntimeError(
        "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing "
        "an `inputs` parameter to .backward(); use use_reentrant=False"
    )


def _refusal(higher: HigherOrder | None) -> str:
    """Why the backward pass cannot be run as eager runs it; "" where it can."""
    return "it was compiled with Options(higher_order=False)" if higher is None else higher.refusal


def _refuse_parts(crossing: Crossing, higher: HigherOrder | None) -> None:
    why = _refusal(higher)
    if transforms_active() or within_older_vmap():
        why = "its backward pass runs inside of vmap"
    if crossing.late:
        why = "its backward part writes to an input"
    if why:
        raise refusal("AO0157", why=why)


def _as_eager(crossing: Crossing, higher: HigherOrder | None) -> Callable[..., tuple[Any, ...]]:
    differentiable = _differentiable(crossing, higher)

    def as_eager(
        ctx: Any, given: Sequence[Gradient], whole: Mapping[int, Gradient]
    ) -> tuple[Any, ...]:
        """The gradients where those of some results are known as a whole."""
        _refuse_parts(crossing, higher)
        found: tuple[Any, ...] = differentiable(ctx, given, Request(ctx, whole))
        return found

    return as_eager


def _parts(crossing: Crossing, higher: HigherOrder | None) -> Parts:
    derive = _derive(crossing, higher)

    def parts(ctx: Any, grads: Mapping[int, Gradient], asked: Sequence[int]) -> Sequence[Gradient]:
        _refuse_parts(crossing, higher)
        given = [grads.get(output) for output in crossing.differentiable]
        return derive(ctx, given, Request(ctx, {}, asked))

    return parts
