"""Dispatch mode that decomposes a running program.

In: any eager code. Out: the same results, computed through prims.
Invariant: an operation is decomposed once; the prims and leaves inside run as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from flambeau_prims._torch_compat import DispatchMode, OpOverload
from flambeau_prims.decomposition_choice import decompositions
from flambeau_prims.decomposition_table import Decomposition


class Decomposing(DispatchMode):
    """`with Decomposing() as seen:` runs ATen operations through the table, below autograd.

    `decomposed` and `left` count, by name, what was and what was not in the table.
    """

    def __init__(self, table: Mapping[OpOverload, Decomposition] | None = None) -> None:
        super().__init__()
        self.table = decompositions() if table is None else table
        self.decomposed: Counter[str] = Counter()
        self.left: Counter[str] = Counter()

    def dispatched(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = self.table.get(op)
        if function is not None:
            result = function(*args, **kwargs)
            if result is not NotImplemented:
                self.decomposed[str(op)] += 1
                return result
        self.left[str(op)] += 1
        return op(*args, **kwargs)
