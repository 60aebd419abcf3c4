"""The table of lowering rules, keyed by a primitive's name.

In: rules by decorator. Out: `RULES`. Invariant: one rule per primitive; a rule takes the context,
then the call's arguments with nodes in place of tensors, and returns a node or a tuple of nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau_inductor.ir.tensors import Node
from flambeau_inductor.lowering.context import Context

Lowered = Node | tuple[Node | None, ...]
Rule = Callable[..., Lowered]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for the primitives `names`; with several, the name is its second argument."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"two lowering rules for {name}")
            RULES[name] = function if len(names) == 1 else _named(function, name)
        return function

    return register


def _named(function: Rule, name: str) -> Rule:
    def call(ctx: Context, *args: Any, **kwargs: Any) -> Lowered:
        return function(ctx, name, *args, **kwargs)

    return call
