"""Polyfills of packed sequences: the operators that pack a padded batch, and pad it again.

In, out: what torch's operators of the same name take and give, of sequences in descending order of
length. Invariant: steps, sequences and elements are as many as data decides, and what torch refuses
by its data the graph does.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_capture import _torch_compat as compat


def pack(x: Any, lengths: Any, batch_first: bool = False) -> tuple[Any, Any]:
    """`_pack_padded_sequence`: what is there, a step of time after the other; how many sequences
    are as long as each step."""
    steps = x.transpose(0, 1) if batch_first else x
    compat.CHECK_ALL(lengths > 0, lambda: "Length of all samples has to be greater than 0")
    compat.CHECK_ALL(lengths == lengths.cummin(0).values, lambda: "`lengths` array must be sorted")
    longest = lengths[0].item()
    torch._check(longest > 0)
    torch._check(longest <= steps.shape[0])
    sizes = (torch.arange(longest).unsqueeze(1) < lengths).sum(1)
    there = torch.arange(steps.shape[0]).unsqueeze(1) < lengths
    return steps[there.to(x.device)].contiguous(), sizes


def pad(
    data: Any, sizes: Any, batch_first: bool, padding_value: Any, total_length: Any
) -> tuple[Any, Any]:
    """`_pad_packed_sequence`: the padded batch; the length of each sequence."""
    compat.CHECK_ALL(sizes == sizes.cummin(0).values, lambda: "batch sizes must descend")
    batch = sizes[0].item()
    torch._check(batch > 0)
    lengths = (torch.arange(batch) < sizes.unsqueeze(1)).sum(0)
    torch._check(total_length >= sizes.shape[0])
    there = torch.arange(total_length).unsqueeze(1) < lengths
    there = there.to(data.device).reshape(total_length, batch, *[1] * (data.dim() - 1))
    padded = data.new_full((total_length, batch, *data.shape[1:]), padding_value)
    padded = padded.masked_scatter(there, data)
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def tensor_split(x: Any, at: Any, dim: int) -> Any:
    before = (slice(None),) * (dim % x.dim())
    ends = [*at.tolist(), None]
    return tuple(x[(*before, slice(*pair))] for pair in zip([None, *ends], ends))
