"""Fakes of torch's fused optimizer steps, where torch has none.

In: nothing. Out: fakes of `aten::_fused_*`. Invariant: an operator that has a kernel for such
tensors keeps it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

_OUT = "_out"


@functools.cache
def fake_fused_steps() -> torch.library.Library:
    """Register them, once a process; they hold while the library lives."""
    library = torch.library.Library("aten", "IMPL")
    for operator in _steps():
        name = operator.name()
        if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta"):
            torch.library.register_fake(name, _fake_of(operator._schema), lib=library)
    return library


def _steps() -> Iterator[torch._ops.OpOverload]:
    """Those that write to their lists, and their forms that return new ones."""
    for name in dir(torch):
        if name.startswith("_fused_") and name.endswith("_"):
            for packet in (getattr(torch.ops.aten, name), getattr(torch.ops.aten, name[:-1])):
                for overload in packet.overloads():
                    operator = getattr(packet, overload)
                    if all(each.name.endswith(_OUT) for each in operator._schema.returns):
                        yield operator


def _fake_of(schema: torch._C.FunctionSchema) -> Callable[..., Any]:
    """New lists like the arguments that the results are named after."""

    def fake(*args: Any, **kwargs: Any) -> Any:
        given = {each.name: value for each, value in zip(schema.arguments, args, strict=False)}
        made = [
            [torch.empty_like(tensor) for tensor in given[each.name.removesuffix(_OUT)]]
            for each in schema.returns
        ]
        return tuple(made) if made else None

    return fake
