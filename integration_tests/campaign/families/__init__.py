"""The families that draw programs, in one table.

In: `family:seed`. Out: a program. Invariant: a family's `draw(random)` uses no chance but that of
the `random.Random` that it is given.
"""

from __future__ import annotations

import importlib
import random
from dataclasses import replace

from integration_tests.campaign.program import Program

#: family: what share of its programs goes through which backend
FAMILIES: dict[str, dict[str, int]] = {
    "operators": {"inductor": 6, "aot_eager_prims": 2, "aot_eager": 2},
    "writes": {"inductor": 4, "aot_eager": 4, "aot_eager_prims": 1, "eager": 1},
    "autograd": {"aot_eager": 5, "inductor": 3, "eager": 2},
    "customops": {"aot_eager": 5, "inductor": 3, "eager": 2},
    "state": {"eager": 8, "aot_eager": 2},
    "language": {"eager": 7, "aot_eager": 2, "inductor": 1},
    "modules": {"aot_eager": 5, "inductor": 4, "eager": 1},
    "library": {"eager": 9, "aot_eager": 1},
    "classes": {"eager": 9, "aot_eager": 1},
    "hooks": {"eager": 4, "aot_eager": 5, "inductor": 1},
    "transforms": {"aot_eager": 5, "eager": 3, "inductor": 2},
    "promotion": {"inductor": 5, "aot_eager": 2, "aot_eager_prims": 2, "eager": 1},
    "reference": {"eager": 9, "aot_eager": 1},
    "sizes": {"eager": 6, "aot_eager": 3, "inductor": 1},
}
APART, LATER = 7, 1_000_003
"""Seeds of families are apart from each other; a family that is added moves no other's."""


def drawn(name: str, backend: str = "mix", device: str = "cpu") -> Program:
    """The program of `family:seed`. backend: `mix`, or one for all."""
    family, _, number = name.partition(":")
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; known: {', '.join(FAMILIES)}")
    seed = int(number)
    module = importlib.import_module(f"integration_tests.campaign.families.{family}")
    chance = random.Random(seed * APART + [*FAMILIES].index(family) * LATER)
    shares = FAMILIES[family]
    chosen = chance.choices([*shares], weights=[*shares.values()])[0]
    program: Program = module.draw(chance)
    if backend == "mix":
        backend = "inductor" if device == "cuda" and chosen == "aot_eager_prims" else chosen
    return replace(program, family=family, seed=seed, backend=backend)
