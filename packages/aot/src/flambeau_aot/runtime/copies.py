"""Copies of updated values into the inputs they belong to.

What comes in: which output is copied into which input. What goes out: a callable that copies.
Invariant: every update is copied exactly once a call, whatever the groups, unless the graph wrote
it where it belongs and returned that input; the groups are made at the first call, of tensors of
one device and dtype, for which the copies can be one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flambeau_aot._torch_compat import copy_all_, raise_versions
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
                apart = [(to, of) for to, of in pairs if outputs[of] is not primals[to]]
                targets = [primals[to] for to, _ in apart]
                if unseen:
                    targets = [target.data for target in targets]
                if apart:
                    copy_all_(targets, [outputs[of] for _, of in apart])
                if not unseen and len(apart) < len(pairs):
                    raise_versions([primals[to] for to, of in pairs if outputs[of] is primals[to]])

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
