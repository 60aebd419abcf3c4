"""Lazy retrace of a loaded program from its captured graph.

In: a stored program, the graph, the compiled halves, the inputs at hand. Out: a `Compiled` that has
everything a fresh one has but the graphs of its compile.
Invariant: nothing is traced before something is needed that data cannot say: arguments that share
memory in another way, a derivative of second order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import FakeTensorMode, expression_of
from flambeau_aot.errors import AotError
from flambeau_aot.interface import Boxed
from flambeau_aot.joint.program import of_graph_module
from flambeau_aot.runtime.ambient_state import Ambient, ambient
from flambeau_aot.runtime.call import Compiled
from flambeau_aot.runtime.pullbacks import Gradient
from flambeau_aot.runtime.saved_values import DerivativeCall
from flambeau_aot.runtime_plan import SymbolPlace
from flambeau_aot.serialize.saved_program import Stored, restore
from flambeau_aot.serialize.saved_subclasses import restore_around
from flambeau_aot.sizes import Sized, TensorLayout, has_symbols, is_symbolic, sized

Recompile = Callable[[Sequence[Any]], Compiled]
"""Compiles the program for the metadata of these inputs, which leave no size open."""


@dataclass(frozen=True)
class Like:
    """What is remembered of an argument: enough to trace with, and no memory."""

    layout: TensorLayout
    requires_grad: bool
    leaf: bool

    def __call__(self, symbols: Sequence[int]) -> torch.Tensor:
        """A fake tensor like it, at these values of the open sizes."""
        made = self.layout.at(symbols).empty().requires_grad_(self.requires_grad)
        if self.leaf or not self.requires_grad:
            return made
        with torch.enable_grad():
            return made * 1  # has a history, as the argument had


@dataclass
class LateDerivatives:
    """The derivatives of a restored program: it is compiled in full when one is needed, for each
    values of its open sizes.

    inputs: what is remembered of each; a number is a `Sized`. read: primals that a call hands over.
    """

    recompile: Recompile
    inputs: tuple[Any, ...]
    read: tuple[int, ...]
    ambience: Ambient
    grad_mode: bool
    compiled: dict[tuple[int, ...], Compiled] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, call: DerivativeCall) -> Sequence[Gradient]:
        """Gradients as part of the autograd graph."""
        symbols = tuple(call.symbols)
        with self.lock:
            if (compiled := self.compiled.get(symbols)) is None:
                compiled = self.compiled[symbols] = self._compile(symbols)
        higher = compiled.higher
        if higher is None:
            raise AotError(f"{compiled.report.name} has no derivatives")
        if higher.read != self.read and not higher.refusal:
            raise AotError(
                f"{compiled.report.name} reads other inputs at the sizes {symbols} than "
                "where it was compiled first: no derivative of second order"
            )
        assert higher.call is not None
        return higher.call(replace(call, symbols=()))

    def _compile(self, symbols: Sequence[int]) -> Compiled:
        with FakeTensorMode(), torch.inference_mode(False):
            fakes = [x(symbols) if isinstance(x, Like | Sized) else x for x in self.inputs]
        with self.ambience.restored(), torch.set_grad_enabled(self.grad_mode):
            return self.recompile(fakes)


def like(value: Any, stand_in: Any = None, symbols: Sequence[Any] = ()) -> Any:
    """What is remembered of an argument.

    stand_in: what stood for it in the graph; `symbols` are those of its sizes, in the order in
    which their values will be given.
    """
    if not isinstance(value, torch.Tensor):
        return sized(stand_in, symbols) if is_symbolic(stand_in) else value
    layout = TensorLayout.of(value)
    if isinstance(stand_in, torch.Tensor) and has_symbols(stand_in):
        layout = replace(layout, sized=TensorLayout.of(stand_in, symbols).sized)
    return Like(layout, value.requires_grad, value.is_leaf)


def restore_graph(
    stored: Stored,
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    forward: Boxed,
    backward: Boxed | None,
    recompile: Recompile,
) -> Compiled:
    """A stored program of `gm`, whose tensors it is bound to."""
    program = of_graph_module(gm, stored.report.name)
    if stored.around is not None:
        return restore_around(stored, program, gm, inputs, forward, backward)
    stand_ins = program.symbolic or (None,) * len(inputs)
    symbols = [_symbol(stand_ins[each.position], each) for each in stored.plan.inputs.symbols]
    remembered = tuple(
        like(value, stand_in, symbols) for value, stand_in in zip(inputs, stand_ins, strict=True)
    )
    read = stored.higher.read if stored.higher else ()
    late = LateDerivatives(recompile, remembered, read, ambient(), torch.is_grad_enabled())
    return restore(stored, program.static, forward, backward, late, recompile)


def _symbol(stand_in: Any, place: SymbolPlace) -> Any:
    """The symbol whose value a call finds at a place; a number where it is known to be one."""
    number = stand_in
    if place.dim is not None:
        sizes = stand_in.stride() if place.stride else stand_in.shape
        number = sizes[place.dim]
    return expression_of(number) if is_symbolic(number) else number


def static_tensors(gm: fx.GraphModule) -> tuple[torch.Tensor, ...]:
    """The tensors that a captured graph is bound to, in the order of a compiled program's."""
    return of_graph_module(gm, "graph").static
