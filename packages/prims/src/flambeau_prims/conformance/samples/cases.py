"""Sample calls of every primitive.

In: a seed. Out: `Case`s, in the order of the primitives. Invariant: a primitive without a
registered sample gets calls derived from its schema and accepted by its shape rule; one that has
neither is an error that names it. The folder's `__init__`, imported before this, registers all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from flambeau_prims._op import PRIMS, Prim
from flambeau_prims.conformance.samples import derived
from flambeau_prims.conformance.samples.registry import SAMPLERS, Case


def cases(seed: int = 0, names: Sequence[str] | None = None) -> Iterator[Case]:
    """Sample calls of every primitive (or of `names`), the same for the same seed.

    Raises `LookupError` for a primitive that has none.
    """
    for name in PRIMS if names is None else names:
        found = False
        for case in cases_of(PRIMS[name], seed):
            found = True
            yield case
        if not found:
            raise LookupError(
                f"{name}: no sample call is registered, and none derived from its schema"
                f" ({PRIMS[name].schema}) is accepted by its rule"
            )


def cases_of(prim: Prim, seed: int = 0) -> Iterator[Case]:
    """Sample calls of one primitive; they do not depend on which others there are."""
    g = torch.Generator().manual_seed(seed * 7919 + sum(map(ord, prim.name)))
    if "pointwise" in prim.tags and prim.name not in SAMPLERS:
        yield from derived.pointwise(prim, g)
        return
    written = SAMPLERS.get(prim.name)
    calls = derived.calls(prim, g) if written is None else (c for s in written for c in s(g))
    for number, (args, kwargs) in enumerate(calls):
        yield Case(prim, f"{prim.name}-{number}", args, kwargs)
