"""One run of a backward part for all gradients that one backward pass brings to it.

In: the node of a compiled call whose backward part writes to inputs, or is not linear in the
gradient; a run of its program on inputs of its own, which eager can differentiate again. Out:
gradients as part of the autograd graph.
Invariant: eager runs such a part once in a backward pass, of the whole gradient. What gradients of
an earlier pass (`create_graph=True`) bring waits until the pass comes to the call's own node, and
is differentiated there together with what the results bring.

The gradients of an earlier pass are on a node with an edge to the call's node, by way of a result
without elements that the call saves: the engine runs this node after all of those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_aot._torch_compat import current_backward_pass

Gradient = torch.Tensor | None
Seeds = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""Values of a run that are differentiated, each with its gradient."""
Sources = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""Leaves inside of a run, each with the tensor outside that it is."""


@dataclass(frozen=True)
class Run:
    """A run of the program: what the cotangents are of, and what is differentiated by."""

    ends: Sequence[Gradient]
    starts: Sequence[torch.Tensor]

    def seeds(self, cotangents: Sequence[Gradient]) -> Seeds:
        """The ends that have a cotangent and a history."""
        pairs = zip(self.ends, cotangents, strict=True)
        return [(x, g) for x, g in pairs if g is not None and x is not None and x.requires_grad]


def new_anchor() -> torch.Tensor:
    """The result that later nodes have an edge to."""
    return torch.empty(0)


def gradients(main: Any, seeds: Seeds, earlier: Sources = ()) -> Sequence[Gradient]:
    """Gradients by the starts of the call's run; as part of the graph, if grad is enabled.

    earlier: what seeds are made of that came from earlier passes.
    """
    starts = main.rerun.starts
    if not seeds:
        return [None] * len(starts)
    found, own = _differentiated(seeds, starts)
    return _attached(main, found, [*earlier, *own])


def waiting(main: Any) -> tuple[Seeds, Sources]:
    """What gradients of earlier passes have brought to a call in the pass being run."""
    number, seeds, sources = main.__dict__.pop("waiting", (None, [], []))
    return (seeds, sources) if number == current_backward_pass() else ([], [])


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


def with_history(
    found: Sequence[Gradient], attach: Callable[[tuple[Any, ...]], Sequence[torch.Tensor]]
) -> list[Gradient]:
    """The gradients, those that require grad in turn as `attach` gives them."""
    places = [at for at, item in enumerate(found) if item is not None and item.requires_grad]
    if not places:
        return list(found)
    known = dict(zip(places, attach(tuple(found[at] for at in places)), strict=True))
    return [known.get(at, item) for at, item in enumerate(found)]


def _differentiated(seeds: Seeds, by: Sequence[torch.Tensor]) -> tuple[Sequence[Gradient], Sources]:
    """The gradients inside of a run, and the gradients they are made of, as leaves of it."""
    kept = torch.is_grad_enabled()
    inner = [(end, gradient.detach().requires_grad_(kept)) for end, gradient in seeds]
    sources = [(leaf, g) for (_, leaf), (_, g) in zip(inner, seeds, strict=True)]
    return pulled_back(inner, by, kept), sources


def _attached(main: Any, found: Sequence[Gradient], sources: Sources) -> Sequence[Gradient]:
    """Gradients inside of a run on a node of the graph outside."""
    leaves, outer = zip(*{id(leaf): (leaf, g) for leaf, g in sources}.values(), strict=True)

    def attach(ends: tuple[Any, ...]) -> Sequence[torch.Tensor]:
        state, anchor = (main, ends, leaves), main.saved_tensors[-1]
        own: Sequence[torch.Tensor] = _Later.apply(state, anchor, *outer)  # type: ignore[no-untyped-call]
        return own

    return with_history(found, attach)


class _Later(torch.autograd.Function):
    """Gradients of a run, with edges to the call's node and to what they are made of."""

    @staticmethod
    def forward(ctx: Any, state: Any, anchor: torch.Tensor, *outer: torch.Tensor) -> Any:
        ctx.state, ctx.empty = state, anchor.detach()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*outer)
        return tuple(end.detach() for end in state[1])

    @staticmethod
    def backward(ctx: Any, *grads: Gradient) -> Any:
        main, ends, inner = ctx.state
        outer = ctx.saved_tensors
        seeds = [(x, g) for x, g in zip(ends, grads, strict=True) if g is not None]
        if not seeds:
            return (None,) * (2 + len(outer))
        before, known = waiting(main)
        sources = list(zip(inner, outer, strict=True))
        main.waiting = current_backward_pass(), [*before, *seeds], [*known, *sources]
        parts, own = _differentiated(seeds, inner)
        return None, ctx.empty, *_attached(main, parts, [*sources, *own])
