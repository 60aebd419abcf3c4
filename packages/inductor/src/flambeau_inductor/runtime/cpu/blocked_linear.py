"""Blocked oneDNN products with large results.

In: the arguments of oneDNN's linear map. Out: its result, in memory of `allocate`. Invariant: each
number is computed from the same operands as in one call. The library allocates its own results, of
which the system maps large ones anew at each call, as slowly as a product of few terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from flambeau_inductor._torch_compat import overload_of
from flambeau_inductor.tuning import host_tuning

BINARY = "mkldnn._linear_pointwise.binary"
IN_BLOCKS = ("mkldnn._linear_pointwise.default", BINARY)
"""Operators that there is such a form of."""

Allocate = Callable[[Sequence[int], Sequence[int], torch.dtype], Tensor]


def in_blocks(target: str, allocate: Allocate) -> Callable[..., Tensor]:
    """The operator `target`, one of `IN_BLOCKS`, for large results."""
    compute = overload_of(IN_BLOCKS[0])

    def linear(rows: Tensor, weight: Tensor, bias: Tensor | None, *after: object) -> Tensor:
        made = _result(rows, weight, allocate)
        for some, others, part in _blocks(made, weight):
            columns = None if bias is None else bias[others]
            part.copy_(compute(rows[some], dense(weight[others]), columns, *after))
        return made

    def added(
        rows: Tensor, other: Tensor, weight: Tensor, bias: Tensor | None, attribute: str
    ) -> Tensor:
        if attribute != "add":
            raise ValueError(f"{target} with {attribute!r}")
        made = _result(rows, weight, allocate)
        for some, others, part in _blocks(made, weight):
            columns = None if bias is None else bias[others]
            block = compute(rows[some], dense(weight[others]), columns, "none", [], "")
            torch.add(other[some, others], block, out=part)
        return made

    return added if target == BINARY else linear


def _result(rows: Tensor, weight: Tensor, allocate: Allocate) -> Tensor:
    shape = (rows.shape[0], weight.shape[0])
    return allocate(shape, (shape[1], 1), rows.dtype)


def _blocks(made: Tensor, weight: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Blocks along the longer side; along the rows, too, where the weight's columns are not
    contiguous."""
    rows, columns = made.shape
    by_rows = rows >= columns or not weight.is_contiguous()
    long, short = (rows, columns) if by_rows else (columns, rows)
    one = short * made.element_size()
    host = host_tuning()
    length = max(host.linear_block_rows, host.linear_block_bytes // one)
    length = max(1, min(length, host.linear_most_bytes // one))
    count = -(-long // length)
    length = -(-long // count)
    for start in range(0, long, length):
        taken = slice(start, start + length)
        some, others = (taken, slice(None)) if by_rows else (slice(None), taken)
        yield some, others, made[some, others]


def dense(weight: Tensor) -> Tensor:
    """The weight, copied if it has gaps: oneDNN's kernel for such is far slower."""
    if weight.is_contiguous() or weight.t().is_contiguous():
        return weight
    return weight.contiguous()
