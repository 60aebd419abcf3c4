"""Values that cross from a compiled forward graph to its backward graph, in the form it takes.

In: facts of a cut; cotangents as autograd gives them. Out: frozen data for the autograd function;
cotangents, flags and sparse gradients in the form that the graphs take and give.
Invariant: a compiled graph is given plain tensors of the traced layout alone; it is run once for
each sample of a batch that `vmap` hides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import ref

import torch
from torch.autograd import forward_ad

from flambeau_aot.inputs.memory_overlap import reach
from flambeau_aot.runtime.ambient_state import Streams
from flambeau_aot.runtime.pullbacks import Gradient
from flambeau_aot.runtime.result_nodes import Request
from flambeau_aot.runtime_plan import LateWrite, Presence, Saved, SparseGrad
from flambeau_aot.sizes import TensorLayout

T = TypeVar("T")


@dataclass(frozen=True)
class Crossing:
    """What the autograd function needs to know of a cut besides the plan and the two callables.

    grads: for each primal, the position of its gradient among the backward outputs, or None.
    reusable: positions of backward inputs that the backward graph may overwrite. tangents_of: for
    each primal, which tangents its gradient depends on. A gradient whose tangents are all undefined
    is undefined, as in eager, and not zero. readers_of: for each saved value, the tangents it is
    read for; one that is read for undefined ones alone may have been written to. late: primals that
    the backward graph takes, after the flags, as they are when it is run, and where `grads` has the
    places of their new values. presences: what the flags say that the backward graph takes after
    the cotangents. sparse: gradients that are made of two results of the backward graph; `grads`
    goes on after the primals with the places of the second ones. parts: primals whose gradient
    is a part of a larger value's memory. sizes: what cotangents' layouts depend on, after the
    symbols of the inputs: sizes and strides of the forward graph's outputs that depend on data,
    each an output, a dimension and whether it is a stride. remade: saved values from which the
    backward graph makes what eager keeps as it was: an assignment to `.data` would change it.
    """

    saved: tuple[Saved, ...]
    grads: tuple[int | None, ...]
    tangents: tuple[TensorLayout, ...]
    reusable: tuple[int, ...]
    tangents_of: tuple[frozenset[int], ...]
    readers_of: tuple[frozenset[int], ...] = ()
    sparse: tuple[SparseGrad, ...] = ()
    presences: tuple[Presence, ...] = ()
    late: tuple[LateWrite, ...] = ()
    parts: frozenset[int] = frozenset()
    sizes: tuple[tuple[int, int, bool], ...] = ()
    remade: tuple[int, ...] = ()

    def defined(self, gradients: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients, None where no defined cotangent reaches."""
        missing = {index for index, item in enumerate(given) if item is None}
        return tuple(
            None if needed and needed <= missing else gradient
            for gradient, needed in zip(gradients, self.tangents_of, strict=True)
        )

    def by_primal(self, found: Sequence[T]) -> list[T | None]:
        """What is known of the gradients, for the primals that have one; None for the others."""
        each = iter(found)
        places = self.grads[: len(self.tangents_of)]
        return [None if place is None else next(each) for place in places]


@dataclass(frozen=True)
class HigherOrder:
    """What derivatives of higher order read, and the callable that gives them.

    read: primals whose values the gradients depend on. static: primals below this position are
    bound to the derivative. draws: devices whose random streams the forward graph draws on.
    refusal: why there is no derivative, "" where there is one. unrepeatable: why the program cannot
    be run again for gradients that are not differentiated in turn. kept: primals, static ones too,
    of which they read what they were before the call. layouts: how eager lays out the gradients for
    cotangents that are laid out otherwise than was traced.
    """

    read: tuple[int, ...]
    static: int
    draws: tuple[torch.device, ...]
    refusal: str
    unrepeatable: str = ""
    kept: tuple[int, ...] = ()
    call: HigherCall | None = field(default=None, compare=False)
    layouts: Layouts | None = field(default=None, compare=False)

    @property
    def handed(self) -> tuple[int, ...]:
        """Those of the primals read that a call hands over."""
        return tuple(x for x in self.read if x >= self.static or x in self.kept)


@dataclass(frozen=True)
class DerivativeCall:
    """What a derivative of higher order is given in one backward pass.

    read: the primals that are handed over, with their history. streams: the random streams as they
    were before the program ran. symbols: values of the open sizes. layouts: those that cotangents
    were traced with. request: what is wanted where results depend on others. main: the node of the
    call, where its backward part must run once for all gradients of a backward pass.
    """

    read: Sequence[torch.Tensor]
    cotangents: Sequence[Gradient]
    streams: Streams
    symbols: Sequence[int] = ()
    layouts: Sequence[TensorLayout] = ()
    request: Request | None = None
    main: Any = None


def memory(tensor: torch.Tensor) -> tuple[ref[torch.UntypedStorage], tuple[int, ...]]:
    """Where in memory a tensor lies, which is the same object while that is there, and how."""
    return ref(tensor.untyped_storage()), tensor.stride()


def of_memory(memory: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """A tensor of memory that an input had at the call, with the history of the input."""
    if not given.requires_grad or memory.data_ptr() == given.data_ptr():
        return given if given.requires_grad else memory
    with torch.enable_grad():
        own: torch.Tensor = _OfMemory.apply(memory, given)  # type: ignore[no-untyped-call]
    return own


class _OfMemory(torch.autograd.Function):
    """Of an input whose data was replaced, what it was before."""

    @staticmethod
    def forward(ctx: Any, memory: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        return memory.detach()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, grads[0]


@dataclass(frozen=True)
class Place:
    """Where a gradient lies: its strides; the first of the gradients that it shares memory with, or
    the complement of the cotangent's number that it is a view of; how many elements that memory
    has, None where only the strides are known; where its own begin there, or from the cotangent's
    first on."""

    stride: tuple[int, ...]
    owner: int
    size: int | None = None
    offset: int = 0


GradientLayout = Place | int | None
"""Of a gradient: where it lies, or which cotangent it is; None where there is none."""

Layouts = Callable[[Sequence[Gradient], Sequence[int]], Sequence[GradientLayout]]
"""From cotangents and the values of open sizes to those of the primals that have a gradient; ()
where it is not known."""

HigherCall = Callable[[DerivativeCall], Sequence[Gradient]]
"""Gradients of the primals that have one, as part of the autograd graph if grad is enabled."""


def as_traced(value: torch.Tensor | None, layout: TensorLayout) -> torch.Tensor:
    """A cotangent in the layout the backward graph expects; zeros where there is none."""
    if value is None:
        return layout.empty().zero_()
    value = _in_memory(value)
    if value.layout == torch.strided and value.dtype == layout.dtype:
        if value.stride() == layout.stride:
            return value
    elif value.layout != torch.strided:
        value = value.to_dense()
    return layout.empty().copy_(value)


def as_it_lies(value: torch.Tensor | None, layout: TensorLayout) -> torch.Tensor | None:
    """A cotangent as it is, where only its strides are others than those of the traced one."""
    if value is None or (value.layout == torch.strided and value.dtype == layout.dtype):
        return value if value is None else _in_memory(value)
    return as_traced(value, layout)


def _in_memory(value: torch.Tensor) -> torch.Tensor:
    """The same value as it stands in memory: no conjugation or negation is left to do, and zeros
    are there (some of torch's derivatives give zeros without any)."""
    return (value.clone() if value._is_zerotensor() else value).resolve_conj().resolve_neg()


def laid_as(
    found: Sequence[Gradient], places: Sequence[GradientLayout], given: Sequence[Gradient]
) -> tuple[Gradient, ...]:
    """The gradients, or the cotangents that they are, where they lie; elements that strides repeat
    are equal."""
    pairs = list(zip(found, places, strict=True))
    moved = {p.owner for x, p in pairs if isinstance(p, Place) and not (x is None or _lies(x, p))}
    memories: dict[int, torch.Tensor] = {}
    made: dict[Any, Gradient] = {}

    def laid(value: Gradient, place: GradientLayout) -> Gradient:
        if isinstance(place, int):
            return given[place]
        if value is None or place is None:
            return value
        if place.owner not in moved:
            same = value.stride() == place.stride  # but of dimensions of one
            return value if same else value.detach().as_strided(value.shape, place.stride)
        key = id(value), place
        if key not in made:
            made[key] = _laid(value, place, memories, given)
        return made[key]

    return tuple(laid(value, place) for value, place in pairs)


def _laid(
    value: torch.Tensor, place: Place, memories: dict[int, torch.Tensor], given: Sequence[Gradient]
) -> torch.Tensor:
    whole = given[~place.owner] if place.owner < 0 else memories.get(place.owner)
    if place.owner < 0 and whole is not None:
        return whole.as_strided(value.shape, place.stride, whole.storage_offset() + place.offset)
    if whole is None:
        size = reach(value.shape, place.stride) if place.size is None else place.size
        whole = memories[place.owner] = value.new_empty(size)
    found = part = whole.as_strided(value.shape, place.stride, place.offset)
    for dim, (size, step) in enumerate(zip(value.shape, place.stride, strict=True)):
        if size > 1 and step == 0:
            part, value = part.narrow(dim, 0, 1), value.narrow(dim, 0, 1)
    part.copy_(value)
    return found if place.size is not None and found.numel() < place.size else found.detach()


def _lies(value: torch.Tensor, place: Place) -> bool:
    """Whether a gradient lies there already."""
    if not value.numel():
        return True
    count = value.untyped_storage().nbytes() // value.element_size()
    pairs = zip(value.shape, value.stride(), place.stride, strict=True)
    same = all(size == 1 or own == other for size, own, other in pairs)
    own = place.owner >= 0 and (count, value.storage_offset()) == (place.size, place.offset)
    return same and (own or place.size is None)


class DeviceFlags(dict[bool, torch.Tensor]):
    """True and false on a device, made at their first use."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __missing__(self, value: bool) -> torch.Tensor:
        flag = self[value] = torch.full((), value, dtype=torch.bool, device=self.device)
        return flag


@dataclass(frozen=True)
class Freed:
    """What is known of a saved tensor that a backward pass has freed, and another one need not
    read."""

    layout: TensorLayout
    requires_grad: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Freed:
        """The same of a tensor that is about to be freed."""
        return cls(TensorLayout.of(tensor), tensor.requires_grad)

    def stand_in(self) -> torch.Tensor:
        """A tensor to be given in its place."""
        return self.layout.empty().zero_().requires_grad_(self.requires_grad)


def harmless(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor laid out as this one, of numbers no operator has a pole at; indices are 0."""
    real = tensor.is_floating_point() or tensor.is_complex()
    return TensorLayout.of(tensor).empty().fill_(0.4375 if real else 0)


def have_tangents(cotangents: Sequence[torch.Tensor | None]) -> bool:
    """Whether forward-mode differentiation has put a tangent on one of them."""
    known = (item for item in cotangents if item is not None)
    return any(forward_ad.unpack_dual(item).tangent is not None for item in known)


def assembled(spec: SparseGrad) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The function that makes the sparse gradient of values and indices."""

    def make(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        if spec.padding is not None:
            kept = rows != spec.padding
            rows, values = rows[kept], values[kept]
        return torch.sparse_coo_tensor(
            rows[None], values, spec.size, check_invariants=False, is_coalesced=False
        )

    return make
