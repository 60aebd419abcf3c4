"""Library operators by name.

In: the qualified name of an overload (`aten.mm.out`). Out: what the wrapper calls. Invariant: the
callable takes the overload's arguments by the overload's names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from flambeau_inductor._torch_compat import overload_of

# torch's own bindings take the same arguments and cost half of what an overload object does
BINDINGS: Mapping[str, Callable[..., Any]] = {
    "aten.mm.out": torch.mm,
    "aten.bmm.out": torch.bmm,
    "aten.addmm.out": torch.addmm,
    "aten.baddbmm.out": torch.baddbmm,
}


def operator(target: str) -> Callable[..., Any]:
    """The callable of `namespace.name.overload`; raises `LookupError` if there is none."""
    return BINDINGS.get(target) or overload_of(target)
