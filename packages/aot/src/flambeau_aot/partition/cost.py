"""Cost model of saving and of rematerialisation, both in bytes.

In: nodes with their fake values. Out: whole numbers; those of symbolic sizes are for the sizes of
this compile.
Invariant: costs are non-negative; `None` as a recompute cost means never.

Saving a value costs its size. Computing a fusible operator again costs a small part of its size:
the work itself is hidden by the memory traffic of the kernel it is fused into, but a chain that is
too long must not be free. A reduction reads its whole input again.

Classification of operators by kind of work. In: an operator, and the caller's own classifier if
there is one. Out: an `OpClass`. Invariant: an operator nothing is known of is a "leaf", the class
that is never run twice. A random operator is never run twice either: a second run would draw other
numbers and shift the stream of what follows.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import communicates, hint, is_operator, is_view_op
from flambeau_aot.interface import Classifier, OpClass
from flambeau_aot.sizes import ARITHMETIC

# Parts of a byte of output (of input, for reductions) that one byte saved is worth.
_RECOMPUTE_PART: dict[OpClass, float] = {
    "view": 0.0,
    "creation": 0.001,
    "pointwise": 0.02,
    "shape": 0.05,
    "index": 0.10,
}
_REDUCTION_PART = 0.5
WRITE_PART = 0.25
"""What it costs to write a value to memory that would have stayed in a kernel's registers."""


def nbytes(value: Any) -> int:
    """The bytes the elements of a tensor, or of several, take; 0 for what is no tensor."""
    if isinstance(value, (list, tuple)):
        return sum(nbytes(item) for item in value)
    if not hasattr(value, "numel"):
        return 0
    return hint(value.numel()) * int(value.element_size())


def save_cost(node: fx.Node, kind: OpClass) -> int:
    """The cost of keeping a value; of two equal ones the value that is no view is cheaper."""
    size = nbytes(node.meta["val"])
    return size + 1 + (1 if kind == "view" else 0)


def recompute_cost(node: fx.Node, kind: OpClass) -> int | None:
    """The cost of computing a value again from its arguments."""
    if kind == "reduction":
        read = sum(nbytes(source.meta["val"]) for source in node.all_input_nodes)
        return int(read * _REDUCTION_PART)
    part = _RECOMPUTE_PART.get(kind)
    return None if part is None else int(nbytes(node.meta["val"]) * part)


# Operations that take the time of moving one byte: what a matrix unit does meanwhile.
_OPERATIONS_PER_BYTE = 32.0
_UNFUSED: tuple[OpClass, ...] = ("reduction", "matmul", "leaf", "random")


def work(node: fx.Node, kind: OpClass) -> float:
    """An estimate of an operator's time, in bytes moved.

    Fusible operators count what they write, others also what they read; matrix products,
    convolutions and attention at least their multiplications.
    """
    if kind == "view":
        return 0.0
    moved = float(nbytes(node.meta["val"]))
    if kind in _UNFUSED:
        moved += sum(nbytes(source.meta["val"]) for source in node.all_input_nodes)
    if kind in ("matmul", "leaf"):
        return max(moved, _multiplications(node) / _OPERATIONS_PER_BYTE)
    return moved


def _multiplications(node: fx.Node) -> float:
    """Multiplications of a product of matrices; of a convolution; of attention; 0 for others."""
    shapes = [tuple(map(hint, source.meta["val"].shape)) for source in _operands(node)]
    name = getattr(node.target, "__name__", "")
    results = _elements(node.meta["val"])
    if len(shapes) < 2:
        return 0.0
    if "attention" in name and len(shapes) >= 3 and len(shapes[1]) >= 2:
        products = 2.0 * math.prod(shapes[0]) * shapes[1][-2]
        return products * (2.5 if "backward" in name else 1.0)
    if "convolution" in name and len(shapes[1]) >= 3:
        if "backward" in name:
            return 2.0 * _elements(_operands(node)[0].meta["val"]) * math.prod(shapes[-1][1:])
        return results * math.prod(shapes[1][1:])
    if len(shapes[-2]) >= 2 and len(shapes[-1]) >= 2:
        return float(results * shapes[-2][-1])
    return 0.0


def _operands(node: fx.Node) -> list[fx.Node]:
    return [item for item in node.all_input_nodes if hasattr(item.meta["val"], "shape")]


def _elements(value: Any) -> float:
    if isinstance(value, (list, tuple)):
        return max((_elements(item) for item in value), default=0.0)
    return float(hint(value.numel())) if hasattr(value, "numel") else 0.0


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
        if (given := known(target)) is not None:
            return given
    if (named := _BY_NAME.get(target._schema.name)) is not None:
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
