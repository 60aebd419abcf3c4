"""Autocast cache: one cast of a leaf for all its readers.

What comes in: the stand-ins of a program's inputs, and the arguments of a call under autocast. What
goes out: the arguments with the leaf in place of its stand-in, where the input is such that eager's
autocast remembers its cast.
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

_NAMES = (
    *("matmul", "__matmul__", "__rmatmul__", "mm", "mv", "bmm", "addmm", "addmv", "addr"),
    *("addbmm", "baddbmm", "chain_matmul", "linear", "prelu", "scaled_dot_product_attention"),
    *("conv1d", "conv2d", "conv3d", "conv_tbc", "convolution"),
    *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "multi_head_attention_forward"),
    *("lstm", "gru", "rnn_tanh", "rnn_relu"),
    *("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"),
)

_OWNERS = (torch, torch.Tensor, functional, torch.ops.aten)

CASTING: frozenset[Any] = frozenset(
    getattr(owner, name) for owner in _OWNERS for name in _NAMES if hasattr(owner, name)
) | {torch.linalg.multi_dot, torch.linalg.vecdot}
"""Functions whose arguments autocast casts to its dtype; none returns a view of one."""

# The functions that differentiate, with the place of the argument `inputs`.
DIFFERENTIATED_BY: dict[Any, int] = {
    torch.autograd.grad: 1,
    torch.autograd.backward: 5,
    torch.Tensor.backward: 4,
}


class AutocastCache:
    """The inputs of a program that are leaves to eager, and views of nothing."""

    def __init__(self, stand_ins: Sequence[FunctionalInput]) -> None:
        self.of = {
            id(item.wrapper): item for item in stand_ins if item.leaf is not None and item.cast_once
        }

    def given(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments that autocast is to see."""
        if not self.of or not torch.is_autocast_cache_enabled():
            return args, kwargs
        shown: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(self._leaf, (args, kwargs))
        return shown

    def asked(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of `torch.autograd.grad` and its like, where the program differentiates by
        inputs: a cast was made of the leaf, beside the stand-in, which is made of the leaf too.
        A cotangent stays the stand-in: the gradient may be the cotangent itself."""

        def leaf(value: Any) -> Any:
            item = self.of.get(id(value))
            return item.leaf if item is not None and value.grad_fn is item.history else value

        place = DIFFERENTIATED_BY[func]
        by = pytree.tree_map(leaf, args[place : place + 1])
        given = (*args[:place], *by, *args[place + 1 :])
        if "inputs" in kwargs:
            kwargs = {**kwargs, "inputs": pytree.tree_map(leaf, kwargs["inputs"])}
        return given, kwargs

    def _leaf(self, argument: Any) -> Any:
        item = self.of.get(id(argument))
        if item is None:
            return argument
        device = item.value.device.type
        if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
            return argument
        unwritten = version(argument) == item.version and current_value(argument) is item.value
        return item.leaf if unwritten else argument
