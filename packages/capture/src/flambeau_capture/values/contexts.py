"""Context managers of torch that capture enters itself: autocast.

In: their constructors' arguments. Out: `AutocastValue`. Invariant: while one is entered under
capture, fake tensors are computed in its state, and the graph holds the calls that enter and leave
it; `convert` leaves what is still entered when interpretation stops.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.callables import handles
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.methods import BoundMethod


class AutocastValue(Value):
    """torch.autocast."""

    def __init__(self, arguments: tuple[Any, ...], kind: type) -> None:
        self.arguments = arguments
        self.kind = kind
        self.live: Any = None
        self.node: Any = None

    @property
    def cls(self) -> type:
        return self.kind

    def describe(self) -> str:
        return f"autocast{self.arguments}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in ("__enter__", "__exit__"):
            return BoundMethod(self, name)
        self.unknown(f"attribute {name!r}")

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        raise Break("FB0013", "autocast as a decorator")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__enter__":
            self._enter(tx)
            return self
        if name == "__exit__":
            self._exit(tx)
            return Constant(None)
        self.unknown(f"method {name!r}")

    def _enter(self, tx: Tracer) -> None:
        tx.heap.changed()
        device, _, enabled, _ = self.arguments
        idle = not enabled and not torch.is_autocast_enabled(device)
        self.live = torch.autocast(*self.arguments)
        self.live.__enter__()
        tx.entered.append(self)
        if not idle:
            self.node = tx.graph.record_mode(
                compat.enter_autocast, self.arguments, tx.stack_trace()
            )

    def _exit(self, tx: Tracer) -> None:
        tx.heap.changed()
        tx.entered.remove(self)
        self.live.__exit__(None, None, None)
        self.live = None
        self.record_exit(tx)

    def record_exit(self, tx: Tracer) -> None:
        """Let the graph leave the mode, if it entered it."""
        if self.node is not None:
            tx.graph.record_mode(compat.exit_autocast, (self.node,), tx.stack_trace())
            self.node = None

    def reconstruct(self, writer: Any) -> None:
        with writer.building(self):
            maker = _make_autocast if self.live is None else _entered_autocast
            writer.call(maker, [Constant(argument) for argument in self.arguments])


# Modes of torch that turn `x[i]`, with tensors of no dimension for i, into aten's `index`.
INDEXING_MODES = frozenset({"TransformGetItemToIndex"})


class IndexingMode(Value):
    """A mode of `INDEXING_MODES`."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.inside = False

    @property
    def cls(self) -> type:
        return self.kind

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in ("__enter__", "__exit__"):
            return BoundMethod(self, name)
        self.unknown(f"attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        tx.heap.changed()
        self.inside = name == "__enter__"
        tx.indexing += 1 if self.inside else -1
        return self if self.inside else Constant(None)

    def reconstruct(self, writer: Any) -> None:
        with writer.building(self):
            if self.inside:
                writer.call(_entered, [Constant(self.kind)])
            else:
                writer.call(self.kind, [])


def _entered(kind: Any) -> Any:
    made = kind()
    made.__enter__()
    return made


def _make_autocast(*arguments: Any) -> Any:
    return torch.autocast(*arguments)


def _entered_autocast(*arguments: Any) -> Any:
    made = torch.autocast(*arguments)
    made.__enter__()
    return made


def _autocast(kind: type, device: str | None) -> Any:
    def make(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        try:
            plain = [arg.as_python() for arg in args]
            named = {key: arg.as_python() for key, arg in kwargs.items()}
        except NotConcrete as error:
            raise Break("FB0013", f"autocast with {error}") from None
        if device is not None:
            raise Break("FB0013", f"{kind.__module__}.autocast; use torch.autocast")
        made = torch.autocast(*plain, **named)
        arguments = (made.device, made.fast_dtype, made._enabled, made._cache_enabled)
        return AutocastValue(arguments, kind)

    return make


handles(torch.autocast)(_autocast(torch.autocast, None))
handles(torch.cuda.amp.autocast)(_autocast(torch.cuda.amp.autocast, "cuda"))
handles(compat.CPU_AUTOCAST)(_autocast(compat.CPU_AUTOCAST, "cpu"))
