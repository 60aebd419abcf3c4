"""Rematerialisation of cheap values in their readers.

In: a plan and its loops. Out: values that need no memory after all. Invariant: each of them is a
pointwise function of what its readers can read anyway; whether a plan without memory for them moves
less is for the caller to compare.

A value with several readers gets memory where computing it is expensive, before it is known which
of them share its loop. On a GPU a loop takes as long as its memory does: to write a value of 32
bits and read it again takes longer than any function of a value of 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import decide_less, hint
from flambeau_inductor.ir.tensors import LibraryCall, Node, Pointwise
from flambeau_inductor.limits import Limits
from flambeau_inductor.schedule.fuse.legality import FusionGroup
from flambeau_inductor.schedule.materialize.computed_buffers import ComputedBuffer
from flambeau_inductor.schedule.materialize.plan import (
    MaterializationPlan,
    StorageView,
    operands_of,
)
from flambeau_inductor.schedule.tensor_program import TensorProgram

MOST_OPS = 40
"""Operations that a reader may do once more."""

Steps = Sequence[FusionGroup | LibraryCall]


def rematerialize(context: PassContext, program: TensorProgram) -> tuple[TensorProgram, int]:
    """Begin anew without memory for values whose readers had better compute them."""
    again = _computed_again(*program.planned(), context.limits)
    made = TensorProgram(program.graph, again=again, rival=program)
    return (made, len(again)) if again else (program, 0)


def keep_cheaper(context: PassContext, program: TensorProgram) -> tuple[TensorProgram, int]:
    """Go back to the plan before that, unless the loops of this one move less."""
    rival = program.rival
    if rival is None or _moved(*program.planned()) < _moved(*rival.planned()):
        return replace(program, rival=None), 0
    return rival, len(program.again)


def _computed_again(plan: MaterializationPlan, steps: Steps, limits: Limits) -> frozenset[Node]:
    groups = [step for step in steps if isinstance(step, FusionGroup)]
    needed, readers = _seen_outside(plan), _readers(groups)
    return frozenset(
        anchor.node
        for group in groups
        for anchor in group.members
        if anchor.node not in needed
        and _is_cheap(anchor, limits)
        and _saves(plan, anchor, group, readers, needed)
    )


def _moved(plan: MaterializationPlan, steps: Steps) -> int:
    """Bytes that the loops read and write."""
    groups = [step for step in steps if isinstance(step, FusionGroup)]
    needed, readers = _seen_outside(plan), _readers(groups)
    total = 0
    for group in groups:
        own = group.nodes()
        total += sum(size for node, size in group.reads.items() if node not in own)
        total += sum(
            _size(node)
            for node in own
            if node in needed or any(other is not group for other in readers.get(node, ()))
        )
    return total


def _readers(groups: list[FusionGroup]) -> dict[Node, list[FusionGroup]]:
    """The loops that read each value."""
    readers: dict[Node, list[FusionGroup]] = {}
    for group in groups:
        for node in group.reads:
            readers.setdefault(node, []).append(group)
    return readers


def _size(node: Node) -> int:
    return hint(node.numel) * node.dtype.itemsize


def _is_cheap(anchor: ComputedBuffer, limits: Limits) -> bool:
    node = anchor.node
    pointwise = isinstance(node.define, Pointwise) and node.device.type in limits.recompute_on
    return pointwise and anchor.ops <= MOST_OPS and all(isinstance(n, int) for n in node.shape)


def _saves(
    plan: MaterializationPlan,
    anchor: ComputedBuffer,
    group: FusionGroup,
    readers: dict[Node, list[FusionGroup]],
    needed: set[Node],
) -> bool:
    """Whether the other loops that read a value read little more if they compute it."""
    node = anchor.node
    others = [other for other in readers.get(node, ()) if other is not group]
    if not others or any(decide_less(node.numel, other.numel) for other in others):
        return False
    for source in anchor.reads:
        kept = source not in plan.anchors or source in needed
        if not kept and all(other is group for other in readers[source]):
            return False  # it would need memory instead
    saved, added = _size(node) * (1 + len(others)), 0
    for other in others:
        own = other.nodes()
        added += sum(
            _size(source)
            for source in anchor.reads
            if source not in other.reads and source not in own
        )
    return 2 * added <= saved


def _seen_outside(plan: MaterializationPlan) -> set[Node]:
    """What library calls, checks and callers see: it has memory in any case."""
    seen = {operand.node for operand in plan.outputs if isinstance(operand, StorageView)}
    seen.update(plan.checks)
    for item in plan.order:
        if isinstance(item, LibraryCall):
            seen.update(operands_of(plan, item))
    return seen
