"""Dependence of backward values on cotangents, and undefined cotangents.

In: the operators of a backward pass, while they are recorded. Out: the same operators, reading
through a `where` what depends on cotangents that they do not all depend on.
Invariant: a value that depends on a set of cotangents is eager's where one of the set is defined,
and anything, NaN included, where none is; nothing but such a `where` reads it then.

Eager's engine never calls a derivative whose gradient nobody needs, and adds nothing for it. The
backward graph computes all of them, of zeros; a zero times an infinite derivative is NaN. Where two
gradients of different origin meet, the one that is undefined is replaced by zeros.

A function of the program's (a derivative of its own, a hook) is called by eager if one of its
gradients is defined, and given zeros for the others: what it computes belongs to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    autograd_nodes,
    current_backward_sequence,
    current_value,
    is_functional,
    is_of_python,
    keeps_undefined,
    node_sequence,
)
from flambeau_aot.inputs.functional_inputs import STAND_IN
from flambeau_aot.joint.nested import map_tensors, tensors_in
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import Presence

Cotangents = frozenset[int]
"""Cotangents by their order."""

_NONE: Cotangents = frozenset()

Flag = Callable[[Presence], torch.Tensor]
"""Gives the graph's input that says whether a cotangent of a set is defined."""


class Dependence:
    """The sets of one backward pass; `flags` are the inputs it needs."""

    def __init__(self, flag: Flag, select: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        """select: records a `where` of a flag, a value and zeros."""
        self._count = 0
        self._flag = flag
        self._select = select
        self._of: dict[int, Cotangents] = {}
        self._alive: list[Any] = []
        # What is zero, and not just anything, where its cotangents are undefined.
        self._clean: set[int] = set()
        self._flags: dict[Presence, torch.Tensor] = {}
        self._guarded: dict[tuple[int, Presence], torch.Tensor] = {}
        # By sequence number, functions of the program's that are not done yet.
        self._open: dict[int, Cotangents] = {}

    @property
    def presences(self) -> tuple[Presence, ...]:
        """What the flags say, in order."""
        return tuple(self._flags)

    def begin(
        self,
        outputs: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor],
        hooked: Sequence[torch.Tensor],
    ) -> None:
        """The engine will be given these cotangents of these outputs; hooks of the program's are on
        the gradients of `hooked`."""
        self._count = len(cotangents)
        for order, value in enumerate(cotangents):
            self._of[id(value)] = frozenset((order,))
            self._clean.add(id(value))
        if len(cotangents) < 2:
            return
        reached = reached_from([output.grad_fn for output in outputs])
        _refuse_undefined(outputs, reached)
        with_hooks = {tensor.grad_fn for tensor in hooked if tensor.grad_fn is not None}
        for node, own in reached.items():
            if keeps_undefined(node):
                node.register_prehook(self._refuse_absent(own))
            if is_of_python(node) and type(node).__name__ != STAND_IN:
                self._watch(node, own, node.register_hook)
            elif node in with_hooks:
                self._watch(node, own, node.register_prehook)
            if node.next_functions:
                node.register_hook(partial(self._note_constant, node))

    def _watch(self, node: Any, own: Cotangents, register: Callable[..., Any]) -> None:
        number = node_sequence(node)
        self._open[number] = own

        def done(*gradients: Any) -> None:
            """Gradients that the engine adds up afterwards are none of the function's."""
            self._open.pop(number, None)

        register(done)

    def _note_constant(self, node: Any, found: Sequence[Any], given: Sequence[Any]) -> None:
        """What a derivative gives without reading its gradients, as zeros, is defined where one of
        these is; so is what it gives, as zeros, where those that it reads are undefined."""
        sets = [self.of(current_value(x)) if is_functional(x) else _NONE for x in given]
        own = _NONE.union(*sets)
        for at, item in enumerate(found):
            if is_functional(item):
                value = current_value(item)
                known = self.of(value)
                if known and known != own and not is_of_python(node):
                    others = [
                        x if s and not s & known else None for x, s in zip(given, sets, strict=True)
                    ]
                    alone = node(*others) if any(x is not None for x in others) else None
                    if (alone[at] if isinstance(alone, tuple) else alone) is None:
                        continue
                if known != own:
                    self.note(value, own)

    def _refuse_absent(self, own: Cotangents) -> Callable[..., None]:
        """For a function that takes None: raise where its gradient would be None for some of the
        cotangents that reach it, as a function between the two answers None."""

        def check(gradients: Sequence[torch.Tensor | None]) -> None:
            defined = [item for item in gradients if item is not None]
            if any(self.of(current_value(item)) != own for item in defined):
                raise refusal("AO0136")

        return check

    def of(self, value: torch.Tensor | None) -> Cotangents:
        """The cotangents that a recorded value depends on."""
        return self._of.get(id(value), _NONE)

    def inside_of_all(self) -> bool:
        """Whether a function of the program's is being run that depends on every cotangent."""
        whole = self._inside()
        return whole is not None and len(whole) == self._count

    def _inside(self) -> Cotangents | None:
        """The cotangents of the function of the program's that is being run, if one is."""
        number = current_backward_sequence() if self._open else None
        return None if number is None else self._open.get(number)

    def given(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], Cotangents]:
        """The arguments as an operator is to read them, and what its results depend on."""
        sets = [self._of[id(item)] for item in tensors_in((args, kwargs)) if id(item) in self._of]
        own = self._inside()
        if own is None:
            own = sets[0] if sets and len(set(sets)) == 1 else _NONE.union(*sets)
        if all(item == own for item in sets):
            return args, dict(kwargs), own

        def read(value: Any) -> Any:
            known = self._of.get(id(value))
            if known is None or known == own or id(value) in self._clean:
                return value
            return self._where_defined(value, known)

        return map_tensors(args, read), map_tensors(dict(kwargs), read), own

    def note(self, result: Any, own: Cotangents, view_of: Any = None) -> None:
        """A recorded result depends on these; it may be a view."""
        if own:
            clean = id(view_of) in self._clean and self._of[id(view_of)] == own
            for value in tensors_in(result):
                self._of[id(value)] = own
                self._alive.append(value)
                if clean:
                    self._clean.add(id(value))

    def _where_defined(self, value: torch.Tensor, known: Cotangents) -> torch.Tensor:
        device = getattr(value, "fake_device", value.device)
        presence = Presence(tuple(sorted(known)), device)
        key = (id(value), presence)
        if key not in self._guarded:
            if presence not in self._flags:
                self._flags[presence] = self._flag(presence)
            self._guarded[key] = self._select(self._flags[presence], value)
            self._alive.append(value)
        return self._guarded[key]


def _refuse_undefined(outputs: Sequence[Any], reached: Mapping[Any, Cotangents]) -> None:
    """Raise where a function would be given None for one of its results in some backward passes and
    not in others: a derivative is recorded once."""
    bare = [node for node in reached if keeps_undefined(node)]
    for node in bare:
        results: dict[int, Cotangents] = {}
        for order, output in enumerate(outputs):
            if output.grad_fn is node:
                results[output.output_nr] = frozenset((order,))
        for other, own in reached.items():
            for following, place in other.next_functions:
                if following is node:
                    results[place] = results.get(place, _NONE) | own
        if len(set(results.values())) > 1:
            raise refusal("AO0136")


def reached_from(roots: Sequence[Any]) -> dict[Any, Cotangents]:
    """For each node of an autograd graph, the roots it is reached from, by their order."""
    found: dict[Any, set[int]] = {}
    for order, root in enumerate(roots):
        found.setdefault(root, set()).add(order)
    for node, following in autograd_nodes(roots):
        for other in following:
            found.setdefault(other, set()).update(found[node])
    return {node: frozenset(own) for node, own in found.items()}
