"""Activation checkpointing: regions traced once and marked.

In: hooks on saved tensors that `torch.utils.checkpoint` puts around a region. Out:
`node.meta["recompute"]` on the nodes of the region, for the partition: the name of a checkpoint
policy, "must_recompute" where the region has none of its own.
Invariant: a region is traced once. What it would compute again in the backward pass is the
partition's to repeat, so that a random operator in it draws once and its result is saved.

A value that something outside its region reads carries no mark: outside, eager would save it. A
result of the program that nothing else reads is not kept, so that it may be written to.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import (
    base_of,
    checkpoint_hooks_on_top,
    communicates,
    guard_top_hooks,
    is_operator,
    storage_key,
    swap_top_hooks,
    top_hooks_are,
    version,
    watch_checkpoint_policy,
)
from flambeau_aot.joint.metadata.data_dependent import guarded
from flambeau_aot.refusals import refusal

REGION = "checkpointed region"
"""Metadata key of a node's region while the program is traced."""

POLICY = "recompute"

_DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]


class Regions:
    """Which region the program is in, and what its policy said last."""

    def __init__(self) -> None:
        self.count = 0
        self.inside: int | None = None
        self.last: fx.Node | None = None
        self._read: set[int] = set()
        self._data: dict[int, torch.Tensor] = {}

    def look(self) -> None:
        """Called before every torch function of the program: is a region entered or left?"""
        if checkpoint_hooks_on_top():
            swap_top_hooks(_pack, _unpack)
            self.count += 1
            watch_checkpoint_policy(self._policy)
        elif not top_hooks_are(_pack):
            guard_top_hooks(guarded)
        self.inside = self.count if self.count and top_hooks_are(_pack) else None

    def called(self, func: Any, args: Sequence[Any], result: Any) -> None:
        """Note what a function of the program has read inside of a region, and aliases that
        autograd knows nothing of."""
        if self.inside is not None:
            self._read.update(storage_key(x) for x in args if isinstance(x, torch.Tensor))
        if func == _DATA:
            self._data[id(result)] = result

    def refuse_unseen(self, target: torch.Tensor) -> None:
        """Raise where a write to an alias would be read, unnoticed, when a region runs again."""
        if id(base_of(target)) in self._data and storage_key(target) in self._read:
            raise refusal("AO0055")

    def leave(self) -> None:
        """No user code runs any more."""
        self.inside = None

    def recorded(self, node: fx.Node) -> None:
        """Note the region of a new node."""
        if self.inside is not None:
            node.meta[REGION] = self.inside
            self.last = node

    def _policy(self, name: str) -> None:
        # A policy is consulted about an operator right after it ran.
        node = self.last
        if node is None or communicates(node.target):
            return
        node.meta[POLICY] = name
        for user in node.users:
            user.meta[POLICY] = name


def _pack(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    return tensor, version(tensor)


def _unpack(packed: tuple[torch.Tensor, int]) -> torch.Tensor:
    tensor, saved = packed
    if version(tensor) != saved:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation inside a checkpointed region (version {version(tensor)}, saved {saved})"
        )
    return tensor


def mark(graph: fx.Graph) -> None:
    """Mark the nodes of regions, when the forward part is recorded and nothing after it."""
    region = {node: node.meta.pop(REGION) for node in graph.nodes if REGION in node.meta}
    for node, own in region.items():
        leaves = any(region.get(user) != own for user in node.users)
        if _is_random(node) or (leaves and node.meta.get(POLICY) != "must_save"):
            node.meta.pop(POLICY, None)
        elif not leaves and not communicates(node.target):
            node.meta.setdefault(POLICY, "must_recompute")


def _is_random(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return _is_random(node.args[0])  # type: ignore[arg-type]
    return is_operator(node.target) and torch.Tag.nondeterministic_seeded in node.target.tags  # type: ignore[union-attr]
