"""Linearity of the backward part in its cotangents.

What comes in: the joint graph, its cotangents and gradients, what autograd knows of the results.
What goes out: yes or no.
Invariant: torch's own derivatives are linear, those of a user's need not be. Eager runs one once in
a backward pass, of the whole gradient; who would run it of parts of it has to know that the parts'
answers add up. An operator that is not known here is taken for one that is not linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import of_a_user
from flambeau_aot.joint.depended_results import History

_SUMS = frozenset(
    {
        "add", "sub", "cat", "stack", "rsub", "where", "index_put", "index_add",
        "scatter_add", "select_scatter", "slice_scatter", "diagonal_scatter",
        "as_strided_scatter", "index_copy", "scatter",
    }
)  # fmt: skip
"""Linear in all of their tensors that are compared with none and index nothing."""

_PRODUCTS = frozenset(
    {
        "mul", "mm", "bmm", "mv", "dot", "vdot", "matmul", "einsum", "outer", "convolution",
        "linear", "convolution_backward", "kron",
    }
)  # fmt: skip
"""Linear in each of their tensors."""

_OF_FIRST = frozenset(
    {
        "div", "sum", "mean", "neg", "clone", "contiguous", "_to_copy", "to", "index",
        "index_select", "gather", "flip", "roll", "cumsum", "masked_fill", "repeat", "tril",
        "triu", "trace", "real", "imag", "conj_physical", "sum_to_size", "constant_pad_nd",
        "_reshape_alias", "_unsafe_view", "alias", "select_backward",
        "slice_backward", "diagonal_backward", "unfold_backward", "index_backward",
        "lift_fresh", "convert_element_type",
    }
)  # fmt: skip
"""Linear in the first one; the others are none that a gradient is in."""

_ZEROS = frozenset(
    f"{kind}{rest}" for kind in ("zeros", "empty") for rest in ("", "_like", "_strided")
) | frozenset(("new_zeros", "new_empty", "new_empty_strided"))
"""What adds nothing, or is written to before it is read."""

_OF_SHAPE = _ZEROS | {
    *("ones", "full", "rand", "randn", "ones_like", "full_like", "rand_like", "randn_like"),
    *("new_ones", "new_full"),
}
"""What reads no element."""


def is_linear(
    history: History, graph: fx.Graph, tangents: Sequence[fx.Node], grads: Sequence[Any]
) -> bool:
    """Whether the gradients are linear in the cotangents; it is looked at where a derivative of a
    user's is among those that they are made of."""
    if not any(of_a_user(node) for node, _ in history):
        return True
    linear, zeros, other = set(tangents), set[fx.Node](), set[fx.Node]()
    either = set(tangents)
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if _is_zero(node):
            zeros.add(node)
            either.add(node)
        elif _name(node) in _OF_SHAPE:
            continue
        elif not any(each in linear or each in other for each in inputs):
            if any(each in zeros for each in inputs) and _keeps(node, zeros):
                zeros.add(node)
                either.add(node)
        elif any(each in other for each in inputs) or not _keeps(node, either):
            other.add(node)
        else:
            linear.add(node)
            either.add(node)
    return not any(grad in other for grad in grads)


def _keeps(node: fx.Node, linear: set[fx.Node]) -> bool:
    """Whether a value is linear, where some of what it is computed from are."""
    name = _name(node)
    held: list[Any] = [each for each in node.all_input_nodes if each in linear]
    if name == "getitem" or _is_view(node):
        return held == [node.args[0]]
    if name in _SUMS:
        values: list[Any] = [each for each in node.all_input_nodes if not _indexes(each)]
        if name in ("add", "sub", "rsub", "where"):
            values += [item for item in node.args[-2:] if not isinstance(item, fx.Node)]
        return all(each in linear or _is_zero(each) for each in values)
    if name == "copy":
        return node.args[1] in linear
    if name in _PRODUCTS:
        return len(held) == 1 and _count(node, held[0]) == 1
    return name in _OF_FIRST and held == [node.args[0]] and _count(node, held[0]) == 1


def _indexes(node: fx.Node) -> bool:
    """Whether it is places or conditions rather than a value."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (torch.bool, torch.int64)


def _count(node: fx.Node, operand: fx.Node) -> int:
    return sum(each is operand for each in node.args)


def _is_zero(part: Any) -> bool:
    if not isinstance(part, fx.Node):
        return bool(part == 0)
    name = _name(part)
    return name in _ZEROS or (name in ("full", "full_like", "scalar_tensor") and 0 in part.args[:2])


def _name(node: fx.Node) -> str:
    target: Any = node.target
    schema = getattr(target, "_schema", None)
    return schema.name.split("::")[-1] if schema else getattr(target, "__name__", "")


def _is_view(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(
        item.alias_info is not None and not item.alias_info.is_write for item in schema.returns
    )
