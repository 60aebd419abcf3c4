"""Dispatch mode that decomposes a running program.

In: any eager code. Out: the same results, computed through prims.
Invariant: an operation is decomposed once; the prims and leaves inside run as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from flambeau_prims._torch_compat import OpOverload, TorchDispatchMode
from flambeau_prims.decomposition_table import Decomposition, decompositions


class Decomposing(TorchDispatchMode):
    """`with Decomposing() as seen:` runs ATen operations through the table, below autograd.

    `decomposed` and `left` count, by name, what was and what was not in the table.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self, table: Mapping[OpOverload, Decomposition] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = decompositions() if table is None else table
        self.decomposed: Counter[str] = Counter()
        self.left: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        function = self.table.get(func)
        if function is not None:
            result = function(*args, **(kwargs or {}))
            if result is not NotImplemented:
                self.decomposed[str(func)] += 1
                return result
        self.left[str(func)] += 1
        return func(*args, **(kwargs or {}))
