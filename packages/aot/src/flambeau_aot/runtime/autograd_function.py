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
from collections.abc import Callable, Sequence
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
    kept_with_versions,
    leaves_in_order,
    no_view,
    pass_accumulates,
    saved_tensors_released,
    separate_hooks,
    transforms_active,
    unseen_where_undefined,
    versions,
    will_run,
    within_older_vmap,
    write_counter,
)
from flambeau_aot.interface import Boxed
from flambeau_aot.runtime.ambient_state import streams
from flambeau_aot.runtime.batch_samples import over_samples
from flambeau_aot.runtime.codegen import defined, display, settling
from flambeau_aot.runtime.differentiation import Differentiation
from flambeau_aot.runtime.epilogue import replay
from flambeau_aot.runtime.gated_inputs import ends, note_gates, through_gate, through_gates
from flambeau_aot.runtime.pullbacks import Gradient
from flambeau_aot.runtime.result_nodes import Depended, arrived, own_results, would_run
from flambeau_aot.runtime.saved_values import (
    DeviceFlags,
    as_traced,
    assembled,
    have_tangents,
    memory,
)
from flambeau_aot.runtime.single_run import new_anchor
from flambeau_aot.runtime.unneeded_derivatives import refuse_unasked
from flambeau_aot.runtime_plan import Raising, Saved


class Life:
    """What whoever may still run an autograd function holds: its caller, and every node that it has
    made. The class itself lives until the collector runs, what its methods use does not."""

    __slots__ = ("__weakref__",)


def autograd_function(
    own: Differentiation, forward: Boxed, backward: Boxed
) -> tuple[type[torch.autograd.Function], Life]:
    """Build the autograd function of one compile; it takes all primals, static ones first. It can
    be called as long as its `Life` lives."""
    life = Life()
    of_node = _backward(own, backward, life)
    if own.plan.gates:
        of_node = through_gates(of_node, own.plan.visible)
    methods = {
        "forward": staticmethod(_forward(own, forward, life)),
        "backward": staticmethod(of_node),
    }
    made = type("CompiledGraph", (torch.autograd.Function,), methods)
    if own.plan.hook_order and len(own.plan.differentiable) > 1:
        order, runs = own.plan.hook_order, would_run(own.plan)
        separate_hooks(made, order, lambda node, at: (node, at), runs, own.defers)
    return made, life


def _forward(own: Differentiation, graph: Boxed, life: Life) -> Callable[..., tuple[Any, ...]]:
    """Run the forward graph, save what crosses, return what the caller sees."""
    plan, crossing, higher = own.plan, own.crossing, own.higher
    kinds = {"input": "primals[{}]", "memory": "primals[{}].detach()", "output": "outputs[{}]"}
    via = {at: f"through_gate(primals[{at}])" for at in plan.gates}
    saved = [
        via[item.index]
        if item.kind == "input" and item.index in via
        else kinds[item.kind].format(item.index)
        for item in crossing.saved
    ]
    lines = ["def forward(ctx, *primals):", "    ctx.life = life()"]
    if higher is not None and higher.draws:
        lines.append("    ctx.streams = streams(draws)")
    before = {index: f"before{index}" for index in (higher.kept if higher else ())}
    for index, name in before.items():
        lines.append(f"    {name} = primals[{index}].clone()")
    lines.append("    outputs = graph([*primals])")
    if own.plan.once:
        lines.append("    anchor = new_anchor()")
        saved.append("anchor")
    if saved:
        lines.append(f"    ctx.{CTX_TO_SAVE} = {display(saved)}")
    if own.reads_vary or own.by_results:
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
    if plan.gates:
        lines.append("    note_gates(ctx, primals, gates)")
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
    if crossing.remade:
        lines.append(
            f"    ctx.memory = {display([f'memory({saved[at]})' for at in crossing.remade])}"
        )
    if own.watched:
        counters = [f"write_counter({shown(item.source)})" for item in own.watched]
        lines.append(f"    ctx.watched = {display(counters)}")
        lines.append("    ctx.watched_versions = versions(ctx.watched)")
    constant = [given[at] for at in range(plan.visible) if at not in plan.differentiable]
    if constant:
        lines.append(f"    ctx.{CTX_NON_DIFFERENTIABLE} = {display(constant)}")
    if own.kept:
        known = {**via, **before}
        kept = [known.get(index, f"primals[{index}]") for index in own.kept]
        lines.append(f"    ctx.held, ctx.versions = kept_with_versions({display(kept)})")
    if own.kept_results:
        pairs = own.kept_results.items()
        depended = [f"depended_on({place}, {given[at]})" for place, at in pairs]
        lines.append(f"    ctx.depended = {display(depended)}")
    lines.append(f"    return {display([*given, *['anchor'] * own.plan.once])}")
    scope: dict[str, Any] = {
        "new_anchor": new_anchor,
        "note_gates": note_gates,
        "through_gate": through_gate,
        "gates": plan.gates,
        "streams": streams,
        "draws": () if higher is None else higher.draws,
        "versions": versions,
        "kept_with_versions": kept_with_versions,
        "as_view": as_view,
        "no_view": no_view,
        "view_again": replay,
        "write_counter": write_counter,
        "depended_on": Depended.on,
        "memory": memory,
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
    anchor = ["anchor"] * own.plan.once
    count = plan.visible + len(plan.inside)

    laid = not one_of_many and any(result != "None" for result in results)

    def again(found: str) -> str:
        return found if not laid else f"own.laid(ctx, {display(given)}, {found})"

    inputs = ", ".join([*(f"c{index}" for index in range(count)), *anchor])
    lines = [f"def backward(ctx, {inputs}):"]
    if given:
        lines.append(f"    if {' and '.join(f'{name} is None' for name in [*given, *anchor])}:")
        nothing = display(["None"] * len(results))
        if not plan.users and not one_of_many:
            lines.append(f"        unseen_where_undefined(ctx, {nothing})")
        lines.append(f"        return {'own.undefined(ctx)' if plan.users else nothing}")
        if plan.result_order and plan.leaf_order and not one_of_many:
            lines.append(f"    if own.defers(ctx, {display(given)}):")
            lines.append(f"        return own.deferred(ctx, {display(given)})")
        if plan.leaf_order:
            lines.append(f"    leaves_in_order(ctx, leaf_order, {display(given)})")
        if plan.reentrant:
            through = " or ".join(f"{given[order]} is not None" for order in plan.reentrant)
            lines.append(f"    if not pass_accumulates() and ({through}):")
            lines.append("        refuse_reentrant()")
        if plan.raising:
            lines.append(f"    refuse_raising(ctx, raising, {display(given)})")
        if own.plan.once:
            lines.append("    if anchor is not None:")
            lines.append(f"        return own.in_one_run(ctx, {display(given)})")
        if plan.depended:
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
    if own.conditions:
        lines.append("    if not own.still_holds():")
        lines.append(f"        return own.as_now(ctx, {display(given)})")
    if own.watched:
        lines.append("    if versions(ctx.watched) != ctx.watched_versions:")
        lines.append(f"        own.written_between(ctx, {display(given)})")
    lines.append("    if is_grad_enabled():")
    lines.append(f"        return own.differentiable(ctx, {display(given)})")
    missing = " or ".join(f"{name} is None" for name in given)
    whole = "own.unreplaced(ctx, ctx.saved_tensors)" if crossing.remade else "[*ctx.saved_tensors]"
    if own.reads_vary or own.in_turn:
        read = f"own.read_for(ctx, {display(given)}, {own.in_turn and not one_of_many})"
        some = f"{missing} or own.in_part(ctx)" if own.in_turn else missing
        freed = frozenset().union(*(node.tangents for node in plan.keeping))  # by a pass of all
        left = own.in_turn and len(freed) < len(plan.differentiable)
        lines.append(f"    args = {read}" + f" if {some} else {whole}" * (not left))
    elif own.is_freed:
        lines.append(f"    args = {whole}")  # which raises once eager's are freed
    else:
        lines.append("    args = []")
    if own.plan.once:
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
        if not plan.users and not one_of_many:
            lines.append("        unseen_where_undefined(ctx, found)")
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
        "unseen_where_undefined": unseen_where_undefined,
        "refuse_raising": _refuse_raising,
        "leaves_in_order": leaves_in_order,
        "leaf_order": plan.leaf_order,
        "raising": plan.raising,
        "partly": plan.partly_given,
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


def _refuse_raising(ctx: Any, raising: Sequence[Raising], given: Sequence[Gradient]) -> None:
    """Raise what autograd does in a backward pass that comes to a derivative that raises."""
    for item in raising:
        known = (ends(ctx)[place] for place in item.primals)
        if any(given[order] is not None for order in item.tangents) and any(
            end is not None and will_run(end) for end in known
        ):
            raise RuntimeError(item.message)


def _refuse_reentrant() -> None:
    raise RuntimeError(
        "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing "
        "an `inputs` parameter to .backward(); use use_reentrant=False"
    )
