"""torch.distributed: messages from one process to another, as an operator that writes to nothing.

In: nothing. Out: torch's callables, and the operator. Invariant: messages of one call are started
in its order, by torch's own functions; a result is there once it was waited for, as a collective's.
Tried on torch 2.11 and 2.13.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

#: stages take what is in a namespace that begins so for communication
NAMESPACE = "_c10d_functional_messages"


@functools.cache
def exchange() -> Any:
    """`exchange(tensors, kinds, peers, tags, group, together)`: starts each message; for one that
    is received, a tensor like the one given; for one that is sent, an empty one to wait for.
    together: by `batch_isend_irecv`."""
    name = f"{NAMESPACE}::exchange"
    given = "Tensor[] tensors, str[] kinds, int[] peers, int[] tags, str group, bool together"
    torch.library.define(name, f"({given}) -> Tensor[]")
    torch.library.impl(name, "CompositeExplicitAutograd", _started)
    torch.library.register_fake(name, lambda tensors, kinds, *rest: _results(tensors, kinds))
    return getattr(torch.ops, NAMESPACE).exchange.default


def _results(tensors: Sequence[torch.Tensor], kinds: Sequence[str]) -> list[torch.Tensor]:
    pairs = zip(tensors, kinds, strict=True)
    return [torch.empty_like(x) if kind == "irecv" else x.new_empty(0) for x, kind in pairs]


def _started(
    tensors: Sequence[torch.Tensor],
    kinds: Sequence[str],
    peers: Sequence[int],
    tags: Sequence[int],
    name: str,
    together: bool,
) -> list[torch.Tensor]:
    own: Any = dist.distributed_c10d
    group = own._resolve_process_group(name)
    results = _results(tensors, kinds)
    three = zip(tensors, results, kinds, strict=True)
    moved = [new if kind == "irecv" else x for x, new, kind in three]
    calls = [getattr(dist, kind) for kind in kinds]
    messages = list(zip(calls, moved, peers, tags, strict=True))
    if together:
        batch = [
            dist.P2POp(call, x, group=group, tag=tag, group_peer=peer)
            for call, x, peer, tag in messages
        ]
        works: Sequence[Any] = dist.batch_isend_irecv(batch)
    else:
        works = [
            call(x, group=group, tag=tag, **{f"group_{PEERS[call.__name__]}": peer})
            for call, x, peer, tag in messages
        ]
    for place, result in enumerate(results):
        work = works[place if len(works) == len(results) else 0]
        torch._C._distributed_c10d._register_work(result, work)
    return results


#: functions of torch.distributed that start a message, and the argument that names the other one
PEERS = {"isend": "dst", "irecv": "src"}
#: those that also wait for it
WAITING = {"send": "isend", "recv": "irecv"}
#: what makes a message of a batch, and what that calls
BATCHED: tuple[Any, ...] = ()
if dist.is_available():
    _own: Any = dist.distributed_c10d
    BATCHED = (
        dist.P2POp.__new__, dist.P2POp.__init__, _own._check_op, _own._check_single_tensor,
        _own._group_or_default_group, _own._canonicalize_group_rank,
    )  # fmt: skip


def message_class() -> type:
    return dist.P2POp


def one_work(group: Any, device: torch.device) -> bool:
    """Whether the messages of a batch have one handle together."""
    return type(group) is dist.ProcessGroup and bool(group._get_backend(device).supports_coalescing)
