"""Observation of every operator that a decomposed program dispatches.

In: a table. Out: which ATen operations were left, and where a rule and a result disagree.
Invariant: observing changes nothing: each operation runs as it would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from flambeau_prims._op import is_same_layout, prim_of
from flambeau_prims._torch_compat import DispatchMode, OpOverload
from flambeau_prims.conformance.check import Decomposing
from flambeau_prims.decomposition_table import Decomposition
from flambeau_prims.functional_variants import writing


@dataclass
class SweepObservations:
    """`left`: ATen operations that ran as they are; `broken`: rules that mispredicted."""

    left: Counter[str] = field(default_factory=Counter)
    prims: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)


class WithWriting(dict[OpOverload, Decomposition]):
    """A table that also knows in-place and `out=` overloads through their functional forms."""

    def __init__(self, table: Mapping[OpOverload, Decomposition]) -> None:
        super().__init__(table)
        self._made: dict[OpOverload, Decomposition | None] = {}

    def get(self, op: OpOverload, default: Any = None) -> Any:
        found = super().get(op)
        if found is not None:
            return found
        if op not in self._made:
            self._made[op] = writing(op, self)
        return self._made[op] or default


class _Observing(DispatchMode):
    def __init__(self, seen: SweepObservations) -> None:
        super().__init__()
        self._seen = seen

    def dispatched(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        prim = prim_of(op)
        if prim is None:
            sparse = any(getattr(arg, "layout", torch.strided) != torch.strided for arg in args)
            self._seen.left[f"sparse {op}" if sparse else str(op)] += 1
            return op(*args, **kwargs)
        self._seen.prims[prim.name] += 1
        result = op(*args, **kwargs)
        if "data_dependent" in prim.tags:
            return result  # its size is the elements' affair
        promised = prim.predicted(args, kwargs)
        wrong = None if result is None else disagreement(result, promised)
        if wrong:
            self._seen.broken.append(f"{prim.name}: {wrong}")
        return result


def disagreement(result: Any, promised: Any) -> str | None:
    """What of the metadata of a prim's result its rule did not predict; None if nothing."""
    results = result if isinstance(result, (list, tuple)) else (result,)
    metas = promised if isinstance(promised, (list, tuple)) else (promised,)
    if len(results) != len(metas):
        return f"{len(results)} results, the rule gives {len(metas)}"
    for tensor, meta in zip(results, metas, strict=True):
        if not isinstance(tensor, torch.Tensor) or meta is None:
            if (tensor is None) != (meta is None):
                return f"{tensor} where the rule gives {meta}"
            continue
        if tuple(tensor.shape) != tuple(meta.shape) or tensor.dtype != meta.dtype:
            return f"{tensor.dtype}{list(tensor.shape)}, the rule gives {meta}"
        if not is_same_layout(tensor, meta):
            return f"strides {tensor.stride()}, the rule gives {meta.stride} for {meta.shape}"
    return None


@contextmanager
def watching(table: Mapping[OpOverload, Decomposition]) -> Iterator[SweepObservations]:
    """Run what is inside through `table` and report what happened."""
    seen = SweepObservations()
    with _Observing(seen), Decomposing(table):
        yield seen
