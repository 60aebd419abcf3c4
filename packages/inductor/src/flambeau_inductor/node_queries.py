"""Questions that rewrites ask about nodes of Torch IR and of graphs of primitives alike.

In: FX nodes. Out: answers. Invariant: nothing is changed here.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import Tensor, fx

from flambeau_inductor._torch_compat import OpOverload, equal_always, writes
from flambeau_inductor.ir.nodes import PRIMITIVES, NoValue, name_of, value_of
from flambeau_inductor.reachability import reached

MOVES = frozenset({"broadcast_in_dim", "reshape", "permute", "slice", "diagonal", "unfold"})
"""Views whose elements are elements of their operand, at other places."""

PLACING = frozenset({"as_strided", "as_strided_scatter"})
"""Primitives that take a place in the memory of their first operand."""

OURS = frozenset({"aten", PRIMITIVES})
"""Namespaces of operators whose schemas and tags say what they do."""

SPELLINGS = {"truediv": "div", "true_divide": "div", "__matmul__": "matmul"}
"""Other names of functions, as Python's operators have them."""

METHODS = {"where": "where_else"}
"""Methods whose operands come in another order than those of the function."""

AUGMENTED = frozenset(f"i{name}" for name in ("add", "sub", "mul", "truediv", "pow"))
"""Python's operators in place that are functions of values."""

WRITES = AUGMENTED | {"setitem", "delitem", "iand", "ior", "ixor", "ifloordiv", "imod", "imatmul"}


def op_of(node: object) -> str | None:
    """The operation that a node calls, by the name that functions of torch, methods, Python's
    operators, ATen and primitives have in common; None for anybody else's function."""
    if not isinstance(node, fx.Node):
        return None
    target: Any = node.target
    if node.op == "call_method":
        name = METHODS.get(target, target)
    elif node.op != "call_function":
        return None
    elif isinstance(target, OpOverload):
        if target.namespace not in OURS:
            return None
        name = target.overloadpacket.__name__
    else:
        module = (getattr(target, "__module__", None) or "").split(".")[0]
        if module not in ("torch", "_operator") and not isinstance(target, BuiltinFunctionType):
            return None
        name = str(getattr(target, "__name__", ""))
    return SPELLINGS.get(name, name) or None


def has_tag(node: fx.Node, tag: str) -> bool:
    """Whether `node` calls a primitive with `tag`."""
    if name_of(node) is None:
        return False
    from flambeau_prims import prim_of  # Torch IR has none

    prim = prim_of(node.target)
    return prim is not None and tag in prim.tags


def argument(node: fx.Node, name: str, otherwise: Any = None) -> Any:
    """What a function is given for one of its parameters, its default included; `otherwise` where
    it is written in C, or takes anything, and does not get it by name."""
    signature = _signature(node.target) if node.op == "call_function" else None
    if signature is None or name not in signature.parameters:
        return node.kwargs.get(name, otherwise)
    try:
        bound = signature.bind(*node.args, **node.kwargs)
    except TypeError:
        return node.kwargs.get(name, otherwise)
    bound.apply_defaults()
    return bound.arguments[name]


@lru_cache(maxsize=512)
def _signature(target: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(target)
    except (TypeError, ValueError):  # it is written in C
        return None


def val_of(part: Any) -> Any:
    """What is known of an argument: a node's value, or what is written there."""
    if not isinstance(part, fx.Node):
        return part
    if "val" not in part.meta and name_of(part) is not None:
        with suppress(NoValue):  # inputs are known later
            return value_of(part)
    return part.meta.get("val")


def static_shape(part: Any) -> tuple[int, ...] | None:
    """The sizes of a tensor, where all are numbers."""
    shape = getattr(val_of(part), "shape", None)
    return tuple(shape) if shape is not None and all(isinstance(n, int) for n in shape) else None


def dtype_of(part: Any) -> torch.dtype | None:
    """The dtype of a tensor."""
    return getattr(val_of(part), "dtype", None)


def under_autocast(graph: fx.Graph) -> bool:
    """Whether a graph of torch functions computes in other dtypes than it is written in."""
    return any("autocast" in str(node.target) for node in graph.nodes)


# --- memory that is shared --------------------------------------------------------------------


def storage_of(part: Any) -> int | None:
    """The memory of a tensor of Torch IR."""
    found = val_of(part)
    return found.untyped_storage()._cdata if isinstance(found, Tensor) else None


def is_writer(node: fx.Node) -> bool:
    """Whether a call writes to an operand: by its schema, or by what torch calls such functions."""
    name, target = str(getattr(node.target, "__name__", node.target)), node.target
    if not node.op.startswith("call"):
        return False
    if isinstance(target, OpOverload):
        return writes(target)
    if name in WRITES or "out" in node.kwargs or argument(node, "inplace") is True:
        return True
    return name.endswith("_") and not name.endswith("__")


def written(node: fx.Node, others: bool = False) -> Iterator[int | None]:
    """Storages that a node writes to; with `others`, those that anybody else's function may."""
    foreign = op_of(node) is None and not isinstance(node.target, OpOverload)
    writes = is_writer(node) or (others and foreign and node.op.startswith("call"))
    return map(storage_of, node.all_input_nodes if writes else ())


def erase_unused(nodes: Iterable[fx.Node]) -> None:
    """Erase those without users that write nothing, the last first. (`eliminate_dead_code` also
    takes calls whose result nobody uses because they write an operand, as `x.add_(1)` does.)"""
    for node in sorted(set(nodes), reverse=True):
        if node.prev.next is node and not node.users and not is_writer(node):
            node.graph.erase_node(node)


def escaping(graph: fx.Graph) -> set[fx.Node]:
    """Nodes whose memory the caller may see: outputs, and what they are views of."""
    return _with_memory(a for n in graph.nodes if n.op == "output" for a in n.all_input_nodes)


def placed(graph: fx.Graph) -> set[fx.Node]:
    """Nodes in whose memory a place is named, counted from where that memory begins: an equal
    value that begins elsewhere in its own cannot stand for them."""
    readers = (node for node in graph.nodes if name_of(node) in PLACING)
    return _with_memory(a for n in readers for a in n.all_input_nodes[:1])


def _with_memory(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    def bases(node: fx.Node) -> list[fx.Node]:
        is_view = has_tag(node, "view") or node.target is operator.getitem
        return node.all_input_nodes if is_view else []

    return {*reached(nodes, bases)}


def readers(node: fx.Node) -> Iterable[fx.Node]:
    """Users of `node`, views of it looked through."""
    for user in node.users:
        if has_tag(user, "view"):
            yield from readers(user)
        else:
            yield user


def same_meta(a: fx.Node, b: fx.Node) -> bool:
    """Whether two nodes have equal shape, strides and dtype, whatever the open sizes are."""
    x: Any = a.meta.get("val")
    y: Any = b.meta.get("val")
    if x is None or y is None or not (hasattr(x, "dtype") and hasattr(y, "dtype")):
        return False  # several results, or a number
    if x.dtype != y.dtype or len(x.shape) != len(y.shape):
        return False
    pairs = zip((*x.shape, *strides(x)), (*y.shape, *strides(y)), strict=True)
    return all(equal_always(*pair) for pair in pairs)


def strides(value: Any) -> tuple[int, ...]:
    """Strides of a tensor or of a `TensorMeta`."""
    stride = value.stride
    return tuple(stride() if callable(stride) else stride)
