"""A module of a `ModuleList` at an index that varies from call to call.

In: a list of modules that a guard pins, and a symbol that the program holds. Out: the module, as
one that is another from call to call. Invariant: the index stays open; which module it picks is
read anew by every guard and by the generated code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from flambeau_capture.source import Called
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.objects.attributes import assume_entry, find_in_class
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue

_LISTS = (torch.nn.ModuleList, torch.nn.Sequential)


@dataclass(frozen=True, eq=False)
class _Picked:
    """`modules[index]`, for an index that counts from the front."""

    modules: Any

    @property
    def __name__(self) -> str:
        return f"{type(self.modules).__name__}.__getitem__"

    def __call__(self, index: int) -> Any:
        if type(index) is not int:
            raise TypeError(index)
        return self.modules._modules[str(index)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Picked) and other.modules is self.modules

    def __hash__(self) -> int:
        return hash((_Picked, id(self.modules)))


def picked(tx: Tracer, modules: Any, key: Value) -> Value | None:
    """`modules[key]` with the key left open; None where it has to be known."""
    if not isinstance(key, SymbolValue) or key.source is None or key.cls is not int:
        return None
    found = find_in_class(modules.python_class, "__getitem__")
    if not modules.pinned or found is None or found[0] not in _LISTS:
        return None
    table = tx.heap.find(modules.real._modules)
    if "_modules" in modules.written or any(one is table for one in tx.heap.effects()):
        return None
    one = modules.real._modules.get(str(tx.shapes.present(key.number)))
    if one is None:
        return None
    assume_entry(tx, modules.python_class, "__getitem__")
    source = Called(key.source, _Picked(modules.real))
    tx.replaced(source, modules)  # the index varies, and so does what it picks
    return tx.wrap(one, source)
