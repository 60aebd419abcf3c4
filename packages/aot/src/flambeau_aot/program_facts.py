"""Facts of a traced and partitioned program, for compilers, runtime and report.

In: a `Joint` and its halves. Out: frozen data.
Invariant: everything here is read off the graphs; nothing is decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from flambeau_aot.interface import GraphInfo, Options, Report
from flambeau_aot.joint.trace import Joint
from flambeau_aot.partition.cost import classify
from flambeau_aot.partition.memory import live_bytes, owned_inputs, peak_bytes, shares_memory
from flambeau_aot.partition.mincut import save_all
from flambeau_aot.partition.shared_memory import root_of
from flambeau_aot.partition.split import Halves, readers_of, tangents_of
from flambeau_aot.runtime.prologue import alone
from flambeau_aot.runtime.saved_values import Crossing
from flambeau_aot.runtime_plan import RuntimePlan
from flambeau_aot.simplify import is_view_node
from flambeau_aot.sizes import TensorLayout, data_extents, has_symbols, same_sizes


def inference_info(joint: Joint, options: Options) -> GraphInfo:
    """Facts about a forward graph without derivatives."""
    return GraphInfo(
        kind="inference",
        name=options.name,
        static_inputs=tuple(range(len(joint.static))),
        mutated_outputs=tuple(item.output for item in joint.plan.updates),
        updates=updates_in_place(joint.plan, joint.static),
    )


def updates_in_place(
    plan: RuntimePlan, static: Sequence[torch.Tensor]
) -> tuple[tuple[int, int], ...]:
    """(output, input) of the updates that a graph compiler may write where the input is: of inputs
    that share memory with no other, as each call makes sure, values that are nothing else's."""
    if plan.inputs.merged:
        return ()
    often = Counter(item.output for item in plan.updates)
    targets = Counter(item.primal for item in plan.updates)
    own, handed = alone(static), plan.handed
    return tuple(
        sorted(
            (item.output, item.primal)
            for item in plan.updates
            if item.primal < plan.inputs.bound
            and (item.primal >= len(static) or item.primal in own)
            and not item.differentiable
            and often[item.output] == targets[item.primal] == 1
            and item.output not in handed
        )
    )


def forward_info(joint: Joint, halves: Halves, options: Options) -> GraphInfo:
    """Facts about the forward half."""
    return GraphInfo(
        kind="forward",
        name=f"{options.name}_forward",
        static_inputs=tuple(range(len(joint.static))),
        saved_outputs=tuple(range(joint.plan.visible, len(outputs_of(halves.forward)))),
        mutated_outputs=tuple(item.output for item in joint.plan.updates),
    )


def backward_info(joint: Joint, halves: Halves, options: Options) -> GraphInfo:
    """Facts about the backward half.

    Reusable are saved values that the caller never sees, that are not an input, and that share
    memory with no other value of the forward graph: a compiler may return what a view or an
    operator on shapes gives in the memory of its operand, whatever its schema says.
    """
    static, visible = len(joint.static), joint.plan.visible
    returned = outputs_of(halves.forward)
    roots = Counter(_root(node, options) for node in returned if isinstance(node, fx.Node))
    reusable = tuple(
        place
        for place, item in enumerate(halves.saved)
        if item.kind == "output"
        and item.index >= visible
        and roots[_root(returned[item.index], options)] == 1
        and _root(returned[item.index], options).op != "placeholder"
        and _alone(halves.saved_nodes[place])
    )
    return GraphInfo(
        kind="backward",
        name=f"{options.name}_backward",
        static_inputs=tuple(
            place
            for place, item in enumerate(halves.saved)
            if item.kind != "output" and item.index < static
        ),
        reusable_inputs=reusable,
    )


def _root(node: fx.Node, options: Options) -> fx.Node:
    """The value in whose memory a node's may lie."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], fx.Node):
        seen = classify(node.target, options.classify) in ("view", "shape")
        if not seen and not shares_memory(node):
            break
        node = node.args[0]
    return node


def _alone(node: fx.Node) -> bool:
    size = node.meta["val"].shape if isinstance(node.meta["val"], torch.Tensor) else ()
    if any(isinstance(each, int) and each == 0 for each in size):
        return False  # nothing to write to, and a copy would lose what memory a kernel hides there
    return not shares_memory(node) and not any(shares_memory(user) for user in node.users)


def crossing(joint: Joint, halves: Halves, backward: GraphInfo) -> Crossing:
    """What the autograd function needs to know of the halves."""
    by_data: dict[Any, tuple[int, int, bool]] = {}
    if any(has_symbols(x.meta["val"]) for x in joint.tangents):
        for place, node in enumerate(joint.outputs[: joint.plan.visible]):
            for extent, dim, is_stride in data_extents(node.meta["val"]):
                by_data.setdefault(extent, (place, dim, is_stride))
    symbols = [*joint.open_sizes, *by_data]
    return Crossing(
        saved=halves.saved,
        grads=halves.grads,
        tangents=tuple(TensorLayout.of(x.meta["val"], symbols) for x in joint.tangents),
        reusable=backward.reusable_inputs,
        tangents_of=tangents_of(joint)[: len(joint.primals)],
        readers_of=readers_of(joint, halves.saved_nodes),
        sparse=joint.sparse,
        presences=joint.presences,
        late=joint.late_writes,
        parts=_parts(joint),
        sizes=tuple(by_data.values()),
        remade=halves.remade,
    )


def _parts(joint: Joint) -> frozenset[int]:
    """Primals whose gradient is a view of some elements of another value."""
    own = enumerate(joint.grads[: len(joint.primals)])
    pairs = [(at, x, root_of(x, is_view_node)) for at, x in own if x is not None]
    return frozenset(
        at
        for at, x, root in pairs
        if not same_sizes((x.meta["val"].numel(),), (root.meta["val"].numel(),))
    )


def inference_report(
    joint: Joint,
    gm: fx.GraphModule,
    options: Options,
    removed: dict[str, int],
    seconds: dict[str, float],
) -> Report:
    """The report of a compile without derivatives."""
    return Report(
        name=options.name,
        kind="inference",
        joint_nodes=operators(joint.graph),
        forward_nodes=operators(gm.graph),
        forward_peak_bytes=peak_bytes(gm.graph),
        removed=removed,
        seconds=seconds,
        fake_runs=joint.fake_runs,
        fake_remembered=joint.fake_remembered,
    )


def training_report(
    joint: Joint,
    halves: Halves,
    options: Options,
    removed: dict[str, int],
    seconds: dict[str, float],
    kept_for_higher: Sequence[int],
) -> Report:
    """The report of a compile of both halves; some primals are kept for higher derivatives."""
    assert halves.backward is not None
    pairs = zip(halves.saved_nodes, halves.saved, strict=True)
    kept = [node if item.kind == "output" else None for node, item in pairs]
    written = {joint.primals[primal] for primal in joint.plan.written}
    owned, statics = owned_inputs(joint.graph, kept), len(joint.static)
    return replace(
        inference_report(joint, halves.forward, options, removed, seconds),
        kind="training",
        backward_nodes=operators(halves.backward.graph),
        saved_tensors=len(kept) - kept.count(None),
        saved_bytes=live_bytes(joint.graph, halves.saved_nodes, written),
        saved_bytes_save_all=live_bytes(joint.graph, save_all(joint), written),
        held_inputs=tuple(joint.primals[at].name for at in kept_for_higher if at >= statics),
        recomputed=halves.recomputed,
        recomputed_share=halves.recomputed_share,
        backward_peak_bytes=peak_bytes(halves.backward.graph, owned),
    )


def outputs_of(gm: fx.GraphModule) -> list[Any]:
    """The nodes a graph returns."""
    end = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    return list(end.args[0])  # type: ignore[arg-type]


def operators(graph: fx.Graph) -> int:
    """The number of calls in a graph."""
    return sum(node.op == "call_function" for node in graph.nodes)
