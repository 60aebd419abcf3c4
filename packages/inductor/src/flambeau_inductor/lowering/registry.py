"""The registry of lowering rules, by primitive.

In: rules by decorator. Out: `RULES`. Invariant: one rule per primitive; a rule takes the context,
then the call's arguments with nodes in place of tensors, and returns a node or a tuple of nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau_prims import PRIMS

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
