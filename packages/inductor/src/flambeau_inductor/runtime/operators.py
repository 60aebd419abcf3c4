"""Lookup of library operators by name.

In: the qualified name of an overload (`aten.mm.out`). Out: what the wrapper calls. Invariant: the
callable takes the overload's arguments by the overload's names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from flambeau_inductor._torch_compat import COLLECTIVES, WAIT, communicating, overload_of
from flambeau_inductor.runtime.cpu.blocked_linear import dense
from flambeau_inductor.runtime.cpu.packed_weights import (
    PackedConvolution,
    PackedLinear,
    PackedOneDnn,
)
from flambeau_inductor.runtime.cpu.random import BERNOULLI, bernoulli

FOR_BACKWARD: Mapping[str, int] = {"aten.mkldnn_rnn_layer.default": 3}
"""Operators that make what their backward needs, the result at this position, only where gradients
are on. Its shape rule does not know its size and says 0 elements."""


def for_backward(target: str) -> str:
    """Name of the operator when its backward will follow."""
    return f"{target}.for_backward"


def _recurrent_for_backward(*args: Any) -> tuple[Any, ...]:
    given = (each.detach() if isinstance(each, Tensor) else each for each in args)
    with torch.enable_grad():
        *results, workspace = overload_of("aten.mkldnn_rnn_layer.default")(*given)
    return *results, workspace.as_strided((0,), (1,))  # it keeps the memory


def _recurrent_backward(*args: Any) -> Any:
    *others, workspace = args
    whole = workspace.as_strided((workspace.untyped_storage().nbytes(),), (1,), 0)
    return overload_of("aten.mkldnn_rnn_layer_backward.default")(*others, whole)


# operators whose hidden memory has to cross from a forward graph to its backward
CROSSING: Mapping[str, Callable[..., Any]] = {
    for_backward("aten.mkldnn_rnn_layer.default"): _recurrent_for_backward,
    "aten.mkldnn_rnn_layer_backward.default": _recurrent_backward,
}

# torch's own bindings take the same arguments and cost half of what an overload object does
BINDINGS: Mapping[str, Callable[..., Any]] = {
    "aten.mm.out": torch.mm,
    "aten.bmm.out": torch.bmm,
    "aten.addmm.out": torch.addmm,
    "aten.baddbmm.out": torch.baddbmm,
}

# positions of the weight of oneDNN's operators
WEIGHT: Mapping[str, int] = {
    "mkldnn._linear_pointwise.default": 1,
    "mkldnn._linear_pointwise.binary": 2,
}

# the CPU's fused attention, and how many of its first arguments it reads rows of, whatever their
# strides say
ROWS: Mapping[str, int] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": 3,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": 5,
}


def _of_rows(target: str) -> Callable[..., Any]:
    call, count = overload_of(target), ROWS[target]

    def called(*args: Any, attn_mask: Tensor | None = None, **others: Any) -> Any:
        mask = attn_mask
        if mask is not None and mask.stride(-1) not in (0, 1):
            mask = mask.contiguous()
        rows = (each if each.stride(-1) == 1 else each.contiguous() for each in args[:count])
        return call(*rows, *args[count:], attn_mask=mask, **others)

    return called


PACKED: Mapping[str, Callable[[], Callable[..., Any]]] = {
    "aten.convolution.default": PackedConvolution,
    "mkldnn._convolution_pointwise.default": PackedOneDnn,
    "mkldnn._linear_pointwise.default": PackedLinear,
}
"""Operators of which there is a form that keeps the weight, its second argument, packed."""


ROWS_ADDED = "flambeau.rows_added.default"
"""A call by its name in programs, whose place kernels take on a GPU."""


def rows_added(
    rows: Tensor, values: Tensor, count: int, dtype: torch.dtype, base: Tensor | None
) -> Tensor:
    """`base` (zeros, where there is none) of `count` rows, with `values` added in float32 to those
    at `rows`. A negative position counts from the end; one outside raises IndexError."""
    width = values.shape[1]
    wide = values.new_zeros((count, width), dtype=torch.float32) if base is None else base.float()
    return wide.index_put((rows,), values.float(), accumulate=True).to(dtype)


WIDENED_PRODUCT = "flambeau.widened_product.default"
"""A call by its name in programs, whose place a template takes on a GPU."""


def widened_product(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` of matrices, `b` as the dtype of `a`."""
    return torch.mm(a, b.to(a.dtype))


PACKED_PRODUCT = "flambeau.packed_product.default"
"""Another one, by a matrix of four bits an element."""


def packed_product(
    a: Tensor, words: Tensor, scales: Tensor | None, group: int, zero: int
) -> Tensor:
    """`a @ b`, where row `term` of `b` is number `term` of the four bits of each row of `words`
    (the lower half of a byte first), less `zero`, by column `term // group` of `scales`."""
    held = words.view(torch.uint8)
    numbers = torch.stack((held & 15, held >> 4), -1).view(len(words), -1, group).to(a.dtype) - zero
    elements = numbers if scales is None else numbers * scales.unsqueeze(-1)
    return torch.mm(a, elements.view(len(words), -1).t())


OWN: Mapping[str, Callable[..., Any]] = {
    BERNOULLI: bernoulli,
    ROWS_ADDED: rows_added,
    WIDENED_PRODUCT: widened_product,
    PACKED_PRODUCT: packed_product,
}
"""Calls that are no operators of torch. They give one result."""


def with_packed_weight(target: str) -> str:
    """Name of the operator when its weight stays what it is."""
    return f"{target}.packed"


def operator(target: str) -> Callable[..., Any]:
    """The callable of `namespace.name.overload`; raises `LookupError` if there is none."""
    packed = PACKED.get(target.removesuffix(".packed"))
    if packed is not None and target.endswith(".packed"):
        return packed()
    if target in OWN:
        return OWN[target]
    if target.startswith("flambeau_inductor."):
        import_module("flambeau_inductor.runtime.gpu.cudnn_lstm")  # defines them; few programs do
    if target == WAIT:
        wait = communicating(overload_of(WAIT))
        return lambda started, *read: wait(started)  # the rest only has to be there until now
    if target.startswith(COLLECTIVES):
        return communicating(overload_of(target))
    if target in WEIGHT:
        call, at = overload_of(target), WEIGHT[target]
        return lambda *args: call(*args[:at], dense(args[at]), *args[at + 1 :])
    if target in ROWS:
        return _of_rows(target)
    return BINDINGS.get(target) or CROSSING.get(target) or overload_of(target)
