"""Differentiation: the backward part of a joint graph, recorded from autograd.

What comes in: the tracer that has recorded the forward part, what the program returned, and the
stand-ins of its inputs.
What goes out: a `BackwardPart`: the cotangents' placeholders and the gradients' nodes.
Invariant: operators recorded here are marked as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx

from flambeau_aot._torch_compat import engine_gradients, functional_tensor, functionalization
from flambeau_aot.errors import AotError, is_refusal
from flambeau_aot.inputs.functional_inputs import FunctionalInput
from flambeau_aot.intercept.sparse_embeddings import SparseUses, gathered, nodes_of
from flambeau_aot.joint.backward_writes import LateWrites
from flambeau_aot.joint.cotangents import Dependence
from flambeau_aot.joint.input_mutations import Effects
from flambeau_aot.joint.tracer import JointTracer
from flambeau_aot.plan import Presence, SparseGrad
from flambeau_aot.refusals import refusal

BACKWARD = "recorded in the backward pass"
"""Metadata key of the operators that the backward pass is recorded with."""

REENTRANT = "torch.utils.checkpoint is incompatible with .grad()"
"""What a checkpoint with use_reentrant=True says unless gradients are accumulated in leaves."""

_WRITTEN_TO = (
    "modified by an inplace operation",
    "has been detached in-place",
    "another view of its base has been modified inplace",
)


class NeedsAccumulation(Exception):
    """The program has such a checkpoint; trace it again, accumulating."""


def in_backward(node: fx.Node) -> bool:
    """Whether an operator was recorded in the backward pass, where eager reads what it has kept."""
    return BACKWARD in node.meta


def mark_as_backward(node: fx.Node) -> None:
    """Say so of an operator: of one that was recorded there, or that stands for one that was."""
    node.meta[BACKWARD] = True


@dataclass(frozen=True)
class BackwardPart:
    """What the backward pass is, by the fields of `Joint`, for the stand-ins."""

    tangents: tuple[fx.Node, ...]
    grads: Sequence[fx.Node | None]
    rows: Sequence[fx.Node] = ()
    sparse: tuple[SparseGrad, ...] = ()
    presences: tuple[Presence, ...] = ()
    grads_of: Sequence[frozenset[int]] = ()
    late: tuple[fx.Node, ...] = ()
    writes: tuple[fx.Node, ...] = ()
    counted: tuple[bool, ...] = ()


def backward_part(
    tracer: JointTracer,
    effects: Effects,
    differentiable: tuple[int, ...],
    stand_ins: Sequence[FunctionalInput],
    accumulate: bool,
    sparse: SparseUses,
    all_defined: bool,
    written_late: frozenset[int] = frozenset(),
) -> BackwardPart:
    """Differentiate the results at these positions by the stand-ins that require grad.

    accumulate: gradients are accumulated in leaves, which reentrant checkpoints need. all_defined:
    whether every cotangent will be given. written_late: stand-ins that the pass is known to write
    to. Raises WrittenInBackward where there are others.
    """
    if not differentiable:
        return BackwardPart((), [None] * len(stand_ins))
    ahead = set(tracer.graph.nodes)
    wrappers: list[torch.Tensor] = []
    values: list[torch.Tensor] = []
    nodes: list[fx.Node] = []
    for order, index in enumerate(differentiable):
        returned = effects.from_function[index]
        assert returned.wrapper is not None
        value = tracer.fakes.tangent_like(returned.value)
        nodes.append(tracer.placeholder(f"tangent_{order}", value))
        values.append(value)
        wrappers.append(returned.wrapper)
    tangents = [functional_tensor(value) for value in values]
    wanted = [(place, item.leaf) for place, item in enumerate(stand_ins) if item.leaf is not None]
    dependence: Dependence | None = None
    if not all_defined and len(values) > 1:
        dependence = tracer.watch_cotangents()
        dependence.begin(wrappers, values, tracer.hooked)
    late = LateWrites(tracer, stand_ins, written_late, ahead, dependence)
    with (
        functionalization(),
        tracer,
        torch.enable_grad(),
        torch.autograd.set_multithreading_enabled(False),
    ):
        late.begin()
        with late:
            leaves = [leaf for _, leaf in wanted]
            grads = _gradients(tracer, wrappers, leaves, tangents, accumulate)
        writes = late.results()
        by_primal: list[torch.Tensor | None] = [None] * len(stand_ins)
        for (place, _), grad in zip(wanted, grads, strict=True):
            by_primal[place] = grad
        with torch.no_grad():
            found = gathered(sparse.uses, stand_ins, by_primal)
        grad_nodes, rows = nodes_of(found, tracer.node_of)
    for node in tracer.graph.nodes:
        if node not in ahead and node.op == "call_function":
            mark_as_backward(node)
    known = BackwardPart(
        tuple(nodes),
        grad_nodes,
        rows,
        found.sparse,
        late=tuple(late.nodes),
        writes=tuple(writes),
        counted=late.counted(),
    )
    if dependence is None:
        return known
    tracer.dependence = None
    grads_of = [dependence.of(None if n is None else n.meta["val"]) for n in grad_nodes]
    return replace(known, presences=dependence.presences, grads_of=grads_of)


def _gradients(
    tracer: JointTracer,
    outputs: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    tangents: Sequence[torch.Tensor],
    accumulate: bool,
) -> Sequence[torch.Tensor | None]:
    """What the engine makes of these cotangents; an error of its is explained."""
    try:
        if accumulate:
            tracer.draws_in_backward = False
            torch.autograd.backward(outputs, tangents)
            return [leaf.grad for leaf in leaves]
        return engine_gradients(outputs, leaves, tangents)
    except AotError:
        raise
    except RuntimeError as error:
        if REENTRANT in str(error) and not accumulate:
            raise NeedsAccumulation from error
        if any(words in str(error) for words in _WRITTEN_TO):
            raise refusal("AO0133", error=str(error).split("; expected")[0]) from error
        if is_refusal(error):
            # A derivative that is not implemented or refuses what it is given: where eager runs
            # the backward pass it raises the same.
            raise refusal("AO0134", error=error) from error
        raise refusal("AO0135", error=error) from error
