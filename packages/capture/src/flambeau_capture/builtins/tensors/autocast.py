"""Autocast objects: those made before the frame, and the older spellings.

In: `@torch.autocast(...)` around a function, `ctx = torch.autocast(...)` made once and entered in
every call, `torch.cuda.amp.autocast(...)`. Out: `AutocastValue`. Invariant: an object is what its
four settings say, which are guarded; what it keeps of the state outside is not looked at.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.source import Attr, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.functions.callables import breaks, handles
from flambeau_capture.values.higher_order.context_managers import (
    AutocastValue,
    autocast_arguments,
    autocast_settings,
)
from flambeau_capture.values.registry import tracked, wraps_type

OLDER = {torch.cuda.amp.autocast: "cuda", compat.CPU_AUTOCAST: "cpu"}


class ExistingAutocast(AutocastValue):
    """One that outlives the call."""

    def __init__(self, real: Any, source: Source) -> None:
        super().__init__(torch.autocast, autocast_settings(real))
        self.real = real
        self.source = source

    @property
    def cls(self) -> type:
        return type(self.real)

    def enter(self, tx: Tracer) -> Value:
        if self.live is not None:  # it keeps one state to return to, not two
            raise Break("FB0013", "an autocast object that is entered already")
        return super().enter(tx)

    def reconstruct(self, writer: Any) -> None:
        if self.live is None:
            writer.load_source(self.source)
        else:
            super().reconstruct(writer)


@wraps_type(torch.autocast)
@tracked
def wrap_autocast(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", type(obj))
    for name, setting in zip(compat.AUTOCAST_SETTINGS, autocast_settings(obj), strict=True):
        tx.guard(Attr(source, name), "CONSTANT_MATCH", setting)
    return ExistingAutocast(obj, source)


# what leaves one that was entered before a break: torch's own, in one piece
breaks("FB0013", torch.autocast.__enter__, torch.autocast.__exit__)

for _kind in OLDER:
    wraps_type(_kind)(wrap_autocast)


def _older(kind: Any, device: str) -> None:
    @handles(kind)
    def make(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        plain, named = autocast_arguments(args, kwargs)
        text = getattr(kind, "__deprecated__", None)
        if text is not None:
            tx.call_python(warnings.warn, [Constant(text), tx.wrap_new(FutureWarning)])
        bound = evaluate(tx, inspect.signature(kind.__init__).bind, None, *plain, **named)
        bound.apply_defaults()
        settings = dict(list(bound.arguments.items())[1:])
        return AutocastValue(torch.autocast, autocast_settings(torch.autocast(device, **settings)))


for _kind, _device in OLDER.items():
    _older(_kind, _device)
