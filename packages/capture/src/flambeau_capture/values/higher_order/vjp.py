"""`torch.func.vjp` and `linearize` as higher-order operators.

In: a function value and primals. Out: the result, and a `DerivativeValue` that is called with
cotangents or tangents. Invariant: the derivative is a node of the graph that computes the result,
of the same run of the function; it never leaves that graph, which ends before the call otherwise.
What `linearize` answers is no function of its primals for autograd, as eager folds them into it.
"""

from __future__ import annotations

import operator
import types
from typing import Any

import torch
from torch import Tensor, fx
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.graph.effects import GraphEffects
from flambeau_capture.graph.functions import applied_call, linear_call, vjp_call
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Unreconstructible, Value
from flambeau_capture.values.containers.tuples import TupleValue
from flambeau_capture.values.functions.callables import handles
from flambeau_capture.values.higher_order.bodies import arguments, capture_body, places
from flambeau_capture.values.tensors.graph_calls import project, record_call, run_call, version_of
from flambeau_capture.values.tensors.tensor import TensorValue

_REASON = "FB0005"


class DerivativeValue(Value):
    """The second result of vjp or linearize."""

    def __init__(self, tx: Tracer, name: str, node: fx.Node, watched: list[torch.Tensor]) -> None:
        self.name = name
        self.node = node
        self.step = tx.step()
        self._graph = tx.graph
        self._watched = [(tensor, version_of(tensor)) for tensor in watched]

    @property
    def cls(self) -> type:
        return types.FunctionType

    def describe(self) -> str:
        return f"a derivative made by {self.name}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if tx.graph is not self._graph:
            raise Break(_REASON, f"{self.describe()} in a function that torch maps or runs again")
        if any(version_of(tensor) != version for tensor, version in self._watched):
            raise Unreconstructible(self, f"{self.describe()} of what was written to since")
        try:
            options = tuple((name, value.as_python()) for name, value in kwargs.items())
        except NotConcrete as error:
            raise Break(_REASON, f"{self.describe()} with {error}") from None
        given: list[TensorValue] = []
        apart = GraphBuilder(tx.graph)  # only to number the tensors: their values stay outside
        _, shape = arguments(apart, TupleValue(list(args)), given)
        head = (self.node, places(shape), options)
        return record_call(tx, applied_call, head, [value.node for value in given])


def _derivative(tx: Tracer, name: str, target: Any, args: Args, options: Any) -> list[Value]:
    """What a call of vjp or linearize answers."""
    fn, *primals = args
    given: list[TensorValue] = []
    shapes: list[Any] = []

    def run(body: GraphBuilder) -> Value:
        inner, shape = arguments(body, TupleValue(primals), given)
        shapes.append(shape)
        return tx.call(fn, getattr(inner, "parts", list)(), {})

    body = capture_body(tx, f"a function of {name}", run)
    nodes = [*(value.node for value in given), *body.lifted]
    watched = [entry.meta["val"] for entry in nodes]
    followed = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in watched)
    if target is linear_call and (followed or tx.graph.outer is not None):
        raise Break(_REASON, f"{name} at what is differentiated or mapped")
    plain = (body.node, places(shapes[0]), options, len(given), *nodes)
    local = fx.node.map_arg(plain, tx.graph.localize)
    if target is linear_call:
        run_call(tx, "call_function", _must_be_linear, local, {})
    result = run_call(tx, "call_function", target, local, {})
    node = tx.graph.record("call_function", target, local, {}, result, tx.stack_trace())
    answers = [project(tx, node, place, result[place], {}) for place in range(2, len(result))]
    function = tx.graph.graph.call_function(operator.getitem, (node, 1))
    function.meta.update(val=result[1], projection=True, stack_trace=tx.stack_trace())
    return [
        project(tx, node, 0, result[0], {}),
        DerivativeValue(tx, name, function, watched if target is linear_call else []),
        *answers,
    ]


def _must_be_linear(body: fx.GraphModule, _: Any, __: None, count: int, *tensors: Tensor) -> None:
    """A graph break where eager's linear function is more than the derivative: it is a recording of
    one run, which loses writes, keeps the numbers drawn and what transforms inside of the function
    answer, and answers constants of its own for what no tangent enters, and memory of its own."""
    if any(isinstance(child, fx.GraphModule) for child in body.children()):
        raise Break(_REASON, "torch.func.linearize of a function that calls transforms")
    effects = GraphEffects()
    tangents = [torch.zeros_like(tensor) for tensor in tensors[:count]]
    with forward_ad.dual_level(), compat.Following(effects.see, tangents) as following:
        results = tree_leaves(body(*map(forward_ad.make_dual, tensors, tangents), *tensors[count:]))
        found = [
            forward_ad.unpack_dual(leaf).tangent for leaf in results if isinstance(leaf, Tensor)
        ]
    if effects.any():
        raise Break(_REASON, "torch.func.linearize of a function that writes or draws")
    if len(found) < len(results) or not all(map(following.computed, found)):
        raise Break(_REASON, "torch.func.linearize of a function with a result of no tangent")
    if len({t.untyped_storage()._cdata for t in (*tangents, *found)}) < len(tangents + found):
        raise Break(_REASON, "torch.func.linearize of a function with a result that is a view")


@handles(torch.func.vjp)
def _vjp(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not set(kwargs) <= {"has_aux"}:
        raise Break(_REASON, "torch.func.vjp with other keyword arguments")
    has_aux = "has_aux" in kwargs and kwargs["has_aux"].truth(tx)
    return TupleValue(_derivative(tx, "torch.func.vjp", vjp_call, args, has_aux))


@handles(torch.func.linearize)
def _linearize(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if kwargs:
        raise Break(_REASON, "torch.func.linearize with keyword arguments")
    return TupleValue(_derivative(tx, "torch.func.linearize", linear_call, args, None))
