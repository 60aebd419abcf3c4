"""Gradients of values inside of a run by others there, with a history outside of it.

In: values inside of a run of a program, with gradients of theirs. Out: gradients of other values
there; the same with a history outside of the run. Invariant: nothing is known of compiled calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

Gradient = torch.Tensor | None
Seeds = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""Values of a run that are differentiated, each with its gradient."""
Sources = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""Leaves inside of a run, each with the tensor outside that it is."""


def pulled_back(
    seeds: Seeds, by: Sequence[torch.Tensor], kept: bool, retain_graph: bool = True
) -> Sequence[Gradient]:
    """What gradients of these values give to others; `kept`: as part of the autograd graph."""
    with torch.enable_grad():
        return torch.autograd.grad(
            [end for end, _ in seeds],
            by,
            [gradient for _, gradient in seeds],
            retain_graph=retain_graph,
            create_graph=kept,
            allow_unused=True,
        )


def accumulated(seeds: Seeds, by: Sequence[torch.Tensor]) -> Sequence[Gradient]:
    """The same by a pass that accumulates in all leaves, which must be the run's own: no other one
    goes through a checkpoint with use_reentrant=True. What such a checkpoint's function reads
    besides its arguments has a gradient of each pass, the sum of which is its own."""
    found: list[Gradient] = [None] * len(by)

    def add(at: int, gradient: torch.Tensor) -> None:
        known = found[at]
        found[at] = gradient if known is None else known + gradient

    for at, x in enumerate(by):
        if x.requires_grad:
            x.register_hook(partial(add, at))
    torch.autograd.backward([end for end, _ in seeds], [gradient for _, gradient in seeds])
    return found


def with_history(
    found: Sequence[Gradient], attach: Callable[[tuple[Any, ...]], Sequence[torch.Tensor]]
) -> list[Gradient]:
    """The gradients, those that require grad in turn as `attach` gives them."""
    places = [at for at, item in enumerate(found) if item is not None and item.requires_grad]
    if not places:
        return list(found)
    known = dict(zip(places, attach(tuple(found[at] for at in places)), strict=True))
    return [known.get(at, item) for at, item in enumerate(found)]
