"""Derivatives of a compiled program, compiled at first use.

What comes in: a traced program and the way programs are compiled. What goes out: a callable from
the values of its inputs and cotangents to gradients that can themselves be differentiated.
Invariant: nothing is traced or compiled before the first backward pass with `create_graph=True`; a
derivative that cannot be compiled is run eagerly.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flambeau_aot.errors import AotError
from flambeau_aot.higher_order.bodies import NAMESPACE as BRANCHES
from flambeau_aot.higher_order.derivative import Needs, derivative, needs, read_after_all
from flambeau_aot.higher_order.eager_derivative import eager_derivative, same_memory
from flambeau_aot.joint.ambient_state import Ambient
from flambeau_aot.joint.program import InputProgram
from flambeau_aot.joint.trace import Joint
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.autograd_function import HigherOrder
from flambeau_aot.runtime.call import Compiled
from flambeau_aot.runtime.random import Streams, replayed
from flambeau_aot.runtime.result_nodes import Request
from flambeau_aot.runtime.visits import Visits

Derive = Callable[..., Sequence[torch.Tensor | None]]
CompileProgram = Callable[[InputProgram, Sequence[Any]], Compiled]


def warn_of(error: Exception) -> None:
    """Say that a derivative runs eagerly, and why."""
    warnings.warn(f"a derivative of a compiled program runs eagerly: {error}", stacklevel=2)


@dataclass
class Derivatives:
    """The derivatives of one compiled program, one for each set of cotangents that need grad.

    compiled: None for one that runs eagerly. told: is called with why, once for each. apart: makes
    of a function one that whoever has captured the program does not look into. observed: whether a
    pass has run eagerly for what the caller has put on results.
    """

    program: InputProgram
    joint: Joint
    ambience: Ambient
    compile: CompileProgram
    name: str
    compiled: dict[Any, Compiled | None] = field(default_factory=dict)
    told: Callable[[Exception], None] = field(default=warn_of)
    apart: Callable[[Derive], Derive] = field(default=lambda derive: derive)
    lock: threading.Lock = field(default_factory=threading.Lock)
    observed: bool = False

    def __post_init__(self) -> None:
        self.needs: Needs = needs(self.program, self.joint)

    def refused(self) -> AotError | None:
        """Why there is no derivative; None where there is one."""
        name, plan = self.name, self.joint.plan
        if self.needs.written:
            names = ", ".join(self.joint.primals[index].name for index in self.needs.written)
            return refusal("AO0147", name=name, names=names)
        if plan.inputs.merged or plan.begin_grad or plan.end_grad:
            return refusal("AO0148", name=name)
        if any(getattr(n.target, "namespace", "") == BRANCHES for n in self.joint.graph.nodes):
            return refusal("AO0149", name=name)
        if self.needs.unrepeatable:
            return refusal("AO0150", name=name, draws=", ".join(self.needs.unrepeatable))
        return None

    def uncompiled(self) -> AotError | None:
        """Why the derivative is not compiled, though there is one; None where it is."""
        if self.joint.late_writes:
            return refusal("AO0151", name=self.name)
        return refusal("AO0152", name=self.name) if self.joint.sparse else None

    def higher_order(self) -> HigherOrder:
        """What the autograd function needs to know of these derivatives."""
        needed = self.needs
        refused = self.refused()
        why, kept = (refused.message, ()) if refused else ("", needed.kept)
        return HigherOrder(needed.read, needed.statics, needed.draws, why, self, kept)

    def __call__(
        self,
        read: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        streams: Streams,
        symbols: Sequence[int] = (),
        visits: Visits | None = None,
        request: Request | None = None,
    ) -> Sequence[torch.Tensor | None]:
        """Gradients, of those primals that have one, as part of the autograd graph.

        read: the primals of `needs.handed`, with their history. streams: the
        random streams as they were before the program ran. symbols: values of the open sizes; a
        derivative is compiled for each, and for each set of defined cotangents. request: what
        is wanted where results depend on others; such a pass runs eagerly. visits: is told when
        nodes of a derivative are run.
        """
        if all(grad is None for grad in self.joint.grads[: len(self.joint.primals)]):
            return []
        return self.apart(self._derived)(read, cotangents, streams, symbols, visits, request)

    def _derived(
        self,
        read: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        streams: Streams,
        symbols: Sequence[int],
        visits: Visits | None,
        request: Request | None,
    ) -> Sequence[torch.Tensor | None]:
        own = (self.program, self.joint, self.needs, self.ambience, read, cotangents, symbols)
        if request:
            self._tell_of_observers()
            with replayed(streams):
                return eager_derivative(*own, visits, request)
        defined = tuple(place for place, item in enumerate(cotangents) if item is not None)
        known = [item for item in cotangents if item is not None]
        pattern = (defined, tuple(map(_standing, known)), tuple(symbols))
        if pattern not in self.compiled:
            with self.lock:
                if pattern not in self.compiled:
                    entry = self._compiled_or_told([*read, *known], symbols, defined)
                    self.compiled[pattern] = entry
        entry = self.compiled[pattern]
        with replayed(streams):
            if entry is None:
                return eager_derivative(*own, visits=visits)
            grads: Sequence[torch.Tensor | None] = entry(*read, *known)
        if visits is not None and not entry.linear:
            nodes = {grad.grad_fn for grad in grads if grad is not None and grad.grad_fn}
            for node in nodes:
                node.register_prehook(lambda _: visits.note("derived"))
        return grads

    def _tell_of_observers(self) -> None:
        if not self.observed:
            self.observed = True
            self.told(refusal("AO0153", name=self.name))

    def _compiled_or_told(
        self, examples: Sequence[torch.Tensor], symbols: Sequence[int], defined: Sequence[int]
    ) -> Compiled | None:
        """The compiled derivative; None, and `told` why, where it is run eagerly: a program that
        was compiled is differentiated whatever comes."""
        try:
            if reason := self.uncompiled():
                raise reason
            return self._compile(examples, symbols, defined)
        except Exception as error:
            self.told(error)
            return None

    def _compile(
        self, examples: Sequence[torch.Tensor], symbols: Sequence[int], defined: Sequence[int]
    ) -> Compiled:
        name = f"{self.name}_derivative"
        program = derivative(self.program, self.joint, self.needs, name, symbols, defined)
        # Objects of their own: that two cotangents are one tensor now holds for this call only.
        own = [_of_its_own(item) for item in examples]
        with self.ambience.restored():
            compiled = self.compile(program, own)
        assert compiled.joint is not None
        read = read_after_all(compiled.joint)
        if read:
            raise refusal("AO0154", name=self.name, read=", ".join(read))
        return compiled


def _standing(cotangent: torch.Tensor) -> tuple[bool, bool]:
    """What autograd makes of a write to a cotangent, as a backward formula may do one."""
    return cotangent.requires_grad, cotangent.is_leaf


def _of_its_own(example: torch.Tensor) -> torch.Tensor:
    """Another tensor of the same memory, a leaf exactly if this one is."""
    own = example.detach().requires_grad_(example.requires_grad)
    return own if example.is_leaf else same_memory(own)
