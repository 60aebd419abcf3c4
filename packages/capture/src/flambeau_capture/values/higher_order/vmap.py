"""`torch.vmap` as a higher-order operator.

In: a function value and the arguments of torch.vmap. Out: `VmapValue`. Invariant: the body sees
tensors of one example; what it reads from outside becomes an argument that is not mapped over.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.graph.functions import vmap_call
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant, constant_of
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.sequences import SequenceValue
from flambeau_capture.values.higher_order.bodies import arguments, capture_body
from flambeau_capture.values.tensors.graph_calls import record_call
from flambeau_capture.values.tensors.tensor import TensorValue


class VmapValue(Value):
    """What torch.vmap answers."""

    def __init__(self, fn: Value, in_dims: Any, out_dims: Any, randomness: str) -> None:
        self.fn = fn
        self.in_dims = in_dims
        self.out_dims = out_dims
        self.randomness = randomness

    @property
    def cls(self) -> type:
        return types.FunctionType

    def describe(self) -> str:
        return f"vmap of {self.fn.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if kwargs:
            raise Break("FB0005", f"call of {self.describe()} with keyword arguments")
        in_dims = self.in_dims if isinstance(self.in_dims, tuple) else (self.in_dims,) * len(args)
        if len(in_dims) != len(args):
            raise Break("FB0005", f"call of {self.describe()} with in_dims {self.in_dims}")
        outer = tx.graph
        given: list[TensorValue] = []
        dims: list[int] = []

        def run(body: GraphBuilder) -> Value:
            inner = [
                self._inside(outer, body, v, dim, given, dims) for v, dim in zip(args, in_dims)
            ]
            return tx.call(self.fn, inner, {})

        body = capture_body(tx, self.describe(), run)
        found = record_call(
            tx,
            vmap_call,
            (body.node, (*dims, *(None for _ in body.lifted)), self.out_dims, self.randomness),
            [*(value.node for value in given), *body.lifted],
        )
        return self._arguments_again(body.result, found, given, dims)

    def _arguments_again(
        self, inner: Value, found: Value, given: list[TensorValue], dims: list[int]
    ) -> Value:
        """The results, where one is an argument itself (of an operator in place, say) and is mapped
        along the same dimension: that is the same tensor outside, too."""
        if isinstance(inner, SequenceValue) and isinstance(found, SequenceValue):
            pairs = zip(inner.parts(), found.parts())
            parts = [self._arguments_again(*pair, given, dims) for pair in pairs]
            same = all(one is other for one, other in zip(parts, found.parts()))
            return found if same else found.like(parts)
        if not isinstance(inner, TensorValue) or inner.node.op != "placeholder":
            return found
        name = str(inner.node.target)
        place = int(name[3:]) if name.startswith("arg") else len(given)
        if place >= len(given) or type(self.out_dims) is not int:
            return found
        along = dims[place] % given[place].fake.dim()
        return given[place] if along == self.out_dims % given[place].fake.dim() else found

    def _inside(
        self,
        outer: GraphBuilder,
        body: GraphBuilder,
        value: Value,
        dim: Any,
        given: list[TensorValue],
        dims: list[int],
    ) -> Value:
        """An argument as the function of one example sees it."""
        if dim is None:
            return value
        if isinstance(dim, int):
            if not isinstance(value, TensorValue | SequenceValue | DictValue):
                raise Break("FB0005", f"{self.describe()} mapped over {value.describe()}")

            def example(tensor: TensorValue) -> torch.Tensor:
                dims.append(dim)
                try:
                    selected = outer.run("call_method", "select", (tensor.node, dim, 0), {})
                except IndexError as error:  # no such dimension, or no element along it
                    raise Break("FB0005", f"{self.describe()} mapped over: {error}") from error
                found: torch.Tensor = selected
                return found

            return arguments(body, value, given, example)[0]
        if isinstance(dim, tuple | list) and isinstance(value, SequenceValue):
            parts = value.parts()
            if len(parts) == len(dim) and value.cls in (tuple, list):
                inner = [self._inside(outer, body, *pair, given, dims) for pair in zip(parts, dim)]
                return value.like(inner)
        if isinstance(dim, dict) and isinstance(value, DictValue) and value.cls is dict:
            entries = [(key, constant_of(key), item) for key, item in value.entries()]
            if {name for _, name, _ in entries} == set(dim):
                return DictValue(
                    [
                        (key, self._inside(outer, body, item, dim[name], given, dims))
                        for key, name, item in entries
                    ],
                    tx=value._tx,
                )
        raise Break("FB0005", f"call of {self.describe()} with in_dims {self.in_dims}")

    def reconstruct(self, writer: Any) -> None:
        writer.call(
            torch.vmap,
            [self.fn, Constant(self.in_dims), Constant(self.out_dims), Constant(self.randomness)],
        )


def make_vmap(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.vmap(func, in_dims=0, out_dims=0, randomness='error', *, chunk_size=None)`."""
    names = ("func", "in_dims", "out_dims", "randomness", "chunk_size")
    given: dict[str, Value] = {**dict(zip(names, args)), **kwargs}
    fn = given.pop("func")
    try:
        plain = {name: value.as_python() for name, value in given.items()}
    except NotConcrete as error:
        raise Break("FB0005", f"torch.vmap with {error}") from None
    if plain.get("chunk_size") is not None:
        raise Break("FB0005", "torch.vmap in chunks")
    return VmapValue(
        fn, plain.get("in_dims", 0), plain.get("out_dims", 0), plain.get("randomness", "error")
    )
