"""Runtime prologue: the caller's arguments to graph inputs.

In: the positional arguments of a call. Out: the list of primals, values of symbols last, and after
them those arguments that are parts of a primal (`RuntimePlan.inputs.bound` says where they begin).
Invariant: arguments that were one tensor when traced are one tensor now, and an argument the
program writes to shares memory with those it did then; else `AliasingChanged` is raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from flambeau_aot._torch_compat import base_of, lie_at, storage_key
from flambeau_aot.errors import AliasingChanged, AotError
from flambeau_aot.inputs.functional_inputs import base_for
from flambeau_aot.inputs.memory_overlap import in_anothers_memory
from flambeau_aot.runtime.unneeded_derivatives import none_of_a_user
from flambeau_aot.runtime_plan import RuntimePlan

Prologue = Callable[[Sequence[Any]], list[Any]]


@dataclass(frozen=True)
class BoundPlan:
    """A plan, the tensors that it is bound to, and how many arguments a call has."""

    plan: RuntimePlan
    static: Sequence[torch.Tensor]
    arguments: int


def prologue(bound: BoundPlan, *, in_place: bool = False) -> Prologue:
    """Build the function that binds arguments; `in_place`: static tensors may be written to by the
    graph itself, and must not be arguments besides."""
    plan, held, arguments = bound.plan, list(bound.static), bound.arguments
    positions = plan.inputs.primals
    own = alone(held) if in_place else frozenset[int]()
    written = tuple(
        item.primal for item in plan.updates if item.primal >= len(held) or item.primal in own
    )
    straight = positions == tuple(range(arguments))
    symbols = plan.inputs.symbols
    checks = _checks(plan, written)
    merged = plan.inputs.merged

    def bind(args: Sequence[Any]) -> list[Any]:
        if len(args) != arguments:
            raise TypeError(f"the compiled graph takes {arguments} inputs, not {len(args)}")
        primals = [*held, *args] if straight else [*held, *[args[p] for p in positions]]
        for base in merged:
            primals.append(base_for(base, args))
        for symbol in symbols:
            primals.append(symbol.read(args[symbol.position]))
        for check in checks:
            check(args, primals)
        for base in merged:
            primals.extend(args[member.position] for member in base.members)
        return primals

    return bind


Pairs = Sequence[tuple[int, Any]]
Check = Callable[[Sequence[Any], list[torch.Tensor]], None]


def _checks(plan: RuntimePlan, written: tuple[int, ...]) -> list[Check]:
    inputs, bound = plan.inputs, plan.inputs.bound
    recorded = [item.primal for item in plan.updates if item.differentiable]
    depended = [~place for place in plan.depended if place < 0]
    shapes = [shape.primal for shape in plan.reshapes]
    raised = frozenset(p for p in (*plan.touched, *shapes) if p < bound)
    begin = [primal for primal in (*plan.begin_grad, *plan.end_grad) if primal < bound]
    partly = plan.partly_given
    checks = (
        (inputs.duplicates, partial(_same_tensors, inputs.duplicates, _places(plan))),
        (inputs.literals, partial(_same_literals, inputs.literals)),
        (plan.offsets, partial(_same_offsets, plan.offsets)),
        (written, _once_a_place(written, sizes_vary=bool(inputs.symbols))),
        (partly, lambda args, primals: none_of_a_user(partly, primals)),
        (depended, _none_of(depended, lambda x: x.retains_grad, "keeps its gradient")),
        (recorded, _none_of(recorded, _may_not_be_written, "is a leaf now")),
        (raised, partial(_counters_are_own, raised, raised.union(plan.beside))),
        (begin, partial(_no_view_of, begin)),
    )
    return [check for concerned, check in checks if concerned]


def _places(plan: RuntimePlan) -> dict[int, int]:
    """The argument that each primal is."""
    inputs = plan.inputs
    places = {inputs.static + index: p for index, p in enumerate(inputs.primals)}
    members = [member for base in inputs.merged for member in base.members]
    places |= {inputs.bound + index: member.position for index, member in enumerate(members)}
    return places


def _same_tensors(
    duplicates: Pairs, places: dict[int, int], args: Sequence[Any], primals: list[torch.Tensor]
) -> None:
    for position, primal in duplicates:
        if primal in places and args[position] is not args[places[primal]]:
            raise AliasingChanged(f"argument {position} was the same tensor as another when traced")


def _same_literals(literals: Pairs, args: Sequence[Any], primals: list[torch.Tensor]) -> None:
    for position, value in literals:
        given = args[position]
        if given is not value and (type(given) is not type(value) or given != value):
            raise AotError(f"argument {position} was {value!r} when traced, now {given!r}")


def _same_offsets(offsets: Pairs, args: Sequence[Any], primals: list[torch.Tensor]) -> None:
    for primal, offset in offsets:
        if primals[primal].storage_offset() != offset:
            raise AliasingChanged(
                f"input {primal} starts elsewhere in its storage than when traced"
            )


def _none_of(places: Sequence[int], wrong: Callable[[Any], bool], words: str) -> Check:
    """A check of inputs, of those parts of one left out that come after the bound ones."""

    def check(args: Sequence[Any], primals: list[torch.Tensor]) -> None:
        for primal in places:
            if primal < len(primals) and wrong(primals[primal]):
                raise AliasingChanged(f"input {primal} is written to, and {words}")

    return check


def _may_not_be_written(primal: torch.Tensor) -> bool:
    """Eager raises at a write to a leaf that requires grad, when it has done what comes before."""
    return primal.is_leaf and primal.requires_grad


def alone(static: Sequence[torch.Tensor]) -> frozenset[int]:
    """Places of the tensors that share memory with no other of them."""
    keys = [storage_key(tensor) for tensor in static]
    often = Counter(keys)
    return frozenset(place for place, each in enumerate(keys) if often[each] == 1)


def _once_a_place(written: tuple[int, ...], sizes_vary: bool) -> Check:
    """`_no_overlap`, of what is elsewhere than at the call before: two of the same sizes that did
    not overlap where they are do not, whatever storage they belong to."""
    if sizes_vary:
        return lambda args, primals: _no_overlap(written, primals)
    seen: list[int] = []
    tensors: list[int] = []

    def check(args: Sequence[Any], primals: list[torch.Tensor]) -> None:
        if seen and lie_at(primals, seen, tensors):
            return
        here = [each.data_ptr() if isinstance(each, torch.Tensor) else 0 for each in primals]
        pairs = enumerate(zip(here, seen, strict=False))
        moved = {place for place, (now, then) in pairs if now != then}
        others = range(len(here)) if not seen or moved.intersection(written) else moved
        _no_overlap(written, primals, others)
        seen[:] = here
        tensors[:] = [at for at, each in enumerate(primals) if isinstance(each, torch.Tensor)]

    return check


def _no_overlap(
    written: tuple[int, ...], primals: Sequence[Any], others: Iterable[int] | None = None
) -> None:
    """Raise AliasingChanged where a written primal shares memory with one of the others, or of
    all."""
    owners: dict[int, int] = {}
    for index in written:
        if (
            primals[index].numel()
            and owners.setdefault(storage_key(primals[index]), index) != index
        ):
            _raise_shared(index)
    beside = range(len(primals)) if others is None else others
    for index in beside:
        tensor = primals[index]
        if isinstance(tensor, torch.Tensor) and tensor.numel():
            owner = owners.get(storage_key(tensor), index)
            if owner != index:
                _raise_shared(owner)
    if (shared := in_anothers_memory(written, beside, primals)) is not None:
        _raise_shared(shared[0])


def _raise_shared(index: int) -> None:
    raise AliasingChanged(f"input {index} is written to and shares memory with another input")


def _counters_are_own(
    raised: frozenset[int], beside: frozenset[int], args: Sequence[Any], primals: Sequence[Any]
) -> None:
    """Whether the version counters that the call raises are those of the traced inputs alone."""
    storages = {storage_key(primals[index]) for index in raised}
    for index, tensor in enumerate(primals):
        if index in beside or not isinstance(tensor, torch.Tensor):
            continue
        if storage_key(tensor) in storages:
            raise AliasingChanged(f"input {index} shares memory with one that is reshaped in place")


def _no_view_of(begin: Sequence[int], args: Sequence[Any], primals: Sequence[Any]) -> None:
    """Whether inputs that begin to require grad in the call take no other input along."""
    bases = {id(primals[index]) for index in begin}
    for index, tensor in enumerate(primals):
        if not isinstance(tensor, torch.Tensor) or base_of(tensor) is tensor:
            continue
        if id(base_of(tensor)) in bases:
            raise AliasingChanged(f"input {index} is a view of one that begins to require grad")
