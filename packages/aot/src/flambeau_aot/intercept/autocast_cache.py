"""Autocast cache: one cast of a leaf for all its readers.

In: the stand-ins of a program's inputs, and the arguments of a call under autocast. Out: the
arguments with the leaf in place of its stand-in, where the input is such that eager's autocast
remembers its cast.
Invariant: autocast itself decides, casts and forgets; it is only shown what it sees in eager. So
the gradients of all uses are summed in the lower precision, and cast back once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from flambeau_aot._torch_compat import current_value, pytree, version
from flambeau_aot.inputs.functional_inputs import FunctionalInput
from flambeau_aot.intercept.registry import Call, Interception, intercept
from flambeau_aot.refusals import refusal

_NAMES = (
    *("matmul", "__matmul__", "__rmatmul__", "mm", "mv", "bmm", "addmm", "addmv", "addr"),
    *("addbmm", "baddbmm", "chain_matmul", "linear", "prelu", "scaled_dot_product_attention"),
    *("conv1d", "conv2d", "conv3d", "conv_tbc", "convolution"),
    *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "multi_head_attention_forward"),
    *("lstm", "gru", "rnn_tanh", "rnn_relu"),
    *("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"),
)

_OWNERS = (torch, torch.Tensor, functional, torch.ops.aten)

_CASTING = frozenset(
    getattr(owner, name) for owner in _OWNERS for name in _NAMES if hasattr(owner, name)
) | {torch.linalg.multi_dot, torch.linalg.vecdot}
"""Functions whose arguments autocast casts to its dtype; none returns a view of one."""

_DIFFERENTIATED_BY: dict[Any, int] = {
    torch.autograd.grad: 1,
    torch.autograd.backward: 5,
    torch.Tensor.backward: 4,
}
"""The functions that differentiate, with the place of the argument `inputs`."""


class AutocastCache:
    """The inputs of a program that are leaves to eager, and views of nothing."""

    def __init__(self, stand_ins: Sequence[FunctionalInput]) -> None:
        self.of = {id(item.wrapper): item for item in stand_ins if item.facts.cast_once}

    def leaf_of(self, argument: Any) -> Any:
        """What autocast is to see of an argument."""
        item = self.of.get(id(argument))
        if item is None:
            return argument
        device = item.value.device.type
        if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
            return argument
        unwritten = version(argument) == item.version and current_value(argument) is item.value
        return item.leaf if unwritten else argument


@intercept(*_CASTING, arguments=True)
def cast_once(trace: Interception, call: Call) -> Any:
    """Autocast is given leaves, whose casts it remembers."""
    if trace.casts.of and torch.is_autocast_cache_enabled():
        given = (call.args, call.kwargs)
        call.args, call.kwargs = pytree.tree_map(trace.casts.leaf_of, given)
    return NotImplemented


@intercept(*_DIFFERENTIATED_BY, arguments=True)
def differentiated_by(trace: Interception, call: Call) -> Any:
    """Inputs are differentiated by as leaves: a cast was made of the leaf, and not of the stand-in,
    which is made of the leaf too. A cotangent stays the stand-in: the gradient may be the cotangent
    itself. Hooks that the program puts on inputs would not see what is computed here."""
    if trace.tracer.input_hooks.found:
        raise refusal("AO0059")

    def leaf(value: Any) -> Any:
        item = trace.casts.of.get(id(value))
        return item.leaf if item is not None and value.grad_fn is item.history else value

    place, args = _DIFFERENTIATED_BY[call.func], call.args
    by = pytree.tree_map(leaf, args[place : place + 1])
    call.args = (*args[:place], *by, *args[place + 1 :])
    if "inputs" in call.kwargs:
        call.kwargs = {**call.kwargs, "inputs": pytree.tree_map(leaf, call.kwargs["inputs"])}
    return NotImplemented
