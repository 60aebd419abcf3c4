"""The check of `torch.istft`, which eager makes of the window's values, as an assertion.

In: calls of `istft`. Out: its operators, among them an assertion that the windows leave no element
of the signal out. Invariant: an error where eager has one, when the graph runs.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_aot._torch_compat import TorchDispatchMode
from flambeau_aot.intercept.registry import Call, Interception, forms, intercept

aten = torch.ops.aten


@intercept(*forms("istft"))
def istft(trace: Interception, call: Call) -> Any:
    """The inverse of `stft` in its parts."""
    with _Differing():
        return call()


class _Differing(TorchDispatchMode):
    """A mode in which tensors whose equality is queried are taken to differ, and asserted to."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.equal.default:
            differ = aten.any.default(aten.ne.Tensor(*args))
            aten._assert_async.msg(differ, "istft: window overlap add min: 1")
            return False
        return func(*args, **(kwargs or {}))
