"""Recurrent layers over open lengths and packed sequences, and the CTC loss, on fake tensors.

In: a call of `torch.lstm` and its like, or of `ctc_loss`. Out: its
result, made of that over one step of time; of a sum over all steps. Invariant: sizes, memory order,
dtypes and history are those of the call, and no symbol is decided, where torch's own rule goes
through the steps one by one, or reads the lengths. Tried on torch 2.13.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

_RECURRENT = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})
_CTC = frozenset({torch.ctc_loss, torch.nn.functional.ctc_loss})
BY_SHAPE = _RECURRENT | _CTC


def result_by_shape(target: Any, args: Any, kwargs: Any) -> Any:
    """The fake result of a call of one of these; None: torch's own rule is as good."""
    rule = _ctc_by_shape if target in _CTC else _recurrent_by_shape
    return rule(target, args, kwargs)


def _ctc_by_shape(target: Any, args: Any, kwargs: Any) -> Any:
    names = inspect.signature(torch.nn.functional.ctc_loss).parameters
    given = dict(zip(names, args)) | kwargs
    log_probs = given.get("log_probs")
    if not isinstance(log_probs, FakeTensor):
        return None
    each = log_probs.sum((0, 2)) if log_probs.dim() == 3 else log_probs.sum()
    return each if given.get("reduction", "mean") in ("none", 0) else each.sum()


def _recurrent_by_shape(target: Any, args: Any, kwargs: Any) -> Any:
    """The fake result of a layer over a number of steps that is open, or of a packed sequence;
    None: it is no such call."""
    if len(args) != 9 or kwargs or not isinstance(args[0], FakeTensor):
        return None
    if isinstance(args[3], list | tuple):  # each step of each sequence as one of the batch
        data, _, states, parameters, *rest = args
        data, several = data.unsqueeze(0), isinstance(states, list | tuple)
        starts = list(states) if several else [states]
        begun = [each.narrow(1, 0, 1).expand(-1, data.shape[1], -1) for each in starts]
        values, *ends = target(data, begun if several else begun[0], parameters, *rest, False)
        ends = [one + end.sum(1, True) for one, end in zip(starts, ends, strict=True)]
        return (values.squeeze(0), *ends)
    data, first = args[0], args[8]
    if data.dim() != 3 or not isinstance(data.shape[bool(first)], torch.SymInt):
        return None
    steps = data.shape[bool(first)]
    values, *ends = target(data.narrow(int(first), 0, 1), *args[1:])
    values = values.transpose(0, 1) if first else values
    values = values.expand(steps, -1, -1).clone(memory_format=torch.contiguous_format)
    return (values.transpose(0, 1) if first else values, *ends)
