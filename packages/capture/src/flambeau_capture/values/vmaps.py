"""torch.vmap: the mapped function is captured as a graph of its own, called by one node.

In: a function value and the arguments of torch.vmap. Out: `VmapValue`. Invariant: the body sees
tensors of one example; what it reads from outside becomes an argument that is not mapped over.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.graph import GraphBuilder
from flambeau_capture.graph_functions import vmap_call
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.sequences import SequenceValue
from flambeau_capture.values.tensor import TensorValue, record_call


class VmapValue(Value):
    """What torch.vmap answers."""

    def __init__(self, fn: Value, in_dims: Any, out_dims: Any, randomness: str) -> None:
        self.fn = fn
        self.in_dims = in_dims
        self.out_dims = out_dims
        self.randomness = randomness

    @property
    def cls(self) -> type:
        import types

        return types.FunctionType

    def describe(self) -> str:
        return f"vmap of {self.fn.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if kwargs:
            raise Break("FB0005", f"call of {self.describe()} with keyword arguments")
        in_dims = self.in_dims if isinstance(self.in_dims, tuple) else (self.in_dims,) * len(args)
        if len(in_dims) != len(args) or not all(
            dim is None or isinstance(dim, int) for dim in in_dims
        ):
            raise Break("FB0005", f"call of {self.describe()} with in_dims {self.in_dims}")
        outer = tx.graph
        body = GraphBuilder(outer)
        given: list[TensorValue] = []
        inner: list[Value] = []
        for value, dim in zip(args, in_dims):
            if dim is None:
                inner.append(value)
                continue
            if not isinstance(value, TensorValue):
                raise Break("FB0005", f"{self.describe()} mapped over {value.describe()}")
            given.append(value)
            example = outer.run("call_method", "select", (value.node, dim, 0), {})
            inner.append(TensorValue(body.add_example(f"arg{len(given)}", example)))
        tx.graph = body
        try:
            result = tx.call(self.fn, inner, {})
            body.set_output(_outputs(tx, result))
        finally:
            tx.graph = outer
        module, lifted = body.finish_body()
        dims = (*(dim for dim in in_dims if dim is not None), *(None for _ in lifted))
        node = outer.add_module(module, "vmap_body")
        return record_call(
            tx,
            vmap_call,
            (node, dims, self.out_dims, self.randomness),
            [*(value.node for value in given), *lifted],
        )

    def reconstruct(self, writer: Any) -> None:
        import torch

        from flambeau_capture.values.constant import Constant

        writer.call(
            torch.vmap,
            [self.fn, Constant(self.in_dims), Constant(self.out_dims), Constant(self.randomness)],
        )


def _outputs(tx: Tracer, result: Value) -> Any:
    if isinstance(result, TensorValue):
        return tx.graph.localize(result.node)
    if isinstance(result, SequenceValue) and all(
        isinstance(part, TensorValue) for part in result.parts()
    ):
        return tuple(_outputs(tx, part) for part in result.parts())
    raise Break("FB0005", f"a mapped function that answers {result.describe()}")


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
