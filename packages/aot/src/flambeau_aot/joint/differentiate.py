"""Differentiation: the backward part of a joint graph, recorded from autograd.

In: the tracer that has recorded the forward part, what the program returned, the stand-ins of its
inputs. Out: a `BackwardPart`: placeholders of the cotangents, nodes of the gradients, and for each
input that the pass writes to (counters, amax histories) the value before it and the one to copy.
Invariant: operators recorded here are marked as such; a write to anything else than an input is
refused: nobody could say what it is when a second backward pass begins.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import (
    communicates,
    current_value,
    engine_gradients,
    functional_tensor,
    functionalization,
    is_functional,
    raise_version,
    replace_value,
    unlogged,
    version,
    without_autocast,
)
from flambeau_aot.errors import AotError, is_refusal
from flambeau_aot.inputs.memory_overlap import steps_from
from flambeau_aot.intercept.sparse_embeddings import Use, gathered, plain_gradient
from flambeau_aot.intercept.writes.inplace import WRITE_TO_LISTS
from flambeau_aot.joint.cotangents import Dependence
from flambeau_aot.joint.dispatch_mode import JointTracer
from flambeau_aot.joint.input_mutations import Effects
from flambeau_aot.joint.metadata.data_dependent import NoMemory
from flambeau_aot.joint.nested import tensors_in
from flambeau_aot.joint.reach import computed_from
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import LateWrite, Presence, SparseGrad


class WrittenInBackward(Exception):
    """The backward pass writes to these inputs, by place; trace it again."""

    def __init__(self, places: frozenset[int]) -> None:
        super().__init__(places)
        self.places = places


class LateWrites(NoMemory):
    """The writes of one backward pass; in force while it is recorded.

    ahead: the nodes of the forward part.
    """

    def __init__(
        self, effects: Effects, ahead: set[fx.Node], dependence: Dependence | None
    ) -> None:
        super().__init__()
        self.tracer, self.stand_ins = tracer, stand_ins = effects.tracer, effects.stand_ins
        self.places = tuple(sorted(tracer.attempt.written_late))
        self.ahead = ahead
        self.dependence = dependence
        self.values = [tracer.fakes.like(stand_ins[place].value) for place in self.places]
        self.nodes = [
            tracer.placeholder(f"late_{place}", value)
            for place, value in zip(self.places, self.values, strict=True)
        ]
        self.before: list[torch.Tensor] = []
        self.counts: list[int] = []

    def begin(self) -> None:
        """Let the inputs that are written to be what they are when the pass begins."""
        for place, value in zip(self.places, self.values, strict=True):
            replace_value(self.stand_ins[place].wrapper, value)
        self.before = [current_value(item.wrapper) for item in self.stand_ins]
        self.counts = [version(self.stand_ins[place].wrapper) for place in self.places]

    def results(self) -> list[fx.Node]:
        """The new values of those inputs. Raises WrittenInBackward where there are others."""
        found = {
            place
            for place, (item, value) in enumerate(zip(self.stand_ins, self.before, strict=True))
            if current_value(item.wrapper) is not value
        }
        if not found <= {*self.places}:
            raise WrittenInBackward(frozenset({*found, *self.places}))
        return [
            self.tracer.node_of(current_value(self.stand_ins[place].wrapper))
            for place in self.places
        ]

    def counted(self, first: int) -> tuple[LateWrite, ...]:
        """What is known of those inputs, whose new values are the gradients from `first` on."""
        known = enumerate(zip(self.places, self.counts, strict=True), first)
        return tuple(
            LateWrite(place, at, version(self.stand_ins[place].wrapper) != count)
            for at, (place, count) in known
        )

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        targets = [x for x in tensors_in((args, kwargs or {})) if is_functional(x)]
        counts = [version(target) for target in targets]
        roots = [self._root(target) for target in targets]
        result = super().__torch_function__(func, types, args, kwargs)
        if getattr(func, "__name__", "") in WRITE_TO_LISTS:
            # functionalization counts no writes to lists
            for target in tensors_in(args[0]):
                raise_version(target)
        for target, count, root in zip(targets, counts, roots, strict=True):
            if version(target) != count:
                self._written(root)
        return result

    def _root(self, target: torch.Tensor) -> torch.Tensor:
        return steps_from(current_value(target), self.tracer.view_of)[0]

    def _written(self, root: torch.Tensor) -> None:
        node = self.tracer.node_of(root)
        of_input = any(root is value for value in self.before)
        if node in self.ahead and not of_input:
            raise refusal("AO0137")
        if (of_input or node in self.nodes) and self.dependence is not None:
            if not self.dependence.inside_of_all():
                raise refusal("AO0138")


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
    """What the backward pass is, by the fields of `Joint`, for the stand-ins; more: what is among
    the gradients after theirs."""

    tangents: tuple[fx.Node, ...]
    grads: Sequence[fx.Node | None]
    more: Sequence[fx.Node] = ()
    sparse: tuple[SparseGrad, ...] = ()
    presences: tuple[Presence, ...] = ()
    grads_of: Sequence[frozenset[int]] = ()
    late: tuple[fx.Node, ...] = ()
    late_writes: tuple[LateWrite, ...] = ()


def backward_part(
    effects: Effects, sparse: Sequence[Use], spent: Container[int] = ()
) -> BackwardPart:
    """Differentiate what autograd knows of the results by the stand-ins that require grad; of the
    tangents in `spent` no pass is run.

    Raises WrittenInBackward where the pass writes to other stand-ins than the attempt knows of.
    """
    tracer, stand_ins = effects.tracer, effects.stand_ins
    if not effects.differentiable:
        return BackwardPart((), [None] * len(stand_ins))
    ahead = set(tracer.graph.nodes)
    returned = [effects.from_function[index] for index in effects.differentiable]
    values = [tracer.fakes.tangent_like(item.value) for item in returned]
    nodes = [tracer.placeholder(f"tangent_{order}", value) for order, value in enumerate(values)]
    tangents = [functional_tensor(value) for value in values]
    wanted = [(place, item.leaf) for place, item in enumerate(stand_ins) if item.leaf is not None]
    dependence: Dependence | None = None
    if not tracer.attempt.all_defined and len(values) > 1:
        dependence = tracer.dependence = Dependence(tracer.flag, tracer.where_flag)
        dependence.begin(effects.ends, values, tracer.hooked)
    late = LateWrites(effects, ahead, dependence)
    with (
        functionalization(),
        tracer,
        torch.enable_grad(),
        torch.autograd.set_multithreading_enabled(False),
    ):
        late.begin()
        with late, without_autocast():  # whatever is in force around the forward pass
            leaves = [leaf for _, leaf in wanted]
            alive = [order for order in range(len(tangents)) if order not in spent]
            ends, starts = ([own[at] for at in alive] for own in (effects.ends, tangents))
            grads = _gradients(tracer, ends, leaves, starts) if alive else [None] * len(leaves)
        for given, node in zip(tangents, nodes, strict=True):
            if _not_detached(tracer.node_of(current_value(given))) is not node:
                raise refusal("AO0170")
        writes = late.results()
        by_primal: list[torch.Tensor | None] = [None] * len(stand_ins)
        for (place, _), grad in zip(wanted, grads, strict=True):
            by_primal[place] = grad
        with torch.no_grad():
            gradients, rows, sparse_grads = gathered(sparse, stand_ins, by_primal)
        grad_nodes = [g if g is None else tracer.node_of(plain_gradient(g)) for g in gradients]
        row_nodes = [tracer.node_of(plain_gradient(each)) for each in rows]
    for node in tracer.graph.nodes:
        if node not in ahead and node.op == "call_function":
            mark_as_backward(node)
    known = BackwardPart(
        tuple(nodes),
        grad_nodes,
        [
            *row_nodes,
            *writes,
            *_unread_collectives(tracer, ahead, [*grad_nodes, *row_nodes, *writes]),
        ],
        sparse_grads,
        late=tuple(late.nodes),
        late_writes=late.counted(len(stand_ins) + len(rows)),
    )
    if dependence is None:
        return known
    tracer.dependence = None
    grads_of = [dependence.of(None if n is None else n.meta["val"]) for n in grad_nodes]
    return replace(known, presences=dependence.presences, grads_of=grads_of)


def _not_detached(node: fx.Node) -> fx.Node:
    """What a value was before it was detached in place, which writes to no memory."""
    while node.target is torch.ops.aten.detach.default:
        (node,) = node.all_input_nodes
    return node


def _unread_collectives(
    tracer: JointTracer, ahead: Container[fx.Node], results: Iterable[fx.Node | None]
) -> list[fx.Node]:
    """What collectives of the backward pass give where no gradient needs it: the other processes
    wait for this one in them all the same."""
    own = [
        x for x in tracer.graph.nodes
        if x not in ahead and communicates(x.target) and isinstance(x.meta["val"], torch.Tensor)
    ]  # fmt: skip
    read = computed_from(results) if own else set()
    unread = [x for x in own if x not in read]
    return [x for x in unread if not any(communicates(user.target) for user in x.users)]


def _gradients(
    tracer: JointTracer,
    outputs: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    tangents: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor | None]:
    """What the engine makes of these cotangents; an error of its is explained."""
    try:
        if tracer.attempt.accumulate:
            tracer.draws_in_backward = False
            torch.autograd.backward(outputs, tangents)
            return [leaf.grad for leaf in leaves]
        with unlogged():
            return engine_gradients(outputs, leaves, tangents)
    except AotError:
        raise
    except RuntimeError as error:
        if REENTRANT in str(error) and not tracer.attempt.accumulate:
            raise NeedsAccumulation from error
        if any(words in str(error) for words in _WRITTEN_TO):
            raise refusal("AO0133", error=str(error).split("; expected")[0]) from error
        if is_refusal(error):
            # A derivative that is not implemented or refuses what it is given: where eager runs
            # the backward pass it raises the same.
            raise refusal("AO0134", error=error) from error
        raise refusal("AO0135", error=error) from error
    except Exception as error:
        if is_refusal(error):  # of a hook's, or of the backward of an autograd function
            raise refusal("AO0134", error=f"{type(error).__name__}: {error}") from error
        raise
