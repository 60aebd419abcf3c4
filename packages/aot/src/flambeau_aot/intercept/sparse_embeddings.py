"""Embedding calls with sparse gradients, which no graph holds.

In: calls of `embedding` and `embedding_bag` with sparse=True on an input or a parameter. Out: the
same rows, or sums or means of them; after the backward pass, the indices and gradients of the rows
of every such call.
Invariant: a form of which that gradient is not known is refused. Where the weight has a dense
gradient as well, the sum is dense, as in eager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, cast

import torch
from torch import fx
from torch.nn import functional

from flambeau_aot._torch_compat import current_value, flattens, functional_tensor, is_functional
from flambeau_aot.inputs.functional_inputs import FunctionalInput
from flambeau_aot.intercept.registry import Call, Interception, intercept
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import SparseGrad


@dataclass
class Use:
    """One call: the weight's stand-in, the indices, and in the backward pass the rows' gradient."""

    weight: torch.Tensor
    rows: torch.Tensor
    padding: int | None
    grad: torch.Tensor | None = None


@dataclass
class SparseUses:
    """The calls of one trace."""

    uses: list[Use] = field(default_factory=list)

    def embedding(
        self, weight: torch.Tensor, rows: torch.Tensor, padding: int | None
    ) -> torch.Tensor:
        """The rows of a weight, whose gradient is noted here and not passed on."""
        use = Use(weight, rows, padding)
        self.uses.append(use)
        return cast(torch.Tensor, _Rows.apply(weight, rows, use))  # type: ignore[no-untyped-call]

    def bags(
        self,
        weight: torch.Tensor,
        rows: torch.Tensor,
        bags: BagLayout,
        factors: torch.Tensor | None,
    ) -> torch.Tensor:
        """Sums or means of rows of a weight, whose gradient is noted here and not passed on."""
        rows, offsets = _functional(rows), _functional(bags.offsets)
        bags = BagLayout(offsets, bags.mode, bags.padding, bags.last)
        use = Use(weight, rows, bags.padding)
        self.uses.append(use)
        given = (weight, factors, rows, bags, use)
        return cast(torch.Tensor, _Bags.apply(*given))  # type: ignore[no-untyped-call]


def _functional(value: torch.Tensor) -> torch.Tensor:
    """A tensor that the program closes over, as one of the trace."""
    return value if is_functional(value) else functional_tensor(value)


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, rows: torch.Tensor, use: Use) -> torch.Tensor:
        """The rows."""
        ctx.use = use
        return torch.embedding(weight, rows)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[None, None, None]:
        """Note the gradient of the rows."""
        use: Use = ctx.use
        use.grad = grads[0] if use.grad is None else use.grad + grads[0]
        return None, None, None


@dataclass(frozen=True)
class BagLayout:
    """How rows are put together: where each bag begins, "sum" or "mean", and which rows count not.

    last: whether the last offset is the end of the last bag.
    """

    offsets: torch.Tensor
    mode: str
    padding: int | None
    last: bool

    def of_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """The bag that each row is in."""
        starts = self.offsets[:-1] if self.last else self.offsets
        places = torch.arange(rows.shape[0], device=rows.device, dtype=starts.dtype)
        return torch.searchsorted(starts, places, right=True) - 1

    def sizes(self, rows: torch.Tensor) -> torch.Tensor:
        """How many rows count in each bag."""
        sums = torch.cat([torch.zeros_like(rows[:1]), self.counted(rows).cumsum(0)])
        starts = self.offsets[:-1] if self.last else self.offsets
        ends = self.offsets[1:]
        if not self.last:
            ends = torch.cat([ends, torch.full_like(starts[:1], rows.shape[0])])
        return sums.index_select(0, ends) - sums.index_select(0, starts)

    def counted(self, rows: torch.Tensor) -> torch.Tensor:
        """Which rows are none of the padding."""
        every = torch.ones_like(rows, dtype=torch.bool)
        return every if self.padding is None else rows != self.padding


class _Bags(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight: torch.Tensor, factors: Any, rows: torch.Tensor, bags: BagLayout, use: Use
    ) -> torch.Tensor:
        """The sums or means of bags of rows, by torch's own kernel."""
        ctx.use, ctx.bags = use, bags
        ctx.save_for_backward(rows, bags.offsets, *(() if factors is None else (weight, factors)))
        mode = 0 if bags.mode == "sum" else 1
        padding = -1 if bags.padding is None else bags.padding
        made: torch.Tensor = torch.ops.aten._embedding_bag_forward_only.default(
            weight, rows, bags.offsets, False, mode, False, factors, bags.last, padding
        )[0]
        return made

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        """Note the gradient of the rows; pass that of the factors on."""
        use, bags = ctx.use, ctx.bags
        rows, offsets, *weighted = ctx.saved_tensors
        bags = BagLayout(offsets, bags.mode, bags.padding, bags.last)
        own = bags.of_rows(rows)
        grad = grads[0].index_select(0, own)
        of_factors = None
        if bags.mode == "mean":
            grad = grad / bags.sizes(rows).index_select(0, own).clamp(min=1)[:, None]
        if weighted:
            weight, factors = weighted
            of_factors = (grad * weight.detach().index_select(0, rows)).sum(1)
            of_factors = of_factors * bags.counted(rows)
            grad = grad * factors[:, None]
        use.grad = grad if use.grad is None else use.grad + grad
        return None, of_factors, None, None, None


@dataclass(frozen=True)
class SparseGradients:
    """Gradients of a trace: by primal, then the indices of sparse ones."""

    grads: list[torch.Tensor | None]
    rows: list[torch.Tensor]
    sparse: tuple[SparseGrad, ...]


def gathered(
    uses: Sequence[Use], stand_ins: Sequence[FunctionalInput], grads: Sequence[torch.Tensor | None]
) -> SparseGradients:
    """The gradients with those of sparse calls; `grads` are by primal."""
    every, rows, sparse = list(grads), list[torch.Tensor](), list[SparseGrad]()
    for place, item in enumerate(stand_ins):
        own = [use for use in uses if use.weight is item.wrapper and use.grad is not None]
        if not own:
            continue
        width = item.value.shape[1]
        indices = torch.cat([use.rows.reshape(-1) for use in own])
        values = torch.cat([use.grad.reshape(-1, width) for use in own if use.grad is not None])
        paddings = {use.padding for use in own}
        dense = every[place]
        if dense is not None:
            kept = [torch.ones_like(use.rows, dtype=torch.bool) for use in own]
            kept = [
                mask if use.padding is None else use.rows != use.padding
                for mask, use in zip(kept, own, strict=True)
            ]
            mask = torch.cat([one.reshape(-1) for one in kept])[:, None]
            values = torch.where(mask, values, torch.zeros_like(values))
            every[place] = dense.index_add(0, indices, values)
            continue
        if len(paddings) > 1 or not all(isinstance(size, int) for size in item.value.shape):
            raise refusal("AO0096")
        every[place] = values
        size = tuple(item.value.shape)
        sparse.append(SparseGrad(place, len(stand_ins) + len(rows), size, paddings.pop()))
        rows.append(indices)
    return SparseGradients(every, rows, tuple(sparse))


def moved(sparse: Sequence[SparseGrad], start: int, by: int, after: int) -> tuple[SparseGrad, ...]:
    """The same when `by` primals were inserted at `start`, and `after` at the end."""
    return tuple(
        SparseGrad(
            item.primal + (by if item.primal >= start else 0),
            item.rows + by + after,
            item.size,
            item.padding,
        )
        for item in sparse
    )


def nodes_of(found: SparseGradients, node_of: Any) -> tuple[list[fx.Node | None], list[fx.Node]]:
    """The nodes of gradients and of indices."""

    def node(value: torch.Tensor) -> fx.Node:
        plain = current_value(value) if is_functional(value) else value
        if flattens(plain):
            raise refusal("AO0097", kind=type(plain).__name__)
        made: fx.Node = node_of(plain)
        return made

    return [None if g is None else node(g) for g in found.grads], [node(r) for r in found.rows]


@intercept(functional.embedding_bag)
def embedding_bag(trace: Interception, call: Call) -> Any:
    """A bag with a sparse gradient; any other is traced as it is."""
    given = signature(functional.embedding_bag).bind(*call.args, **call.kwargs).arguments
    mode, rows, offsets = given.get("mode", "mean"), given["input"], given.get("offsets")
    if not _wants_sparse(given) or mode == "max":
        return NotImplemented
    weight, factors = given["weight"], given.get("per_sample_weights")
    flat = rows.dim() == 2 and offsets is None
    refused = _unknown_gradient(trace, given)
    refused = refused or (not flat and (offsets is None or rows.dim() != 1))
    refused = refused or (factors is not None and mode != "sum")
    if refused or trace.sparse is None:
        raise refusal("AO0094")
    if flat:
        offsets = torch.arange(0, rows.numel(), rows.shape[1], device=rows.device)
        rows, factors = rows.reshape(-1), None if factors is None else factors.reshape(-1)
    last = bool(given.get("include_last_offset", False)) and not flat
    assert offsets is not None
    bags = BagLayout(offsets.to(rows.dtype), mode, _padding(given), last)
    return trace.sparse.bags(weight, rows, bags, factors)


@intercept(functional.embedding)
def embedding(trace: Interception, call: Call) -> Any:
    """Rows with a sparse gradient; any others are traced as they are."""
    given = signature(functional.embedding).bind(*call.args, **call.kwargs).arguments
    if not _wants_sparse(given):
        return NotImplemented
    if trace.sparse is None or _unknown_gradient(trace, given):
        raise refusal("AO0095")
    return trace.sparse.embedding(given["weight"], given["input"], _padding(given))


def _wants_sparse(given: Mapping[str, Any]) -> bool:
    return torch.is_grad_enabled() and bool(given.get("sparse") and given["weight"].requires_grad)


def _unknown_gradient(trace: Interception, given: Mapping[str, Any]) -> bool:
    """Of a weight that is no input, and of forms that change it or weigh its rows."""
    changed = given.get("max_norm") is not None or given.get("scale_grad_by_freq")
    return bool(changed) or id(given["weight"]) not in trace.facts


def _padding(given: Mapping[str, Any]) -> int | None:
    padding: int | None = given.get("padding_idx")
    negative = padding is not None and padding < 0
    return padding + int(given["weight"].shape[0]) if negative else padding  # type: ignore[operator]
