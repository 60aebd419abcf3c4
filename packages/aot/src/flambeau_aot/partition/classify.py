"""Classification of operators by kind of work.

In: an operator, and the caller's own classifier if there is one. Out: an `OpClass`.
Invariant: an operator nothing is known of is a "leaf", the class that is never run twice.

A random operator is never run twice either: a second run would draw other numbers and shift the
stream of what follows.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import communicates, is_operator, is_view_op
from flambeau_aot.interface import Classifier, OpClass
from flambeau_aot.sizes import ARITHMETIC

_NAMES: dict[OpClass, str] = {
    "matmul": "mm bmm addmm baddbmm",
    "pointwise": "_to_copy clone where masked_fill tril triu lerp copy hardtanh fill",
    "shape": (
        "_unsafe_view cat constant_pad_nd repeat flip slice_scatter select_scatter stack "
        "view_copy expand_copy permute_copy"
    ),
    "reduction": (
        "_softmax _log_softmax var_mean logsumexp native_layer_norm native_group_norm "
        "_native_batch_norm_legit_functional _native_batch_norm_legit"
    ),
    "creation": (
        "full zeros ones arange full_like zeros_like ones_like scalar_tensor empty empty_like "
        "new_zeros new_full new_ones new_empty new_empty_strided eye"
    ),
    "index": "embedding index_select gather index",
}
_BY_NAME = {f"aten::{name}": kind for kind, names in _NAMES.items() for name in names.split()}


def is_random(target: Any) -> bool:
    """Whether an operator draws from a random generator."""
    return is_operator(target) and torch.Tag.nondeterministic_seeded in target.tags


def has_own_generator(node: fx.Node) -> bool:
    """Whether an operator draws from a generator of the program's own."""
    return any(isinstance(item, torch.Generator) for item in (*node.args, *node.kwargs.values()))


def has_effect(target: Any) -> bool:
    """Whether an operator is called for what it does: a check that raises has no result."""
    return is_operator(target) and not target._schema.returns


def runs_anyway(target: Any) -> bool:
    """Whether an operator runs, as in eager, though nobody may use its result."""
    return is_random(target) or has_effect(target) or communicates(target)


def runs_once(target: Any) -> bool:
    """Whether a second run would be another program: other numbers are drawn, or the other
    processes, which have no second run, are waited for."""
    return is_random(target) or communicates(target)


def classify(target: Any, known: Classifier | None = None) -> OpClass:
    """The class of one operator: the caller's word first, then names, then ATen's tags."""
    if target is operator.getitem or target in ARITHMETIC:
        return "view"
    if not is_operator(target) or runs_once(target):
        return "leaf" if not is_operator(target) else "random"
    if known is not None:
        given = known(target)
        if given is not None:
            return given
    named = _BY_NAME.get(target._schema.name)
    if named is not None:
        return named
    if is_view_op(target):
        return "view"
    if torch.Tag.pointwise in target.tags:
        return "pointwise"
    if torch.Tag.reduction in target.tags:
        return "reduction"
    return "leaf"


# Namespaces whose functional operators are known to do nothing but compute their results.
_PURE = ("aten", "prims")


def is_repeatable(target: Any) -> bool:
    """Whether a second run gives the same results and does nothing else.

    An operator of another library may count its calls or read a clock; ATen's, and those of a
    primitive set, do not if their schema says that they write to no argument.
    """
    return (
        is_operator(target)
        and not is_random(target)
        and not target._schema.is_mutable
        and target.namespace.endswith(_PURE)
    )
