"""The registry of lowering rules by primitive, and the reasons of those that are library calls.

In: rules by decorator. Out: `RULES`, `library_calls`. Invariant: a primitive has one rule or a
reason, never both, but for one whose rule refuses by that reason; a rule takes the context, then
the call's arguments with nodes in place of tensors, and returns a node or a tuple of nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau_prims import PRIMS, Prim

from flambeau_inductor.ir.tensors import Node
from flambeau_inductor.lowering.context import Context

Lowered = Node | tuple[Node | None, ...]
Rule = Callable[..., Lowered]
RULES: dict[str, Rule] = {}
RULES_OF_TAGS: dict[str, Callable[..., Lowered]] = {}
"""By a tag: the rule, which takes the name too, of primitives that have none of their own."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for the primitives `names`; with several, the name is its second argument."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"two lowering rules for {name}")
            RULES[name] = function if len(names) == 1 else _named(function, name)
        return function

    return register


def rule_of_tag(tag: str) -> Callable[[Rule], Rule]:
    """Register a rule for the primitives of a tag that have none of their own."""

    def register(function: Rule) -> Rule:
        RULES_OF_TAGS[tag] = function
        return function

    return register


def _named(function: Rule, name: str) -> Rule:
    def call(ctx: Context, *args: Any, **kwargs: Any) -> Lowered:
        return function(ctx, name, *args, **kwargs)

    return call


def rule_of(name: str) -> Rule | None:
    """The rule of a primitive, if there is one."""
    if name in RULES or name not in PRIMS:
        return RULES.get(name)
    shared = next((RULES_OF_TAGS[tag] for tag in PRIMS[name].tags if tag in RULES_OF_TAGS), None)
    return None if shared is None else _named(shared, name)


TABLES = "eager's is an approximation of its own, given by tables: no formula has its results"
SIZES = "the size of a result depends on elements, which a program of fixed loops cannot ask"
OF_FAMILIES = {
    "complex": "complex numbers have no kernels; most of these are views and compute nothing",
    "dynamic": SIZES,
    "effects": "an effect, not a value",
    "sort": "an order statistic or a search: the library's sort",
    "views": "a view, or a write through one: strides, and no arithmetic",
}
OF_NAMES = {
    "cummax": "a scan of pairs: the greatest so far and where it was",
    "cummin": "a scan of pairs: the least so far and where it was",
    "dirichlet_grad": TABLES,
    "gamma_grad": TABLES,
    "int_mm": "a product of int8 matrices: the library's instructions",
}

ON_CUDA = dict.fromkeys(
    (
        *(f"{shift}chebyshev_{kind}" for shift in ("", "shifted_") for kind in "tuvw"),
        *("hermite_h", "hermite_he", "laguerre_l", "legendre_p", "zeta"),
    ),
    "eager's kernel for CUDA has other answers than its kernel for CPUs at NaN and far out, of "
    "which the device function has the latter",
)


def reason(prim: Prim) -> str | None:
    """Why a primitive is a library call; None where a kernel computes it."""
    if prim.name in OF_NAMES:
        return OF_NAMES[prim.name]
    why = prim.reason or OF_FAMILIES.get(prim.family)
    return why if rule_of(prim.name) is None else None


def library_calls() -> dict[str, str]:
    """Every primitive that is a library call, with its reason."""
    return {name: why for name, prim in sorted(PRIMS.items()) if (why := reason(prim)) is not None}
