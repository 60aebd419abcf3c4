"""Results by their shape alone, on fake tensors: recurrent layers, the CTC loss, affine grids.

In: a call of `torch.lstm` and its like, of `ctc_loss`, of `affine_grid`. Out: its result, made of
that over one step of time, of a sum, of one place of the grid. Invariant: sizes, memory order,
dtypes and history are those of the call, and no symbol is decided, where torch's own rule goes
through the steps one by one, reads lengths, or takes plain integers. Tried on torch 2.13.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

_RECURRENT = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})
_CTC = frozenset({torch.ctc_loss, torch.nn.functional.ctc_loss})
_GRIDS = frozenset({torch.affine_grid_generator, torch.nn.functional.affine_grid})
BY_SHAPE = _RECURRENT | _CTC | _GRIDS


def result_by_shape(target: Any, args: Any, kwargs: Any) -> Any:
    """The fake result of a call of one of these; None: torch's own rule is as good."""
    if target in _RECURRENT:
        return _recurrent_by_shape(target, args, kwargs)
    return (_ctc_by_shape if target in _CTC else _grid_by_shape)(args, kwargs)


def _grid_by_shape(args: Any, kwargs: Any) -> Any:
    given = dict(zip(("theta", "size", "align_corners"), args)) | kwargs
    theta, size = given.get("theta"), given.get("size", ())
    open_sizes = [n for n in size if isinstance(n, torch.SymInt)]
    dims = len(size) - 2
    if not isinstance(theta, FakeTensor) or not open_sizes or dims not in (2, 3):
        return None
    refused = (
        not theta.is_floating_point() or theta.dim() != 3 or given.get("align_corners") is None
    )
    if refused or tuple(theta.shape) != (size[0], dims, dims + 1) or not all(n > 0 for n in size):
        return None  # in its own words
    grid = theta.sum(2).view(size[0], *[1] * dims, dims)
    return grid.expand(size[0], *size[2:], dims).clone(memory_format=torch.contiguous_format)


def _ctc_by_shape(args: Any, kwargs: Any) -> Any:
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
