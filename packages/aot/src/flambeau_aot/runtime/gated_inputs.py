"""Inputs that not all results depend on, each with a node, its gate, that no others lead to.

In: the inputs of one call, its node, the cotangents of a backward pass. Out: gradients of inputs.
Invariant: the engine goes on from a node to all that it leads to, with None where there is no
gradient: hooks there are called, and derivatives of a user's run. So a call's own node has no edge
to such an input; results that depend on it lead to its gate, which is run after all of these.
The compiled backward part runs once for the cotangents that have come, by the call's node or by a
gate, whichever the engine comes to first: a pass for some inputs may come to gates alone.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    backward_keeps_graph,
    current_backward_pass,
    saved_tensors_released,
    will_run,
)
from flambeau_aot.runtime.pullbacks import Gradient


def gated(primals: Sequence[Any], places: Iterable[int]) -> list[Any]:
    """The primals, with leaves in the place of those of these that are results of something."""
    found = list(primals)
    if torch.is_grad_enabled():
        for place in places:
            x = found[place]
            if not x.is_leaf:
                found[place] = x.detach().requires_grad_()
                found[place].gate = _Gate.apply(x, place)  # type: ignore[no-untyped-call]
    return found


def through_gate(primal: torch.Tensor) -> torch.Tensor:
    """What a primal of a call is, with its history."""
    found: torch.Tensor = getattr(primal, "gate", primal)
    return found


def note_gates(main: Any, primals: Sequence[Any], places: Iterable[int]) -> None:
    """Let the node of a call and its gates know of each other."""
    main.passes, main.lock = {}, threading.RLock()  # an engine has a thread for each device
    main.edges = {at: primals[at].gate for at in places if hasattr(primals[at], "gate")}
    main.gates = {at: tensor.grad_fn for at, tensor in main.edges.items()}
    for gate in main.gates.values():
        gate.main = weakref.ref(main)


def edges_to_gates(main: Any) -> dict[int, torch.Tensor]:
    """What results lead to gates by; to be taken once: from then on the call keeps of its inputs
    what it has saved, and no leaf in the place of one holds its memory."""
    found: dict[int, torch.Tensor] = main.__dict__.pop("edges", {})
    for place in found:
        leaf = main.next_functions[place][0].variable
        leaf.data = leaf.detach().new_empty(0)
        del leaf.gate
    return found


def ends(node: Any) -> list[Any]:
    """What a call's node leads to by itself or by gates, by primal."""
    found = [end for end, _ in node.next_functions]
    for place, gate in gates(node).items():
        found[place] = gate
    return found


def gates(node: Any) -> Mapping[int, Any]:
    """The gates of a call's node, by input."""
    found: Mapping[int, Any] = getattr(node, "gates", {})
    return found


@dataclass
class _Pass:
    """One backward pass: cotangents that no gradients were computed of, and the gradients."""

    waiting: dict[int, Gradient] = field(default_factory=dict)
    found: list[Gradient] = field(default_factory=list)

    def is_over(self) -> bool:
        """Whether nothing is left to be taken."""
        return not self.waiting and all(x is None for x in self.found)


def come_to(main: Any, outputs: Sequence[int], grads: Sequence[Gradient]) -> None:
    """Cotangents of outputs of a call come, by nodes that lead to its own and to gates."""
    if not any(map(will_run, (main, *gates(main).values()))):
        return
    passes: dict[int, _Pass] = main.passes
    number = current_backward_pass()
    with main.lock:
        if number not in passes:
            for other in [n for n, state in passes.items() if state.is_over()]:
                del passes[other]
            passes[number] = _Pass()
        passes[number].waiting.update(zip(outputs, grads, strict=True))


def through_gates(backward: Callable[..., Sequence[Gradient]], count: int) -> Callable[..., Any]:
    """The backward of a call's node for so many cotangents; the gradients of inputs with
    gates are taken there."""

    def of_node(ctx: Any, *cotangents: Gradient) -> Any:
        if not gates(ctx):
            return backward(ctx, *cotangents)
        count = len(ctx.needs_input_grad)
        return tuple(_taken(ctx, {*range(count)} - gates(ctx).keys(), count))

    of_node.compiled = lambda ctx, given: backward(ctx, *map(given.get, range(count)))  # type: ignore[attr-defined]
    return of_node


def _taken(main: Any, places: Collection[int], count: int) -> list[Gradient]:
    """The gradients at these places, of so many, of all cotangents that have come in the backward
    pass being run, less what was taken of them."""
    with main.lock:
        state: _Pass = main.passes.get(current_backward_pass()) or _Pass()
        if state.waiting:
            given, state.waiting = state.waiting, {}
            found = main._forward_cls.backward.compiled(main, given)
            runs = will_run(main)
            if not (backward_keeps_graph() or runs):
                saved_tensors_released(main)  # else the engine does that
            gated = {place: will_run(gate) for place, gate in gates(main).items()}
            known = zip(found, state.found or [None] * len(found), strict=True)
            state.found = [
                (x if y is None else y if x is None else x + y) if gated.get(place, runs) else None
                for place, (x, y) in enumerate(known)
            ]
        taken: list[Gradient] = [None] * count
        for place in places if state.found else ():
            taken[place], state.found[place] = state.found[place], None
    return taken


class _Gate(torch.autograd.Function):
    """The same tensor; its gradient is that of the call."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, place: int) -> torch.Tensor:
        ctx.place = place
        ctx.set_materialize_grads(False)
        return x.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Gradient) -> Any:
        main, part = ctx.main(), None
        if main is not None:
            part = _taken(main, (ctx.place,), ctx.place + 1)[ctx.place]
            add = main.__dict__.get("added", {}).pop(ctx.place, None)
            part = part if add is None else add(part)
        if part is None or grads[0] is None:
            return grads[0] if part is None else part, None
        return part + grads[0], None
