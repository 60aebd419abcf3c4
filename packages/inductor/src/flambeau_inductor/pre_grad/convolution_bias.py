"""Separation of convolution biases on GPUs.

In: a captured graph of torch functions, on fake tensors. Out: the same graph, in which convolutions
have no bias and an addition follows. Invariant: the library adds a bias to the rounded result of a
convolution, in a kernel of its own, so that values and dtypes stay; the addition is part of the
kernel that comes next.
"""

from __future__ import annotations

import torch
from torch import Tensor, fx

from flambeau_inductor.passes.match import op_of, val_of
from flambeau_inductor.passes.rewriter import Call, Ledger, Match, Rule, Value, rewrite_module

CONVOLUTIONS = {f"{kind}{dims}d": dims for kind in ("conv", "conv_transpose") for dims in (1, 2, 3)}
"""Function: how many dimensions come behind the channels."""


def _separate_bias(m: Match) -> fx.Node | None:
    """The sum of a convolution of floating point numbers on a GPU and its bias."""
    made, bias, column = val_of(m.root), val_of(m["bias"]), m["bias"]
    if not isinstance(made, Tensor) or not isinstance(bias, Tensor):
        return None
    if made.device.type != "cuda" or not made.is_floating_point():
        return None
    if bias.dtype != made.dtype:  # as under autocast
        column = m.call("to", column, made.dtype)
    column = m.call("view", column, -1, *(1,) * CONVOLUTIONS[op_of(m.root) or ""])
    image, weight, _, *settings = m.root.args
    bare = m.call(m.root.target, image, weight, None, *settings, **m.root.kwargs)
    bare.meta = dict(m.root.meta)
    return m.call(torch.add, bare, column)


_OPERANDS = (Value(), Value(), Value("bias"))
_CONVOLUTION = Call(frozenset(CONVOLUTIONS), _OPERANDS, lambda node: True)
RULES = (Rule("separate_convolution_biases", (_CONVOLUTION,), _separate_bias),)


def separate_convolution_biases(gm: fx.GraphModule, ledger: Ledger | None = None) -> int:
    """Take the biases out of the convolutions of `gm`; how many were."""
    return rewrite_module(gm, RULES, ledger)
