"""Calls with `out=` arguments.

In: the tensor, the function and its other arguments. Out: what the call gives.
Invariant: `out` keeps its strides. Functionalization loses views of a tensor that is resized, so
one that would be is refused; so is what eager refuses, by a kernel that is chosen by the dtype of
`out` on CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from flambeau_aot._torch_compat import base_of, has_metadata_mutation, is_functional
from flambeau_aot.inputs.memory_overlap import Layouts
from flambeau_aot.intercept.inplace import lay_out_as, write_on_copy
from flambeau_aot.intercept.registry import Call
from flambeau_aot.refusals import refusal

OF_WHOLE_NUMBERS = frozenset(
    f"bitwise_{name}" for name in ("and", "or", "xor", "left_shift", "right_shift")
)
OF_REAL_NUMBERS = frozenset({"maximum", "minimum", "max", "min"})
"""Functions whose kernels for CUDA are chosen by the dtype of what they write to, not by that of
the operands: of those for a CPU, which write a converted copy, one takes any dtype."""


def _has_no_kernel(name: str, out: torch.Tensor) -> bool:
    """Whether eager refuses to write to `out` for its dtype alone."""
    whole = not (out.dtype.is_floating_point or out.dtype.is_complex)
    return out.device.type == "cuda" and (
        (name in OF_WHOLE_NUMBERS and not whole)
        or (name in OF_REAL_NUMBERS and out.dtype.is_complex)
    )


def keeping_size(out: torch.Tensor, call: Call, layouts: Layouts) -> Any:
    """A call that writes its result to `out`; functionalization loses views of a resized one."""
    name = call.name
    if _has_no_kernel(name.split(".")[0], out):
        raise refusal("AO0083", func=name, dtype=out.dtype)
    before, base = tuple(out.shape), base_of(out)
    if torch.is_grad_enabled() and base.requires_grad:
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic "
            "differentiation, but one of the arguments requires grad."
        )
    if any(not tensor.numel() for tensor in (out, *call.args) if isinstance(tensor, torch.Tensor)):
        raise refusal("AO0084", func=name)
    if base is not out:
        # Functionalization would put a result of another size into the base unseen.
        raise refusal("AO0085", func=name)
    if is_functional(out) and has_metadata_mutation(out):
        raise refusal("AO0086", func=name)
    failure: Exception | None = None
    result: Any = None
    try:
        result = write_on_copy(out, call, layouts)
    except (IndexError, RuntimeError) as error:
        failure = error
    if tuple(out.shape) != before:
        # Functionalization takes views of `out` again, of a shape that they do not fit.
        raise refusal("AO0087", func=name, before=before, shape=tuple(out.shape)) from failure
    if failure is not None:
        raise failure
    return result


def keeping_strides(outs: Sequence[torch.Tensor], call: Call) -> Any:
    """A call that writes its results to several tensors."""
    before = [(tuple(out.shape), tuple(out.stride())) for out in outs]
    result = call()
    for out, (shape, strides) in zip(outs, before, strict=True):
        if is_functional(out) and base_of(out) is out:
            lay_out_as(out, shape, strides)
    return result
