"""Values that cross from a compiled forward graph to its backward graph, in the form it takes.

In: facts of a cut; cotangents as autograd gives them. Out: frozen data for the autograd function;
cotangents, flags and sparse gradients in the form that the graphs take and give.
Invariant: a compiled graph is given plain tensors of the traced layout alone; it is run once for
each sample of a batch that `vmap` hides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.autograd import forward_ad

from flambeau_aot._torch_compat import batch_of
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.ambient_state import Streams
from flambeau_aot.runtime.result_nodes import Request
from flambeau_aot.runtime_plan import InsideView, LateWrite, Presence, Saved, SparseGrad, Watched
from flambeau_aot.sizes import Sized


@dataclass(frozen=True)
class TangentLayout:
    """What the backward graph was traced with for one cotangent.

    sized: for symbolic sizes, from the symbols' values to shape and stride.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    sized: Sized | None = None

    def at(self, symbols: Sequence[int]) -> TangentLayout:
        """The layout for these values of the symbols."""
        if self.sized is None:
            return self
        shape, stride = self.sized(symbols)
        return TangentLayout(shape, stride, self.dtype, self.device)


@dataclass(frozen=True)
class Crossing:
    """What the autograd function needs to know besides the two callables.

    visible: number of forward outputs handed on; the saved ones follow. grads: for each primal, the
    position of its gradient among the backward outputs, or None. reusable: positions of backward
    inputs that the backward graph may overwrite. tangents_of: for each primal, which tangents its
    gradient depends on. A gradient whose tangents are all undefined is undefined, as in eager, and
    not zero. readers_of: for each saved value, the tangents it is read for; one that is read for
    undefined ones alone may have been written to. symbols: how many of the primals, the last ones,
    are values of symbols; both graphs take them. handed: visible outputs without a gradient that
    are results, or that results are views of. inside: views that the function makes itself;
    `differentiable` counts them after the visible. late: primals that the backward graph takes,
    after the flags, as they are when it is run, and where `grads` has the places of their new
    values. presences: what the flags say that the backward graph takes after the cotangents.
    watched: what is not saved and must not be written to before the backward pass all the same.
    changed: primals that the call itself changes when the forward graph has run. depended: results
    through which the gradients of others go, by place, with the cotangents that are their own.
    reentrant: tangents that lead to a checkpoint with use_reentrant=True. linear: whether gradients
    are linear in the cotangents. sparse: gradients that are made of two results of the backward
    graph; `grads` goes on after the primals with the places of the second ones.
    """

    visible: int
    differentiable: tuple[int, ...]
    saved: tuple[Saved, ...]
    grads: tuple[int | None, ...]
    tangents: tuple[TangentLayout, ...]
    reusable: tuple[int, ...]
    tangents_of: tuple[frozenset[int], ...]
    symbols: int = 0
    sparse: tuple[SparseGrad, ...] = ()
    readers_of: tuple[frozenset[int], ...] = ()
    presences: tuple[Presence, ...] = ()
    handed: tuple[int, ...] = ()
    inside: tuple[InsideView, ...] = ()
    late: tuple[LateWrite, ...] = ()
    watched: tuple[Watched, ...] = ()
    changed: frozenset[int] = frozenset()
    depended: tuple[tuple[int, int | None], ...] = ()
    reentrant: frozenset[int] = frozenset()
    linear: bool = True

    @property
    def once(self) -> bool:
        """Whether the backward part must run once for all gradients of a backward pass."""
        return bool(self.late) or not self.linear

    @property
    def watched_after(self) -> tuple[int, ...]:
        """Primals to be watched from the end of the call on, which changes them."""
        inputs = (item.source for item in self.watched if item.source.kind == "input")
        return tuple(item.index for item in inputs if item.index in self.changed)


@dataclass(frozen=True)
class HigherOrder:
    """What derivatives of higher order read, and the callable that gives them.

    read: primals whose values the gradients depend on. static: primals below this position are
    bound to the derivative. draws: devices whose random streams the forward graph draws on.
    refusal: why there is no derivative, "" where there is one. kept: primals, static ones too, of
    which they read what they were before the call.
    """

    read: tuple[int, ...]
    static: int
    draws: tuple[torch.device, ...]
    refusal: str
    kept: tuple[int, ...] = ()
    call: HigherCall | None = field(default=None, compare=False)


class HigherCall(Protocol):
    """Gradients from primals and cotangents, as part of the autograd graph if grad is enabled;
    request: what is wanted where results depend on others. main: the node of the call, where its
    backward part must run once for all gradients of a backward pass."""

    def __call__(
        self,
        read: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        streams: Streams,
        symbols: Sequence[int] = (),
        request: Request | None = None,
        main: Any = None,
    ) -> Sequence[torch.Tensor | None]: ...


def as_traced(value: torch.Tensor | None, layout: TangentLayout) -> torch.Tensor:
    """A cotangent in the layout the backward graph expects; zeros where there is none."""
    if value is None:
        zeros = torch.empty_strided(
            layout.shape, layout.stride, dtype=layout.dtype, device=layout.device
        )
        return zeros.zero_()
    value = value.resolve_conj().resolve_neg()
    if value.layout == torch.strided and value.dtype == layout.dtype:
        if value.stride() == layout.stride:
            return value
    elif value.layout != torch.strided:
        value = value.to_dense()
    result = torch.empty_strided(
        layout.shape, layout.stride, dtype=layout.dtype, device=layout.device
    )
    return result.copy_(value)


class DeviceFlags:
    """True and false on a device, made at their first use."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.made: dict[bool, torch.Tensor] = {}

    def __getitem__(self, value: bool) -> torch.Tensor:
        flag = self.made.get(value)
        if flag is None:
            flag = self.made[value] = torch.full((), value, dtype=torch.bool, device=self.device)
        return flag


def harmless(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor laid out as this one, of numbers no operator has a pole at; indices are 0."""
    real = tensor.is_floating_point() or tensor.is_complex()
    layout = (tuple(tensor.shape), tuple(tensor.stride()))
    made = torch.empty_strided(*layout, dtype=tensor.dtype, device=tensor.device)
    return made.fill_(0.4375 if real else 0)


def without_tangents(cotangents: Sequence[torch.Tensor | None]) -> None:
    """Raise AotError where forward-mode differentiation would lose the tangent of one of them."""
    for item in cotangents:
        if item is not None and forward_ad.unpack_dual(item).tangent is not None:
            raise refusal("AO0155")


Backward = Callable[..., Sequence[torch.Tensor | None]]


def over_samples(
    run: Backward, ctx: Any, cotangents: Sequence[torch.Tensor | None]
) -> Sequence[torch.Tensor | None]:
    """The gradients for each sample, put together again; `run` must leave what was saved."""
    batch = batch_of([item for item in cotangents if item is not None])
    if batch is None:
        return run(ctx, *cotangents)
    shown = [None if item is None else batch.shown(item) for item in cotangents]
    samples = [
        over_samples(run, ctx, [None if item is None else _sample(item, n) for item in shown])
        for n in range(max(batch.size, 1))
    ]
    return tuple(
        None if column[0] is None else batch.hidden(torch.stack(column)[: batch.size])
        for column in zip(*samples, strict=True)
    )


def _sample(batch: torch.Tensor, place: int) -> torch.Tensor:
    """One of them; where there is none, zeros of which only the shapes of gradients are wanted."""
    return batch[place] if len(batch) else batch.new_zeros(batch.shape[1:])


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
