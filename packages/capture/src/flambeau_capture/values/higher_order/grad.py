"""`torch.func.grad` and Jacobians as higher-order operators.

In: a function value and the options of a transform. Out: `TransformValue`. Invariant: every tensor
of the arguments is an argument of the body, so that torch can differentiate by any of them.
"""

from __future__ import annotations

import inspect
import types
from typing import Any

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.graph.functions import TRANSFORMS, jvp_call, transform_call
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.functions.callables import CODES, Action, CallRule, handles
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.higher_order.bodies import TensorSlot, arguments, capture_body, places
from flambeau_capture.values.higher_order.vmap import make_vmap
from flambeau_capture.values.tensors.graph_calls import record_call
from flambeau_capture.values.tensors.tensor import TensorValue


class TransformValue(Value):
    """What torch.func.grad and its relatives answer."""

    def __init__(self, kind: str, fn: Value, options: dict[str, Any]) -> None:
        self.kind = kind
        self.fn = fn
        self.options = options

    @property
    def cls(self) -> type:
        return types.FunctionType

    def describe(self) -> str:
        return f"{self.kind} of {self.fn.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if kwargs:
            raise Break("FB0005", f"call of {self.describe()} with keyword arguments")
        given: list[TensorValue] = []
        shapes: list[Any] = []

        def run(body: GraphBuilder) -> Value:
            pairs = [arguments(body, arg, given) for arg in args]
            shapes.extend(shape for _, shape in pairs)
            return tx.call(self.fn, [inner for inner, _ in pairs], {})

        body = capture_body(tx, self.describe(), run)
        options = tuple(self.options.items())
        head = (self.kind, body.node, places(tuple(shapes)), options, len(given))
        nodes = [*(value.node for value in given), *body.lifted]
        return record_call(tx, transform_call, head, nodes)

    def reconstruct(self, writer: Any) -> None:
        options = Constant(tuple(self.options.items()))
        writer.call(_remake, [Constant(self.kind), self.fn, options])


def _remake(kind: str, fn: Any, options: tuple[tuple[str, Any], ...]) -> Any:
    return TRANSFORMS[kind](fn, **dict(options))


def _bound(fn: Any, args: Args, kwargs: Kwargs) -> tuple[dict[str, Value], dict[str, Any]]:
    """Arguments of a transform by name: what is a value of the program, and plain options."""
    bound = inspect.signature(fn).bind(*args, **kwargs).arguments
    values = {n: v for n, v in bound.items() if n in ("func", "primals", "tangents")}
    try:
        plain = {name: v.as_python() for name, v in bound.items() if name not in values}
    except NotConcrete as error:
        raise Break("FB0005", f"{fn.__name__} with {error}") from None
    return values, plain


def _register(kind: str, fn: Any) -> None:
    @handles(fn)
    def make(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        values, options = _bound(fn, args, kwargs)
        return TransformValue(kind, values["func"], options)


for _kind, _fn in TRANSFORMS.items():
    _register(_kind, _fn)
handles(torch.vmap)(make_vmap)


def _identity(x: Any) -> Any:
    return x


def _transformed(maker: Any) -> Any:
    def call(tx: Tracer, fn: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
        """A function that a transform has made before: what captured code would have in its place
        is made of the variables that it encloses."""
        enclosed = {
            name: content
            for name, cell in zip(fn.code.co_freevars, fn.closure())
            if (content := cell.content) is not None and name in inspect.signature(maker).parameters
        }
        made = tx.call(tx.wrap_new(maker), [enclosed.pop("func")], enclosed)
        return tx.call(made, args, kwargs)

    return call


for _maker in (torch.vmap, *reversed(TRANSFORMS.values())):
    CODES[_maker(_identity).__code__] = CallRule(
        Action.ANSWER, f"functions of {_maker.__name__}", _transformed(_maker), of_called=True
    )


@handles(torch.func.jvp)
def _jvp(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    values, options = _bound(torch.func.jvp, args, kwargs)
    given: list[TensorValue] = []
    shapes: list[Any] = []

    def run(body: GraphBuilder) -> Value:
        inner, shape = arguments(body, values["primals"], given)
        shapes.append(shape)
        return tx.call(values["func"], getattr(inner, "parts", list)(), {})

    body = capture_body(tx, "a function of torch.func.jvp", run)
    tangents: list[TensorValue] = []
    apart = GraphBuilder(tx.graph)  # only to number the tangents: their values stay outside
    shapes.append(_moved(arguments(apart, values["tangents"], tangents)[1], len(given)))
    nodes = [value.node for value in (*given, *tangents)]
    head = (body.node, places(tuple(shapes)), bool(options.get("has_aux", False)), len(nodes))
    return record_call(tx, jvp_call, head, [*nodes, *body.lifted])


def _moved(shape: Any, by: int) -> Any:
    """A structure whose places begin later."""
    if isinstance(shape, TensorSlot):
        return TensorSlot(shape.index + by)
    if isinstance(shape, tuple | list):
        return type(shape)(_moved(part, by) for part in shape)
    if isinstance(shape, dict):
        return {key: _moved(part, by) for key, part in shape.items()}
    return shape
