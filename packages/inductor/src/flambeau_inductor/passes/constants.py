"""The constant evaluator: values of nodes that are the same at every call.

In: a node of a graph of torch functions or of primitives. Out: its value, computed on the
processor; None if it depends on anything but constants, or is too much work. Invariant: random,
effectful and foreign operators are refused before they run, by their tags; memory is only written
where it was made here.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flambeau_inductor._torch_compat import OpOverload
from flambeau_inductor.ir.nodes import PRIMITIVES
from flambeau_inductor.node_queries import OURS, op_of, storage_of, val_of, written
from flambeau_inductor.reachability import reached

MOST_ELEMENTS = 1 << 26
"""Of any value on the way."""
MOST_WORK = 1 << 33
"""Multiplications of products for one value; an element that is read counts as some of them."""
ELEMENT = 4

PLAIN = (fx.Node, int, float, bool, slice, torch.dtype, torch.device, type(None), type(...))
IMPURE = frozenset({"random", "effect", "mutating"})
"""Tags of primitives."""


class _Varies(RuntimeError):
    """It is not known, or not soon, what an operator gives."""


class _Pure(TorchDispatchMode):
    """Lets operators through that are functions of their operands, while there is work left."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.work = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # which would be loaded for it
        return False

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        self.work += ELEMENT * sum(t.numel() for t in given)
        many = [t for t in given if t.is_floating_point() and t.dim() > 1]
        if len(many) > 1 and torch.Tag.pointwise not in func.tags:  # as a product would be
            self.work += many[0].numel() * many[1].numel() // max(many[0].shape[-1], 1)
        if self.work > MOST_WORK or not is_pure(func):
            raise _Varies(str(func))
        return func(*args, **(kwargs or {}))


def is_pure(op: OpOverload) -> bool:
    """Whether what an operator gives depends on its operands alone."""
    if op.namespace == PRIMITIVES:
        from flambeau_prims import prim_of  # Torch IR has none

        prim = prim_of(op)
        return prim is not None and not prim.tags & IMPURE
    drawn = torch.Tag.nondeterministic_seeded in op.tags
    return op.namespace in OURS and not drawn and "empty" not in op._schema.name


class Constants:
    """The constants of one graph, computed on demand."""

    def __init__(self, graph: fx.Graph) -> None:
        self.used: dict[fx.Node, None] = {}  # all nodes that go into a computed one
        self._values: dict[object, Tensor | None] = {}
        self._graph = graph
        self._written: set[tuple[fx.Node, int | None]] | None = None

    def of(self, node: object) -> Tensor | None:
        """The value of a node that is the same at every call."""
        if node not in self._values:
            self._values[node] = self._found(node) if isinstance(node, fx.Node) else None
        return self._values[node]

    def _found(self, node: fx.Node) -> Tensor | None:
        order = _ancestors(node)
        if order is None or self.is_written(order):
            return None
        known: dict[fx.Node, Any] = {}

        def given(part: Any) -> Any:
            if isinstance(part, torch.device):
                return torch.device("cpu")
            if isinstance(part, fx.Node) and part not in known:  # only what it is like matters
                model = val_of(part)
                return torch.zeros((), dtype=model.dtype).expand(model.shape)
            return known[part] if isinstance(part, fx.Node) else part

        try:
            with torch.device("cpu"), torch.no_grad(), _Pure():
                for one in sorted(order):  # a node is less than later ones
                    args, kwargs = map_aggregate((one.args, one.kwargs), given)
                    made = _called(one, args, kwargs)
                    parts, like = tree_leaves(made), tree_leaves(val_of(one))
                    if [*map(_kind, parts)] != [*map(_kind, like)]:
                        return None
                    if not all(type(part) is Tensor for part in parts):  # fakes hold no numbers
                        return None
                    known[one] = made
        except (RuntimeError, TypeError):
            return None  # it varies, or the processor has no such function
        self.used.update(dict.fromkeys(order))
        return known[node] if isinstance(known[node], Tensor) else None

    def is_written(
        self, nodes: set[fx.Node], between: tuple[fx.Node, fx.Node] | None = None
    ) -> bool:
        """Whether other nodes write to the memory of these, or may do so: any, or those between."""
        if between is not None and between[0] is between[1]:
            return False
        if self._written is None:
            writers = ((node, written(node, others=True)) for node in self._graph.nodes)
            self._written = {(node, storage) for node, found in writers for storage in found}
        if not self._written:
            return False
        held = {storage_of(node) for node in nodes} - {None}
        return any(
            storage in held
            and (node not in nodes if between is None else between[0] < node < between[1])
            for node, storage in self._written
        )


def _kind(part: Any) -> tuple[Any, ...]:
    return tuple(getattr(part, "shape", ())), getattr(part, "dtype", None)


def _called(node: fx.Node, args: Any, kwargs: Any) -> object:
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _ancestors(node: fx.Node) -> set[fx.Node] | None:
    """A node and all that go into it; None where one of them is no function of constants."""
    found: set[fx.Node] = set()
    for one in reached(
        [node], lambda one: (p for p in one.all_input_nodes if not _only_like(p, one))
    ):
        if not _computable(one):
            return None
        found.add(one)
    return found


def _computable(node: fx.Node) -> bool:
    if op_of(node) is None or "out" in node.kwargs:
        return False
    shapes = [getattr(part, "shape", None) for part in tree_leaves(val_of(node))]
    for shape in shapes:
        if shape is None or not all(isinstance(n, int) for n in shape):
            return False
        if prod(shape) > MOST_ELEMENTS:
            return False
    if not shapes:
        return False
    return all(isinstance(each, PLAIN) for each in tree_leaves((node.args, node.kwargs)))


def _only_like(part: fx.Node, node: fx.Node) -> bool:
    """Whether `node` makes something like `part`, whose values do not matter: `new_ones`."""
    name, shape = op_of(node) or "", getattr(val_of(part), "shape", ())
    if not (name.startswith("new_") or name.endswith("_like")) or node.args[:1] != (part,):
        return False
    return all(isinstance(n, int) for n in shape) and part not in node.args[1:]
