"""Embedding calls with sparse gradients.

What comes in: calls of `embedding` and `embedding_bag`. What goes out: the call as it is, or one
whose sparse gradient is made beside the graph. Invariant: a form of which that gradient is not
known is refused.

noted: where such calls are noted; None where there may be none. known: what the inputs are.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from torch.nn import functional

from flambeau_aot.errors import Unsupported
from flambeau_aot.inputs.input_facts import InputFacts
from flambeau_aot.intercept.sparse_gradients import BagLayout, SparseUses


def embedding_bag(
    noted: SparseUses | None, known: InputFacts, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`torch.nn.functional.embedding_bag`; a sparse gradient is made beside the graph."""
    given = signature(functional.embedding_bag).bind(*args, **kwargs).arguments
    mode, rows, offsets = given.get("mode", "mean"), given["input"], given.get("offsets")
    if not _wants_sparse(functional.embedding_bag, args, kwargs) or mode == "max":
        return functional.embedding_bag(*args, **kwargs)
    weight, factors = given["weight"], given.get("per_sample_weights")
    flat = rows.dim() == 2 and offsets is None
    refused = given.get("max_norm") is not None or given.get("scale_grad_by_freq")
    refused = refused or (not flat and (offsets is None or rows.dim() != 1))
    refused = refused or (factors is not None and mode != "sum")
    if noted is None or id(weight) not in known.leaves or refused:
        raise Unsupported(
            "embedding_bag with sparse=True, and max_norm, scale_grad_by_freq, a weight that "
            "is no parameter or input, weights of samples that are no sum, or a second "
            "derivative; use sparse=False, or let it run outside the graph"
        )
    if flat:
        offsets = torch.arange(0, rows.numel(), rows.shape[1], device=rows.device)
        rows, factors = rows.reshape(-1), None if factors is None else factors.reshape(-1)
    padding = given.get("padding_idx")
    if padding is not None and padding < 0:
        padding += weight.shape[0]
    last = bool(given.get("include_last_offset", False)) and not flat
    assert offsets is not None
    bags = BagLayout(offsets.to(rows.dtype), mode, padding, last)
    return noted.bags(weight, rows, bags, factors)


def embedding(
    noted: SparseUses | None, known: InputFacts, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`torch.nn.functional.embedding`; a sparse gradient is made beside the graph."""
    if not _wants_sparse(functional.embedding, args, kwargs):
        return functional.embedding(*args, **kwargs)
    given = signature(functional.embedding).bind(*args, **kwargs).arguments
    weight = given["weight"]
    refused = given.get("max_norm") is not None or given.get("scale_grad_by_freq")
    if noted is None or id(weight) not in known.leaves or refused:
        raise Unsupported(
            "embedding with sparse=True, and max_norm, scale_grad_by_freq, a weight that is no "
            "parameter or input, or a second derivative; use sparse=False, or let it run "
            "outside the graph"
        )
    padding = given.get("padding_idx")
    if padding is not None and padding < 0:
        padding += weight.shape[0]
    return noted.embedding(weight, given["input"], padding)


def _wants_sparse(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    given = signature(func).bind(*args, **kwargs).arguments
    wanted = given.get("sparse") and given["weight"].requires_grad
    return bool(wanted) and torch.is_grad_enabled()
