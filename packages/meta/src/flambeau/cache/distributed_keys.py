"""Keys of distributed tensors, and of the calls that place them.

In: an input, a target of a captured graph. Out: text, the same in every process of one place in one
mesh. Invariant: meshes are in it with their ranks, groups and this process's place; what has no
form that says all of it has no text.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from flambeau_aot import CannotSave, distributed_text
from torch import fx

from flambeau._torch_compat import rules_of_distributed
from flambeau.cache.graph_data import CannotKey, function

MODULE = "torch.distributed.tensor"
OWNER = "flambeau_capture"
"""Whose functions say themselves what they do."""


def called(target: Any) -> str:
    """A target of a graph: a function by its name, a change of placements with what it is given, a
    gather of shards by what it says of itself."""
    if str(getattr(target, "__module__", "")).partition(".")[0] != OWNER:
        return function(target)
    performs = getattr(target, "performs", None)
    if performs is not None:
        inside = performs if isinstance(performs, str) else called(performs)
        return f"{inside} without __torch_function__"
    known = getattr(target, "known_by", None)
    if isinstance(known, str):
        return f"{target.__name__}({known})"
    given = getattr(target, "given", None)
    if not isinstance(given, Mapping):
        return function(target)
    return f"{target.__name__}({', '.join(f'{k}={_text(v)}' for k, v in given.items())})"


def _text(value: Any) -> str:
    if isinstance(value, list):
        value = tuple(value)
    try:
        return distributed_text(value)
    except CannotSave as error:
        raise CannotKey(str(error)) from None


def is_distributed(item: object) -> bool:
    """Whether an input is a distributed tensor."""
    module = sys.modules.get(MODULE)
    return module is not None and type(item) is module.DTensor


def around(item: torch.Tensor) -> str:
    """What a distributed tensor is besides its local part."""
    kind = "Parameter" if isinstance(item, torch.nn.Parameter) else ""
    facts = [kind, "requires grad" * item.requires_grad, "leaf" * item.is_leaf, _text(item)]
    return ", ".join(filter(None, facts))


def dispatch(gm: fx.GraphModule, items: Iterable[object]) -> str:
    """How the process's distributed tensors answer operators, for a graph that has any. Raises
    CannotKey where that is code which no version of torch fixes."""
    if not (any(map(is_distributed, items)) or any(map(_places, gm.graph.nodes))):
        return ""
    rules, implicit = rules_of_distributed()
    lines = []
    for op, rule in rules:
        module, name = str(getattr(rule, "__module__", "")), getattr(rule, "__qualname__", "")
        if module.partition(".")[0] != "torch" or not name:
            raise CannotKey(f"a rule of {op} for distributed tensors that is not torch's: {rule!r}")
        lines.append(f"{op}: {module}.{name}")
    return "\n".join([*sorted(lines), f"implicit: {implicit}"])


def _places(node: fx.Node) -> bool:
    return isinstance(getattr(node.target, "given", None), Mapping)
