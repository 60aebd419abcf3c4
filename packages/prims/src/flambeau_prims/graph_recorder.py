"""Tracing of decompositions on plain values.

In: a decomposition and `TracedValue`s, which have a tensor's metadata and a graph node.
Out: graph nodes for the prims that it calls.
Invariant: no dispatcher and no fake tensor is involved in finding a result's metadata, only the
prims' shape rules: a node costs some ten microseconds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from flambeau_prims._op import Prim, prim_of
from flambeau_prims._torch_compat import FakeTensor, FakeTensorMode, give_symbols, make_fake
from flambeau_prims.shape_rules import Shape, Size, TensorMeta
from flambeau_prims.sizes import SizeNodes


class TracedValue:
    """What a decomposition sees of a tensor: metadata, and the node that computes it."""

    __slots__ = ("_fake", "meta", "node")

    def __init__(self, meta: TensorMeta, node: fx.Node, fake: torch.Tensor | None = None) -> None:
        self.meta = meta
        self.node = node
        self._fake = fake

    @property
    def shape(self) -> Shape:
        return self.meta.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.meta.dtype

    @property
    def device(self) -> torch.device:
        return self.meta.device

    @property
    def ndim(self) -> int:
        return len(self.meta.shape)

    def stride(self) -> Shape:
        return self.meta.stride

    def numel(self) -> Size:
        return self.meta.numel()

    def fake(self, mode: FakeTensorMode) -> torch.Tensor:
        """The fake tensor of this value, made at its first use."""
        if self._fake is None:
            meta = self.meta
            self._fake = make_fake(mode, meta.shape, meta.stride, meta.dtype, meta.device)
        return self._fake


def map_values(function: Callable[[Any], Any], tree: Any) -> Any:
    """`tree` of lists, tuples and dicts with `function` applied to what is none of these."""
    if isinstance(tree, (list, tuple)):
        mapped = [map_values(function, item) for item in tree]
        if isinstance(tree, list):
            return mapped
        if hasattr(tree, "n_sequence_fields"):  # what `torch.topk` and the like return
            return type(tree)(mapped)
        return type(tree)(*mapped) if hasattr(tree, "_fields") else tuple(mapped)
    if isinstance(tree, dict):
        return {key: map_values(function, item) for key, item in tree.items()}
    if isinstance(tree, slice):
        return slice(*(map_values(function, x) for x in (tree.start, tree.stop, tree.step)))
    return function(tree)


def flatten(tree: Any) -> list[Any]:
    """What nested lists, tuples and dicts hold, in order."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [leaf for item in tree for leaf in flatten(item)]
    return [tree]


class GraphRecorder:
    """Adds nodes to `graph`, each with `meta["val"]` and the notes given for the current origin."""

    def __init__(self, graph: fx.Graph, mode: FakeTensorMode) -> None:
        self.graph = graph
        self.mode = mode
        self.notes: dict[str, Any] = {}
        self.sizes = SizeNodes(graph)
        self._recording = _Recording(self)

    def decompose(
        self, function: Callable[..., Any], args: Iterable[Any], kwargs: dict[str, Any]
    ) -> Any:
        """The result of a decomposition on values, its prims recorded."""
        with self._recording:
            return function(*args, **kwargs)

    def prim(self, prim: Prim, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of a prim."""
        if "data_dependent" in prim.tags:
            return self._sized_by_elements(prim, args, kwargs)
        result = prim.rule(
            *map_values(_meta_of, args), **{k: _meta_of(v) for k, v in kwargs.items()}
        )
        node = self._node(prim.overload, args, kwargs)
        if isinstance(result, TensorMeta):
            return self._value(result, node)
        node.meta["val"] = tuple(None if m is None else self._fake(m) for m in result)
        return tuple(None if m is None else self._part(node, i, m) for i, m in enumerate(result))

    def _sized_by_elements(self, prim: Prim, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call whose result has a size that no rule predicts: it becomes a symbol."""

        def fake(item: Any) -> Any:
            return item.fake(self.mode) if isinstance(item, TracedValue) else item

        give_symbols(self.mode)
        with self.mode:
            result = prim.overload(*map_values(fake, list(args)), **map_values(fake, kwargs))
        return self.leaf(prim.overload, args, kwargs, result)

    def leaf(self, op: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """Record a call that stays as it is; `result` is its result on fake tensors."""
        node = self._node(op, args, kwargs)
        node.meta["val"] = result
        return self._leaf_value(node, result)

    def _leaf_value(self, node: fx.Node, result: Any) -> Any:
        if isinstance(result, torch.Tensor):
            meta = TensorMeta.of(result)
            self.sizes.seen(node, meta)  # it may have a size that no input has
            return TracedValue(meta, node, result)
        if isinstance(result, (list, tuple)):
            parts = []
            for position, part in enumerate(result):
                item = self._node(operator.getitem, (node, position), {})
                item.meta["val"] = part
                parts.append(self._leaf_value(item, part))
            return type(result)(parts) if type(result) in (list, tuple) else tuple(parts)
        return node if isinstance(result, torch.SymInt) else result

    def _part(self, node: fx.Node, position: int, meta: TensorMeta) -> TracedValue:
        return self._value(meta, self._node(operator.getitem, (node, position), {}))

    def _value(self, meta: TensorMeta, node: fx.Node) -> TracedValue:
        fake = node.meta["val"] = self._fake(meta)
        return TracedValue(meta, node, fake)

    def entering(self, meta: TensorMeta, node: fx.Node) -> TracedValue:
        """The value of a placeholder or attribute that `node` stands for."""
        self.sizes.seen(node, meta)
        return self._value(meta, node)

    def _fake(self, meta: TensorMeta) -> FakeTensor:
        return make_fake(self.mode, meta.shape, meta.stride, meta.dtype, meta.device)

    def node_of(self, item: Any) -> Any:
        """What stands for `item` in the graph: a node for a value or a symbol, else itself."""
        if isinstance(item, TracedValue):
            return item.node
        return self.sizes.node_of(item) if isinstance(item, torch.SymInt) else item

    def _node(self, target: Any, args: Any, kwargs: dict[str, Any]) -> fx.Node:
        node = self.graph.call_function(
            target,
            tuple(map_values(self.node_of, list(args))),
            {key: map_values(self.node_of, item) for key, item in kwargs.items()},
        )
        node.meta.update(self.notes)
        return node


def _meta_of(item: Any) -> Any:
    if isinstance(item, TracedValue):
        return item.meta
    if isinstance(item, torch.Tensor):
        return TensorMeta.of(item)
    return item


class _Recording(TorchFunctionMode):
    """While active, a call of a prim becomes a node; whatever else is called runs as usual."""

    def __init__(self, recorder: GraphRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        prim = prim_of(func)
        if prim is None:
            return func(*args, **(kwargs or {}))
        return self._recorder.prim(prim, args, kwargs or {})
