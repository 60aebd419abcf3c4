"""Fake tensors: construction, and errors of operators that cannot take them.

In: real tensors. Out: fake ones, and the errors that mean "no answer without data". Invariant:
nothing here decides about a symbol. Tried on torch 2.11, 2.13 and 2.14.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from flambeau_capture._torch_compat.light_fakes import is_loaded, light_fake_mode
from flambeau_capture._torch_compat.operators import as_its_schema, is_new, with_fake
from flambeau_capture._torch_compat.sizes.shape_environments import data_symbols


def new_fake_mode() -> Any:
    """A mode for one capture. Imported late: it is many modules."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    made = None if is_loaded() else light_fake_mode()
    return by_schemas(made or FakeTensorMode)(allow_non_fake_inputs=False)


@functools.cache
def by_schemas(mode: Any) -> Any:
    """The class of modes that raises where a fake of the program's gives what the schema of its
    operator forbids: torch does not look, and ends the process where results are too many."""

    class BySchemas(mode):  # type: ignore[misc]
        def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = super().dispatch(func, types, args, kwargs or {})
            if with_fake(func) is not None:
                if not as_its_schema(func, result):
                    raise ValueError(f"its fake gives {result}, and its schema is {func._schema}")
                if not is_new(func, (args, kwargs), result):
                    raise ValueError(f"its fake gives {result}: an argument, or no real device's")
            return result

    return BySchemas


def lacks_fake_form(tensor: torch.Tensor) -> bool:
    """Whether a fake tensor, and a guard, can say nothing of one: it is nested, quantized, of a
    library's own layout, without strides, a view of a sparse tensor, or offsets of a nested one,
    for which torch's fake tensors want symbolic lengths."""
    with torch._C.DisableTorchFunctionSubclass():  # a class of the program's is not notified
        if tensor.is_nested or tensor.is_quantized:
            return True
        if tensor.layout is not torch.strided:
            return tensor.layout is not torch.sparse_coo
        nested = sys.modules.get("torch.nested._internal.nested_tensor")
        lengths: Any = getattr(nested, "_tensor_symint_registry", None)
        if lengths and tensor in lengths:
            return True
        base = tensor._base if tensor._is_view() else None
        return base is not None and (base.layout is not torch.strided or base.is_nested)


def to_fake(mode: Any, tensor: torch.Tensor) -> torch.Tensor:
    """A fake tensor like a real one. Torch reads `.grad` for it, also where that warns: the program
    has not requested, and may have made an error of warnings."""
    warns = tensor.requires_grad and not tensor.is_leaf
    with warnings.catch_warnings() if warns else contextlib.nullcontext():
        if warns:
            warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
        made: torch.Tensor = mode.from_tensor(tensor, static_shapes=True)
    return made


def forget_tensors(mode: Any) -> None:
    """Let a mode forget which real tensors it has made fake ones of: it refers to them weakly, and
    `torch.utils.swap_tensors` refuses a tensor that is referred to so."""
    described = mode.fake_tensor_converter.meta_converter.describer
    described.lookup_tensor.clear()
    described.lookup_storage.clear()


#: what the fake mode raises: a result, or its shape, depends on data; an operator has no rule
_ERRORS = {
    "data": ("DataDependentOutputException",),
    "shape": ("DynamicOutputShapeException",),
    "rule": ("UnsupportedFakeTensorException", "UnsupportedOperatorException"),
}


@functools.cache
def fake_errors(kind: str) -> tuple[type[Exception], ...]:
    """The classes of one kind of `_ERRORS`."""
    from torch._subclasses import fake_tensor

    return tuple(getattr(fake_tensor, name) for name in _ERRORS[kind])


class _Quiet(logging.Filter):
    """Keeps torch from logging, traceback and all, that an operator refuses fake tensors: capture
    takes that as an answer, and the program sees torch's error when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.asking = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(self.asking, "now", False)


_quiet = _Quiet()
logging.getLogger("torch._subclasses.fake_tensor").addFilter(_quiet)


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """An operator is tried on fake tensors; a refusal is not logged on this thread."""
    before = getattr(_quiet.asking, "now", False)
    _quiet.asking.now = True
    try:
        yield
    finally:
        _quiet.asking.now = before


_NATIVE_DROPOUT = torch.ops.aten.native_dropout
#: what torch describes as one of their arguments, and no kernel gives back
ALWAYS_NEW = frozenset({torch.native_dropout, _NATIVE_DROPOUT, _NATIVE_DROPOUT.default})


def anew(results: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Results with memory of their own."""
    return tuple(each.clone() for each in results)


def _of_ldexp(args: tuple[Any, ...]) -> torch.dtype | None:
    common = torch.result_type(*args)
    return common if common in (torch.float16, torch.bfloat16) else None


def _of_spaced(args: tuple[Any, ...]) -> str | None:
    tensors = [bound for bound in args[:2] if isinstance(bound, torch.Tensor)]
    return "complex" if any(map(torch.is_complex, tensors)) else None


def _of_pow(args: tuple[Any, ...]) -> torch.dtype | None:
    both = isinstance(args[0], torch.Tensor) and isinstance(args[1], bool)
    return torch.bool if both and args[0].dtype == torch.bool else None


#: by the operator: from its arguments, the dtype that its kernels make; None: as torch describes it
_DTYPES_MADE: dict[str, Callable[[tuple[Any, ...]], torch.dtype | str | None]] = {
    "aten::huber_loss": lambda args: args[0].dtype,
    "aten::soft_margin_loss": lambda args: args[0].dtype,
    "aten::ldexp": _of_ldexp,
    "aten::linspace": _of_spaced,
    "aten::logspace": _of_spaced,
    "aten::addr": lambda args: functools.reduce(
        torch.promote_types, (each.dtype for each in args[:3])
    ),
    "aten::pow": _of_pow,
}
#: what of their results are places and counts, which 2.11 describes in the dtype of the elements
_COUNTING = frozenset(
    f"aten::{name}"
    for name in (
        "_unique",
        "_unique2",
        "unique_dim",
        "unique_consecutive",
        "unique_dim_consecutive",
    )
)


def _padded(x: torch.Tensor, pad: list[Any], result: torch.Tensor) -> torch.Tensor:
    """By nothing that is positive: a copy in the layout of what is left, which torch describes
    of known sizes alone. A number that data decides is taken to add something, and sizes that it
    decides to be contiguous."""
    if data_symbols(*pad, *x.shape) or not all(n <= 0 for n in pad) or x.is_contiguous():
        return result
    for place in range(len(pad) // 2):
        dim = x.dim() - 1 - place
        x = x.narrow(dim, -pad[2 * place], result.shape[dim])
    return x.clone()


def as_made(func: Any, args: tuple[Any, ...], result: Any) -> Any:
    """A fake result as an operator's kernel makes it, where torch reports another."""
    if func._schema.name in _COUNTING:
        return (result[0], *(each.to(torch.int64) for each in result[1:]))
    if func is torch.ops.aten.constant_pad_nd.default:
        return _padded(args[0], args[1], result)
    rule = None if func._schema.is_mutable else _DTYPES_MADE.get(func._schema.name)
    dtype = rule(args) if rule else None
    if dtype is None:
        return result
    return result.to(result.dtype.to_complex() if dtype == "complex" else dtype)
