"""A stored program around the captured graph that it was compiled from.

What comes in: a stored program, the graph, the compiled halves, the inputs at hand. What goes out:
a `Compiled` that has everything a fresh one has but the graphs of its compile.
Invariant: nothing is traced before something is asked for that data cannot say: arguments that
share memory in another way, a derivative of second order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import FakeTensorMode
from flambeau_aot.errors import AotError
from flambeau_aot.info import Boxed
from flambeau_aot.joint.ambient import Ambient, ambient
from flambeau_aot.program import of_graph_module
from flambeau_aot.runtime.call import Compiled
from flambeau_aot.runtime.random import Streams
from flambeau_aot.saved import Stored, restore

Recompile = Callable[[Sequence[Any]], Compiled]


@dataclass(frozen=True)
class Like:
    """What is remembered of an argument: enough to trace with, and no memory."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    leaf: bool

    def fake(self) -> torch.Tensor:
        """A fake tensor like it."""
        made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        if not self.requires_grad:
            return made
        made.requires_grad_()
        if self.leaf:
            return made
        with torch.enable_grad():
            return made * 1  # has a history, as the argument had


@dataclass
class LateDerivatives:
    """The derivatives of a restored program: it is compiled in full when one is asked for."""

    recompile: Recompile
    inputs: tuple[Any, ...]
    ambience: Ambient
    grad_mode: bool
    compiled: Compiled | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(
        self,
        read: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor],
        streams: Streams,
        symbols: Sequence[int] = (),
    ) -> Sequence[torch.Tensor]:
        """Gradients as part of the autograd graph."""
        with self.lock:
            if self.compiled is None:
                self.compiled = self._compile()
        higher = self.compiled.higher
        if higher is None:
            raise AotError(f"{self.compiled.report.name} has no derivatives")
        return higher.call(read, cotangents, streams, symbols)

    def _compile(self) -> Compiled:
        with FakeTensorMode(), torch.inference_mode(False):
            fakes = [each.fake() if isinstance(each, Like) else each for each in self.inputs]
        with self.ambience.restored(), torch.set_grad_enabled(self.grad_mode):
            return self.recompile(fakes)


def like(value: Any) -> Any:
    """What is remembered of an argument."""
    if not isinstance(value, torch.Tensor):
        return value
    return Like(
        tuple(value.shape),
        tuple(value.stride()),
        value.dtype,
        value.device,
        value.requires_grad,
        value.is_leaf,
    )


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
    late = LateDerivatives(recompile, tuple(map(like, inputs)), ambient(), torch.is_grad_enabled())
    return restore(stored, program.static, forward, backward, late, recompile)


def static_tensors(gm: fx.GraphModule) -> tuple[torch.Tensor, ...]:
    """The tensors that a captured graph is bound to, in the order of a compiled program's."""
    return of_graph_module(gm, "graph").static
