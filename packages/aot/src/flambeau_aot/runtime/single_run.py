"""One run of a backward part for all gradients that one backward pass brings to it.

In: the node of a compiled call whose backward part writes to inputs, or is not linear in the
gradient; a run of its program on inputs of its own, which eager can differentiate again. Out:
gradients as part of the autograd graph.
Invariant: eager runs such a part once in a backward pass, of the whole gradient. What gradients of
an earlier pass (`create_graph=True`) bring waits until the pass comes to the call's own node, and
is differentiated there together with what the results bring.

The gradients of an earlier pass are on a node with an edge to the call's node, by way of a result
without elements that the call saves: the engine runs this node after all of those. Further edges
lead to the results that gradients depend on in turn, for what these give to a result that is
requested; the call's own node drops that, for it is given to the run's own result already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from flambeau_aot._torch_compat import current_backward_pass
from flambeau_aot.runtime.pullbacks import Gradient, Seeds, Sources, pulled_back, with_history
from flambeau_aot.runtime.result_nodes import ended, requested, sent_to


@dataclass(frozen=True)
class Run:
    """A run of the program: what the cotangents are of, what is differentiated by, and the results
    that gradients depend on in turn, by place."""

    ends: Sequence[Gradient]
    starts: Sequence[torch.Tensor]
    results: Mapping[int, torch.Tensor] = field(default_factory=dict)

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
    found, own = _differentiated(seeds, starts, main.rerun, sent_to(main))
    return _attached(main, found, [*earlier, *own])


def waiting(main: Any) -> tuple[Seeds, Sources]:
    """What gradients of earlier passes have brought to a call in the pass being run."""
    number, seeds, sources = main.__dict__.pop("waiting", (None, [], []))
    return (seeds, sources) if number == current_backward_pass() else ([], [])


def _differentiated(
    seeds: Seeds, by: Sequence[torch.Tensor], run: Run, sent: Sequence[int] = ()
) -> tuple[Sequence[Gradient], Sources]:
    """The gradients inside of a run, and the gradients they are made of, as leaves of it. sent:
    results whose gradients among the seeds are the whole of what comes to them."""
    kept = torch.is_grad_enabled()
    inner = [(end, gradient.detach().requires_grad_(kept)) for end, gradient in seeds]
    sources = [(leaf, g) for (_, leaf), (_, g) in zip(inner, seeds, strict=True)]
    given = {id(end): leaf for end, leaf in inner}
    whole = {place: given.get(id(run.results[place])) for place in sent}
    with ended(whole, run.results, [end for end, _ in inner]) if whole else nullcontext():
        return pulled_back(inner, by, kept), sources


def _attached(main: Any, found: Sequence[Gradient], sources: Sources) -> Sequence[Gradient]:
    """Gradients inside of a run on a node of the graph outside."""
    leaves, outer = zip(*{id(leaf): (leaf, g) for leaf, g in sources}.values(), strict=True)
    depended = {item.place: item.tensor() for item in getattr(main, "depended", ())}
    there = {at: x for at, x in depended.items() if x is not None and at in main.rerun.results}

    def attach(ends: tuple[Any, ...]) -> Sequence[torch.Tensor]:
        state, anchor = (main, ends, leaves, tuple(there)), main.saved_tensors[-1]
        own: Sequence[torch.Tensor] = _Later.apply(  # type: ignore[no-untyped-call]
            state, anchor, *there.values(), *outer
        )
        return own

    return with_history(found, attach)


class _Later(torch.autograd.Function):
    """Gradients of a run, with edges to the call's node, to results that they depend on, and to
    what they are made of."""

    @staticmethod
    def forward(ctx: Any, state: Any, anchor: torch.Tensor, *given: torch.Tensor) -> Any:
        ctx.state, ctx.empty = state, anchor.detach()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*given[len(state[3]) :])
        return tuple(end.detach() for end in state[1])

    @staticmethod
    def backward(ctx: Any, *grads: Gradient) -> Any:
        main, ends, inner, places = ctx.state
        outer = ctx.saved_tensors
        seeds = [(x, g) for x, g in zip(ends, grads, strict=True) if g is not None]
        if not seeds:
            return (None,) * (2 + len(places) + len(outer))
        edges = dict(zip(places, ctx.next_functions[1:], strict=False))
        asked = requested(main, edges, "") if places else ()
        before, known = waiting(main)
        sources = list(zip(inner, outer, strict=True))
        main.waiting = current_backward_pass(), [*before, *seeds], [*known, *sources]
        by = [*inner, *(main.rerun.results[place] for place in asked)]
        found, own = _differentiated(seeds, by, main.rerun)
        parts = _attached(main, found, [*sources, *own])
        to_results = dict(zip(asked, parts[len(inner) :], strict=True))
        for place, part in to_results.items():
            sent_to(main, place, part)
        return None, ctx.empty, *map(to_results.get, places), *parts[: len(inner)]
