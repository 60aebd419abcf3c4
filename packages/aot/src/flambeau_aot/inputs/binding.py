"""Binding of a program's arguments to graph inputs.

In: a program and its example inputs. Out: the primals with an `InputPlan`; once there are stand-ins
for the primals, the values to run the program on.
Invariant: one tensor given twice is one primal; arguments that share memory are parts of one primal
exactly if they are in `overlapping`.

Specs of tensor subclasses: what one consists of, and how it is put together. In: tensors that have
`__tensor_flatten__`. Out: `SubclassSpec`; the plain tensors in a subclass, and a subclass of such
tensors. Invariant: what in it is no tensor stays the same object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    FakeTensor,
    again_alike,
    current_value,
    expression_of,
    flattens,
    is_conj_or_neg,
    is_functional,
    storage_key,
)
from flambeau_aot.inputs.functional_inputs import InputFacts, base_for, merge
from flambeau_aot.joint.program import InputProgram
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import InputPlan, Member, Merged, SymbolPlace
from flambeau_aot.sizes import is_symbolic, symbols_of


@dataclass(frozen=True)
class SyntheticBaseView:
    """A member of a base while the program is traced: a view of the base's stand-in.

    base, primal: what the base and the member count as among the primals.
    """

    base: int
    wrapper: torch.Tensor
    primal: int
    member: Member
    merged: Merged
    version: int
    requires_grad: bool

    @property
    def facts(self) -> InputFacts:
        """As of an input; nothing accumulates gradients in a view of a base."""
        return InputFacts(part=True, requires_grad=self.requires_grad, is_leaf=False)


class WritesOverlap(Exception):
    """The program writes to one of these arguments, which share memory; trace it again."""

    def __init__(self, storage: int) -> None:
        super().__init__(storage)
        self.storage = storage


def bind_inputs(
    program: InputProgram, inputs: Sequence[Any], overlapping: frozenset[int] = frozenset()
) -> tuple[list[torch.Tensor], InputPlan]:
    """The distinct tensors the graph takes, and how arguments map to them.

    overlapping: storages whose arguments are to be taken as parts of one base.
    """
    primals = list(program.static)
    known: dict[int, Any] = {id(tensor): index for index, tensor in enumerate(primals)}
    positions: list[int] = []
    literals: list[tuple[int, Any]] = []
    repeated: list[tuple[int, Any]] = []
    parts: dict[int, list[int]] = {}
    for position, value in enumerate(inputs):
        if is_symbolic(value):
            raise refusal("AO0001", position=position)
        if not isinstance(value, torch.Tensor):
            if not (program.symbolic and is_symbolic(program.symbolic[position])):
                literals.append((position, value))
        elif id(value) in known:
            repeated.append((position, known[id(value)]))
        elif overlapping and storage_key(value) in overlapping:
            group = parts.setdefault(storage_key(value), [])
            known[id(value)] = (storage_key(value), len(group))
            group.append(position)
        else:
            known[id(value)] = len(primals)
            primals.append(value)
            positions.append(position)
    for tensor in (*primals, *(inputs[place] for group in parts.values() for place in group)):
        _refuse_kind(tensor)
    if parts and program.symbolic:
        raise refusal("AO0002")
    merged, first_of = _merged(program, inputs, parts, len(primals))
    primals.extend(base_for(item, inputs) for item in merged)
    duplicates = tuple(
        (position, where if isinstance(where, int) else first_of[where[0]] + where[1])
        for position, where in repeated
    )
    plan = InputPlan(
        len(program.static),
        tuple(positions),
        duplicates,
        tuple(literals),
        merged,
        _symbol_places(program.symbolic),
    )
    return primals, plan


def _symbol_places(symbolic: Sequence[Any]) -> tuple[SymbolPlace, ...]:
    """Where each symbol of the inputs is found, in the order of `symbols_of`."""
    places: dict[Any, SymbolPlace] = {}
    for position, value in enumerate(symbolic):
        if isinstance(value, torch.Tensor):
            for stride, sizes in ((False, value.shape), (True, value.stride())):
                for dim, size in enumerate(sizes):
                    if isinstance(size, torch.SymInt):
                        place = SymbolPlace(position, dim, stride)
                        places.setdefault(expression_of(size), place)
        elif isinstance(value, torch.SymInt | torch.SymFloat):
            places[expression_of(value)] = SymbolPlace(position, None)
    wanted = symbols_of(symbolic)
    if missing := [symbol for symbol in wanted if symbol not in places]:
        raise refusal("AO0003", missing=missing[0])
    return tuple(places[symbol] for symbol in wanted)


def _merged(
    program: InputProgram, inputs: Sequence[Any], parts: dict[int, list[int]], bound: int
) -> tuple[tuple[Merged, ...], dict[int, int]]:
    """The bases, and the primal that the first member of each storage counts as."""
    own = {storage_key(tensor): name for tensor, name in zip(program.static, program.static_names)}
    first_of: dict[int, int] = {}
    merged: list[Merged] = []
    following = bound + len(parts)
    for storage, positions in parts.items():
        if storage in own:
            raise refusal("AO0004", positions=positions, own=own[storage])
        merged.append(merge(positions, [inputs[position] for position in positions]))
        first_of[storage] = following
        following += len(positions)
    return tuple(merged), first_of


def _refuse_kind(tensor: torch.Tensor) -> None:
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise refusal("AO0005", layout=tensor.layout, dtype=tensor.dtype)
    if is_conj_or_neg(tensor):
        raise refusal("AO0006")
    if tensor._is_zerotensor():
        raise refusal("AO0007")
    plain = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)
    if type(tensor) not in plain:
        raise refusal("AO0008", kind=type(tensor).__name__)


def parts_of(plan: InputPlan, values: Sequence[torch.Tensor]) -> list[SyntheticBaseView]:
    """The members of every base as views of the base; `values` are by primal."""
    parts: list[SyntheticBaseView] = []
    first = plan.static + len(plan.primals)
    for index, merged in enumerate(plan.merged):
        whole = values[first + index]
        roots: dict[tuple[int, bool], torch.Tensor] = {}
        viewed = {member.counter for member in merged.members if member.is_view}
        for member in merged.members:
            view = member.is_view
            kind = (member.counter, view)
            # A detached view is made without autograd too. One that shares the counter of views is
            # made here: autograd is to see writes to what it has saved. It is detached last, since
            # functionalization follows no writes through a strided view of another view.
            shared = not view and member.counter in viewed
            root = roots.setdefault(kind, whole if view or shared else whole.data)
            if member.whole:
                part = root
            else:
                # Without autograd, grad mode says only whether the view may be written to later.
                with torch.set_grad_enabled(member.recorded or not root.requires_grad):
                    offset = member.offset - (0 if merged.own else merged.offset)
                    part = root.as_strided(member.size, member.stride, offset)
                part = part.detach() if shared else part
            parts.append(
                SyntheticBaseView(
                    first + index,
                    part,
                    plan.bound + len(parts),
                    member,
                    merged,
                    part._version,
                    part.requires_grad,
                )
            )
    return parts


def arguments(
    plan: InputPlan,
    values: Sequence[torch.Tensor],
    count: int,
    parts: Sequence[SyntheticBaseView] = (),
    symbolic: Sequence[Any] = (),
) -> list[Any]:
    """What the program is run on, by argument position; `values` are by primal, `symbolic` holds
    the open numbers."""
    args: list[Any] = [None] * count
    for offset, position in enumerate(plan.primals):
        args[position] = values[plan.static + offset]
    for part in parts:
        args[part.member.position] = part.wrapper
    for position, primal in plan.duplicates:
        args[position] = values[primal]
    for position, value in plan.literals:
        args[position] = value
    for position, value in enumerate(symbolic):
        if is_symbolic(value):
            args[position] = value
    return args


@dataclass(frozen=True)
class SubclassSpec:
    """How a subclass is put together: its class, the names and specs of its parts, its context.

    A part that is a plain tensor has no spec. others: what it consists of besides tensors, by name:
    objects that are as they are, such as a mesh of devices.
    """

    cls: type
    names: tuple[str, ...]
    parts: tuple[SubclassSpec | None, ...]
    context: Any
    size: tuple[int, ...]
    stride: tuple[int, ...]
    others: tuple[tuple[str, Any], ...] = ()

    @property
    def count(self) -> int:
        """How many plain tensors there are in it."""
        return sum(1 if part is None else part.count for part in self.parts)


def spec_of(value: torch.Tensor) -> SubclassSpec:
    """The spec of a subclass."""
    named, context = value.__tensor_flatten__()  # type: ignore[attr-defined]
    inner = {name: getattr(value, name) for name in named}
    tensors = {name: item for name, item in inner.items() if isinstance(item, torch.Tensor)}
    parts = tuple(spec_of(item) if flattens(item) else None for item in tensors.values())
    size, stride = tuple(value.shape), tuple(value.stride())
    others = tuple((name, item) for name, item in inner.items() if name not in tensors)
    return SubclassSpec(type(value), (*tensors,), parts, context, size, stride, others)


def plain_tensors(value: Any, spec: SubclassSpec) -> list[torch.Tensor]:
    """The plain tensors in a subclass, in order."""
    if is_functional(value):
        # An operator of a subclass and a plain tensor was functionalized around the subclass.
        value = current_value(value)
    if type(value) is not spec.cls:
        raise refusal("AO0020", cls=spec.cls.__name__, kind=type(value).__name__)
    found: list[torch.Tensor] = []
    for name, part in zip(spec.names, spec.parts, strict=True):
        inner = getattr(value, name)
        found.extend([inner] if part is None else plain_tensors(inner, part))
    return found


def grouped(
    specs: Sequence[SubclassSpec | None],
    values: Sequence[Any],
    carried: Mapping[int, Sequence[Any]] = MappingProxyType({}),
) -> Iterator[tuple[SubclassSpec | None, list[Any]]]:
    """Each spec with the plain values that are its own, and the carriers after them."""
    remaining = iter(values)
    for place, spec in enumerate(specs):
        more = len(carried.get(place, ()))
        yield spec, list(islice(remaining, 1 if spec is None else spec.count + more))


def put_together(spec: SubclassSpec, inner: Sequence[torch.Tensor]) -> Any:
    """A subclass of these plain tensors."""
    made = {
        name: own[0] if part is None else put_together(part, own)
        for name, (part, own) in zip(spec.names, grouped(spec.parts, inner), strict=True)
    }
    if (again := spec.__dict__.get(_AGAIN)) is not None:
        return again(made)
    made.update(spec.others)
    build: Any = spec.cls
    whole = build.__tensor_unflatten__(made, spec.context, spec.size, spec.stride)
    spec.__dict__[_AGAIN] = again_alike(whole)
    return whole


_AGAIN = "_again"
"""Where a spec keeps how its class is put together again."""
