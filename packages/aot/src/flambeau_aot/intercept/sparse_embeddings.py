"""Embedding calls with sparse gradients, which no graph holds.

In: calls of `embedding` and `embedding_bag` with sparse=True on an input or a parameter. Out: the
same rows, or sums or means of them; after the backward pass, the indices and gradients of the rows
of every such call.
Invariant: a form of which that gradient is not known is refused. Where the weight has a dense
gradient as well, the sum is dense, as in eager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
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

    def add(self, grad: torch.Tensor) -> None:
        """Note a gradient of the rows."""
        self.grad = grad if self.grad is None else self.grad + grad


def _functional(value: torch.Tensor) -> torch.Tensor:
    """A tensor that the program closes over, as one of the trace."""
    return value if is_functional(value) else functional_tensor(value)


def _counted(rows: torch.Tensor, padding: int | None) -> torch.Tensor:
    """Which rows are none of the padding."""
    return torch.ones_like(rows, dtype=torch.bool) if padding is None else rows != padding


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, rows: torch.Tensor, use: Use) -> torch.Tensor:
        """The rows."""
        ctx.use = use
        return torch.embedding(weight, rows)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[None, None, None]:
        """Note the gradient of the rows."""
        ctx.use.add(grads[0])
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

    @property
    def starts(self) -> torch.Tensor:
        """Where each bag begins."""
        return self.offsets[:-1] if self.last else self.offsets

    def of_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """The bag that each row is in."""
        places = torch.arange(rows.shape[0], device=rows.device, dtype=self.offsets.dtype)
        return torch.searchsorted(self.starts, places, right=True) - 1

    def sizes(self, rows: torch.Tensor) -> torch.Tensor:
        """How many rows count in each bag."""
        counts = _counted(rows, self.padding).cumsum(0)
        sums = torch.cat([torch.zeros_like(rows[:1]), counts])
        ends = self.offsets[1:]
        if not self.last:
            ends = torch.cat([ends, torch.full_like(self.starts[:1], rows.shape[0])])
        return sums.index_select(0, ends) - sums.index_select(0, self.starts)


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
        rows, offsets, *weighted = ctx.saved_tensors
        bags: BagLayout = replace(ctx.bags, offsets=offsets)
        own = bags.of_rows(rows)
        grad = grads[0].index_select(0, own)
        of_factors = None
        if bags.mode == "mean":
            grad = grad / bags.sizes(rows).index_select(0, own).clamp(min=1)[:, None]
        if weighted:
            weight, factors = weighted
            of_factors = (grad * weight.detach().index_select(0, rows)).sum(1)
            of_factors = of_factors * _counted(rows, bags.padding)
            grad = grad * factors[:, None]
        ctx.use.add(grad)
        return None, of_factors, None, None, None


Gradients = list[torch.Tensor | None]


def gathered(
    uses: Sequence[Use], stand_ins: Sequence[FunctionalInput], grads: Gradients
) -> tuple[Gradients, list[torch.Tensor], tuple[SparseGrad, ...]]:
    """The gradients with those of sparse calls, by primal as `grads` are; the indices of sparse
    ones, and what these are."""
    every, rows, sparse = list(grads), list[torch.Tensor](), list[SparseGrad]()
    for place, item in enumerate(stand_ins):
        own = [use for use in uses if use.weight is item.wrapper and use.grad is not None]
        if not own:
            continue
        width = item.value.shape[1]
        indices = torch.cat([use.rows.reshape(-1) for use in own])
        values = torch.cat([use.grad.reshape(-1, width) for use in own if use.grad is not None])
        paddings = {use.padding for use in own}
        if (dense := every[place]) is not None:
            mask = torch.cat([_counted(use.rows, use.padding).reshape(-1) for use in own])[:, None]
            values = torch.where(mask, values, torch.zeros_like(values))
            every[place] = dense.index_add(0, indices, values)
            continue
        if len(paddings) > 1 or not all(isinstance(size, int) for size in item.value.shape):
            raise refusal("AO0096")
        every[place] = values
        size = tuple(item.value.shape)
        sparse.append(SparseGrad(place, len(stand_ins) + len(rows), size, paddings.pop()))
        rows.append(indices)
    return every, rows, tuple(sparse)


def plain_gradient(value: torch.Tensor) -> torch.Tensor:
    """The value that a gradient, or the indices of one, stands for."""
    plain = current_value(value) if is_functional(value) else value
    if flattens(plain):
        raise refusal("AO0097", kind=type(plain).__name__)
    return plain


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
    rows, offsets = _functional(rows), _functional(offsets.to(rows.dtype))
    bags = BagLayout(offsets, mode, _padding(given), last)
    use = Use(weight, rows, bags.padding)
    trace.sparse.append(use)
    return _Bags.apply(weight, factors, rows, bags, use)  # type: ignore[no-untyped-call]


@intercept(functional.embedding)
def embedding(trace: Interception, call: Call) -> Any:
    """Rows with a sparse gradient; any others are traced as they are."""
    given = signature(functional.embedding).bind(*call.args, **call.kwargs).arguments
    if not _wants_sparse(given):
        return NotImplemented
    if trace.sparse is None or _unknown_gradient(trace, given):
        raise refusal("AO0095")
    use = Use(given["weight"], given["input"], _padding(given))
    trace.sparse.append(use)
    return _Rows.apply(use.weight, use.rows, use)  # type: ignore[no-untyped-call]


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
