"""The calls of torch functions a program makes, above autograd and functionalization.

What comes in: every torch function the program calls while it is traced. What goes out: the call
itself, or another that means the same and can be traced; a refusal where neither is possible.
Invariant: what the stand-in of an input would answer otherwise than the input is answered here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from flambeau_aot._torch_compat import base_of, raise_version, storage_key, version
from flambeau_aot.errors import Unsupported
from flambeau_aot.functional_form import call_without_writing, writing_operator
from flambeau_aot.norms import (
    batch_norm,
    functional_batch_norm,
    functional_instance_norm,
    instance_norm,
)


def conj(x: torch.Tensor) -> torch.Tensor:
    """`Tensor.conj`; a real tensor is its own conjugate, the very object."""
    return torch.conj(x) if x.is_complex() else x


REWRITES: dict[Any, Callable[..., Any]] = {
    functional.batch_norm: functional_batch_norm,
    functional.instance_norm: functional_instance_norm,
    torch.batch_norm: batch_norm,
    torch.ops.aten.batch_norm.default: batch_norm,
    torch.ops.aten.batch_norm: batch_norm,
    torch.instance_norm: instance_norm,
    torch.ops.aten.instance_norm.default: instance_norm,
    torch.ops.aten.instance_norm: instance_norm,
    torch.conj: conj,
    torch.Tensor.conj: conj,
}


# What a program may ask of an input while it is traced that its stand-in cannot answer.
_ASKED_OF_INPUTS: dict[Any, str] = {
    torch.Tensor.register_hook: "register_hook on an input; the hook would outlive this call",
    torch.Tensor.register_post_accumulate_grad_hook: "a hook on the gradient of an input",
    torch.Tensor.grad.__get__: "reading .grad of an input; pass the gradient as an argument",
    torch.Tensor.grad_fn.__get__: "reading .grad_fn of an input",
    torch.Tensor.data.__set__: "assigning .data of an input; use copy_ under torch.no_grad()",
}
_IS_LEAF = torch.Tensor.is_leaf.__get__  # type: ignore[attr-defined]


class RewriteCalls(TorchFunctionMode):
    """Applies `REWRITES` to every call the program makes.

    leaves: for each stand-in, whether the input it stands for is a leaf. What its stand-in would
    answer wrongly is answered for an input here, or refused.
    """

    def __init__(self, leaves: Mapping[int, bool] | None = None) -> None:
        super().__init__()
        self.leaves = leaves or {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        rewrite = REWRITES.get(func)
        if rewrite is not None:
            return rewrite(*args, **(kwargs or {}))
        if func is torch.Tensor.retain_grad:
            raise Unsupported("retain_grad inside the program; return the value instead")
        if args and id(args[0]) in self.leaves:
            if func in _ASKED_OF_INPUTS and args[0].requires_grad:
                raise Unsupported(_ASKED_OF_INPUTS[func])
            if func == _IS_LEAF:
                return self.leaves[id(args[0])]
        name = getattr(func, "__name__", "")
        if args and _writes_in_place(name):
            self._refuse_leaf(args[0])
        writing = writing_operator(func)
        if writing is not None:
            return call_without_writing(writing, args, kwargs or {})
        if name in WRITE_TO_LISTS:
            return _counting_writes(func, args, kwargs or {})
        target = args[0] if args else None
        if isinstance(target, torch.Tensor) and 0 in target.stride():
            return _not_writing(target, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def _refuse_leaf(self, target: Any) -> None:
        """Stand-ins are not leaves; what eager says of writing to one is said here."""
        if not isinstance(target, torch.Tensor) or not torch.is_grad_enabled():
            return
        base = base_of(target)
        if self.leaves.get(id(base)) and base.requires_grad:
            what = "a leaf" if base is target else "a view of a leaf"
            raise RuntimeError(
                f"{what} Variable that requires grad is being used in an in-place operation."
            )


def _not_writing(
    target: torch.Tensor, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A call on an expanded tensor; functionalization would add up what is written to it."""
    before = version(target)
    result = func(*args, **kwargs)
    expanded = any(s == 0 and n > 1 for n, s in zip(target.shape, target.stride(), strict=True))
    if expanded and version(target) != before:
        raise Unsupported(
            "a write to an expanded tensor, whose elements share memory; write to a clone, or to "
            "the tensor that was expanded"
        )
    return result


_NO_WRITE = frozenset(("requires_grad_", "detach_", "share_memory_"))


def _writes_in_place(name: str) -> bool:
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name in _IN_PLACE_SIGNS)
    return name.endswith("_") and name not in _NO_WRITE


_IN_PLACE_SIGNS = frozenset(
    f"__i{name}__"
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "div",
        "and",
        "or",
        "xor",
        "pow",
        "mod",
        "floordiv",
    )
)
WRITE_TO_LISTS = frozenset(
    name for name in dir(torch) if name.startswith("_foreach_") and name.endswith("_")
)


def _counting_writes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operators that write to a list of tensors; in eager every write raises a version counter,
    above functionalization none does."""
    targets = args[0] if args else kwargs["self"]
    keys = [storage_key(tensor) for tensor in targets]
    others = [
        storage_key(tensor)
        for values in args[1:]
        if isinstance(values, (list, tuple))
        for index, tensor in enumerate(values)
        if isinstance(tensor, torch.Tensor) and storage_key(tensor) != keys[index]
    ]
    if len(set(keys)) != len(keys) or set(keys) & set(others):
        raise Unsupported(
            f"{func.__name__} writes to tensors that share memory; write to them one by one"
        )
    before = [version(tensor) for tensor in targets]
    result = func(*args, **kwargs)
    for tensor, count in zip(targets, before, strict=True):
        if version(tensor) == count:
            raise_version(tensor)
    return result
