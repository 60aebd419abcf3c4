"""Packed sequences, whose layout is data-dependent.

In: calls of torch's functions that pack and unpack, and of recurrent layers on what is packed. Out:
a break at the call, which then runs as a whole in Python: what such a function does step by step
depends on the lengths. Invariant: a recurrent layer on a plain tensor is none of this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType

import torch
from torch.nn.utils import rnn

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, Kwargs, Tracer
from flambeau_capture.values.functions.callables import RULES, Action, CallRule, breaks
from flambeau_capture.values.functions.functions import FunctionValue

_REASON = "FB0004"
LAYERS = frozenset(kind.forward for kind in (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU))

breaks(
    _REASON, rnn.pack_padded_sequence, rnn.pack_sequence, rnn.pad_packed_sequence,
    rnn.unpad_sequence,
)  # fmt: skip


def _refuse_packed(tx: Tracer, fn: FunctionValue, args: Args, kwargs: Kwargs) -> None:
    """Break at the call of a recurrent layer on a packed sequence."""
    for given in (*args[1:2], *kwargs.values()):
        if issubclass(given.cls, rnn.PackedSequence):
            raise Break(_REASON, f"{fn.qualname} of a packed sequence")


for _layer in LAYERS:
    RULES[_layer] = CallRule(Action.INLINE, handler=_refuse_packed, of_called=True)


def is_packed_call(fn: FunctionType, arguments: Mapping[str, object]) -> bool:
    """Whether a frame is a recurrent layer's on a packed sequence, which Python runs as it is."""
    if fn.__module__ != torch.nn.RNNBase.__module__:
        return False
    if fn.__name__ != "forward":
        return True  # what a layer that runs in Python calls
    return isinstance(arguments.get("input"), rnn.PackedSequence)
