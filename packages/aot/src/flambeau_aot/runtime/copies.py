"""Updated values into the inputs they belong to, in few calls.

What comes in: which output is copied into which input. What goes out: a callable that copies.
Invariant: every update is copied exactly once a call, whatever the groups; the groups are made at
the first call, of tensors of one device and dtype, for which the copies can be one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flambeau_aot._torch_compat import copy_all_
from flambeau_aot.plan import InputUpdate

Pairs = list[tuple[int, int]]
"""(input, output) by position."""


def copies(
    updates: Sequence[InputUpdate], unseen: bool = False
) -> Callable[[Sequence[Any], Sequence[Any]], None]:
    """The function that copies outputs into inputs beside autograd.

    unseen: no version counter is to notice, as eager's batch norm updates its statistics.
    """
    groups: list[Pairs] = []

    def copy(primals: Sequence[Any], outputs: Sequence[Any]) -> None:
        if not groups:
            groups.extend(grouped(updates, primals, outputs))
        with torch.no_grad():
            for pairs in groups:
                targets = [primals[to] for to, _ in pairs]
                if unseen:
                    targets = [target.data for target in targets]
                copy_all_(targets, [outputs[of] for _, of in pairs])

    return copy


def grouped(
    updates: Sequence[InputUpdate], primals: Sequence[Any], outputs: Sequence[Any]
) -> list[Pairs]:
    """The updates by device and dtype of both sides, in order of first appearance."""
    by_kind: dict[Any, Pairs] = {}
    for item in updates:
        to, of = primals[item.primal], outputs[item.output]
        kind = (to.device, to.dtype, of.device, of.dtype)
        by_kind.setdefault(kind, []).append((item.primal, item.output))
    return list(by_kind.values())
