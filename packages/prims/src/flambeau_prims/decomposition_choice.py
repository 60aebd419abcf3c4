"""The decompositions that a tracer uses, by what its caller wishes.

In: names of operations to keep whole, where random numbers come from. Out: `decompositions()`, a
plain mapping. Invariant: the mapping is the caller's own; every decomposition is registered.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Literal

from flambeau_prims._torch_compat import OpOverload
from flambeau_prims.decomposition_table import KEEPABLE, PHILOX_TABLE, TABLE, Decomposition

Random = Literal["aten", "philox"]


def decompositions(
    keep: Iterable[str] = (), *, random: Random = "aten"
) -> Mapping[OpOverload, Decomposition]:
    """The table for a tracer.

    `keep` names operations to leave whole, forward and backward (see `KEEPABLE`; an unknown name
    is a ValueError that lists the known ones, the nearest first). `random="aten"` leaves random
    operations to ATen, so that a compiled program draws the numbers eager would; `"philox"`
    computes them with prims.
    """
    # at first use: what only runs primitives does without decompositions
    from flambeau_prims import decomp

    del decomp
    if random not in ("aten", "philox"):
        raise ValueError(f"random must be 'aten' or 'philox', not {random!r}")
    names = (keep,) if isinstance(keep, str) else tuple(keep)
    table = {**TABLE, **PHILOX_TABLE} if random == "philox" else dict(TABLE)
    for name in names:
        if name not in KEEPABLE:
            near = difflib.get_close_matches(name, KEEPABLE, 1, 0.4)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"cannot keep {name!r}{hint}; known: {', '.join(sorted(KEEPABLE))}")
        for op in KEEPABLE[name]:
            table.pop(op, None)
    return table
