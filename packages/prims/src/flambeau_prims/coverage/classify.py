"""Classification of an ATen overload: decomposed, leaf, inert.

In: an overload of `torch.ops.aten`. Out: a `Covered` with a kind and, for a leaf, its reason.
Invariant: the kinds are tried in a fixed order and everything that fits none is `rest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from flambeau_prims._op import PRIMS
from flambeau_prims._torch_compat import (
    OpOverload,
    aten_overloads,
    has_dispatch,
    is_composite,
)
from flambeau_prims.coverage.leaves import is_inert, leaf
from flambeau_prims.table import Decomposition, decompositions
from flambeau_prims.variants import functional_form

Kind = Literal[
    "prim twin", "decomposed", "through functional form", "composite", "inert", "leaf",
    "scripting only", "rest",
]  # fmt: skip

KINDS: dict[Kind, str] = {
    "prim twin": "a decomposition to the primitive of the same name",
    "decomposed": "a decomposition to several primitives, or to one of another name",
    "through functional form": "in-place or `out=`: computed by its functional form, then written",
    "composite": "torch itself replaces it by other operations before any backend sees it",
    "inert": "asks about a tensor or marks it, and computes no tensor",
    "leaf": "stays as it is, for a declared reason",
    "scripting only": "numbers, strings, lists: for TorchScript's interpreter, not dispatched",
    "rest": "none of these",
}
"""The kinds, and what each means."""


@dataclass(frozen=True)
class Covered:
    """One overload: `note` is the functional form, the family of a leaf, or empty."""

    op: str
    kind: Kind
    note: str = ""


def classify(op: OpOverload, table: Mapping[OpOverload, Decomposition]) -> Covered:
    """The kind of `op`, given all decompositions there are."""
    name = str(op)
    if not has_dispatch(op):
        return Covered(name, "scripting only")
    if op in table:
        bare = name.split(".")[1]
        return Covered(name, "prim twin" if bare in PRIMS else "decomposed")
    if is_inert(name):
        return Covered(name, "inert")
    variant = functional_form(op)
    if variant is not None:
        inner = classify(variant.functional, table)
        if inner.kind in ("leaf", "rest"):
            return Covered(name, inner.kind, inner.note)
        if inner.kind != "composite" or not is_composite(op):
            return Covered(name, "through functional form", str(variant.functional))
    if is_composite(op):
        return Covered(name, "composite")
    family = leaf(name)
    if family is not None:
        return Covered(name, "leaf", family.family)
    return Covered(name, "rest")


def survey() -> list[Covered]:
    """Every overload of ATen that this torch has, classified."""
    table = decompositions(random="philox")
    return [classify(op, table) for op in aten_overloads()]
