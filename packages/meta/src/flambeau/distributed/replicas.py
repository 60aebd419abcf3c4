"""Comparison of what ranks are to have alike: the first tensor that differs, or holds NaN.

In: tensors by name, on each rank of a group. Out: one sentence that names the tensor and the
ranks, the same on all of them; nothing where all is well. Invariant: digests are exchanged, not
tensors; of a tensor in shards each rank has another part, which is looked at for NaN alone.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from flambeau import _torch_compat as compat


@dataclass(frozen=True)
class _Facts:
    """Of one tensor on one rank. digest: "" for a shard."""

    kind: str
    digest: str
    nans: int
    infinities: int


def verify_ranks(tensors: nn.Module | Mapping[str, torch.Tensor], group: Any = None) -> str:
    """The first tensor, in the order of their names on rank 0, that is not what it is on the other
    ranks, or that has a NaN or an infinity somewhere; "" if there is none.

    tensors: a module's parameters and buffers, or any by name. All ranks of the group call this.
    """
    given = tensors.state_dict(keep_vars=True) if isinstance(tensors, nn.Module) else tensors
    own = {name: _facts(each) for name, each in given.items() if isinstance(each, torch.Tensor)}
    ranks: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(ranks, own, group)
    found: list[dict[str, _Facts]] = ranks
    for name in dict.fromkeys(name for each in found for name in each):
        said = _said(name, [each.get(name) for each in found])
        if said:
            return said
    return ""


def _facts(tensor: torch.Tensor) -> _Facts:
    local, whole = compat.local_part(tensor.detach())
    local = local.resolve_conj().resolve_neg().cpu().contiguous()
    floats = local.is_floating_point() or local.is_complex()
    nans = int(torch.isnan(local).sum()) if floats else 0
    infinities = int(torch.isinf(local).sum()) if floats else 0
    data = local.flatten().view(torch.uint8).numpy().tobytes() if whole and local.numel() else b""
    digest = hashlib.sha256(data).hexdigest() if whole else ""
    return _Facts(f"{tensor.dtype} {list(tensor.shape)}", digest, nans, infinities)


def _said(name: str, ranks: list[_Facts | None]) -> str:
    for rank, facts in enumerate(ranks):
        if facts is not None and (facts.nans or facts.infinities):
            return (
                f"{name} has {facts.nans} NaN and {facts.infinities} infinities on rank {rank}, "
                "which is the first to have one"
            )
    for what in ("kind", "digest"):
        seen = [None if facts is None else getattr(facts, what) for facts in ranks]
        usual, count = Counter(seen).most_common(1)[0]
        if count < len(seen):
            usual = seen[0] if seen.count(seen[0]) == count else usual
            others = [rank for rank, each in enumerate(seen) if each != usual]
            shown = ", ".join(str(rank) for rank in others)
            values = f": {seen[others[0]]} for {usual}" if what == "kind" else ""
            return f"{name} differs on rank {shown} from rank {seen.index(usual)}'s{values}"
    return ""
