"""`torch.autograd.Function` as a higher-order operator of two graphs.

In: a subclass of Function and the arguments of its `apply`. Out: the results, made by
`graph_functions.autograd_call`. Invariant: what backward reads of `ctx` is a tensor of the forward
body, which autograd keeps as it does what `save_for_backward` is given, or a plain value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.graph.functions import autograd_call
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, UserError, Value, unpack
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.containers.sequences import SequenceValue, TupleValue
from flambeau_capture.values.functions.callables import handles
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.higher_order.bodies import Inside
from flambeau_capture.values.objects.attributes import class_attribute, find_in_class
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.tensors.graph_calls import record_call
from flambeau_capture.values.tensors.tensor import TensorValue

NO_FUNCTION = "FB0007"


class ContextValue(Value):
    """The `ctx` of forward and backward."""

    def __init__(self, kind: type, needs: tuple[bool, ...]) -> None:
        self.kind = kind
        self.needs = needs
        self.saved: list[Value] = []
        self.without: list[Value] = []
        self.dirty: list[Value] = []
        self.materialize = True
        self.attributes: dict[str, Value] = {}

    @property
    def cls(self) -> type:
        found: type = getattr(self.kind, "_backward_cls", torch.autograd.function.FunctionCtx)
        return found

    def describe(self) -> str:
        return f"ctx of {self.kind.__name__}"

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in self.attributes:
            return self.attributes[name]
        if name == "saved_tensors":
            return TupleValue(self.saved)
        if name == "needs_input_grad":
            return tx.wrap_new(self.needs)
        if name in _METHODS:
            return BoundMethod(self, name)
        found = find_in_class(self.kind, name)
        if found is not None and not hasattr(torch.autograd.Function, name):
            return class_attribute(tx, self, self.kind, name)
        if hasattr(torch.autograd.function.FunctionCtx, name) or found is not None:
            raise Break(NO_FUNCTION, f"{name} of {self.describe()}")
        tx.raise_error(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        tx.heap.changed()
        self.attributes[name] = value

    def del_attr(self, tx: Tracer, name: str) -> None:
        tx.heap.changed()
        if self.attributes.pop(name, None) is None:
            tx.raise_error(AttributeError, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        handler = _METHODS.get(name)
        if handler is None:
            self.unknown(f"method {name!r}")
        tx.heap.changed()
        handler(self, args)
        return Constant(None)


def _save(ctx: ContextValue, args: Args) -> None:
    if not all(isinstance(a, TensorValue) or _is_none(a) for a in args):
        raise Break(NO_FUNCTION, "save_for_backward of what is no tensor")
    ctx.saved = list(args)


def _without_derivative(ctx: ContextValue, args: Args) -> None:
    ctx.without = list(args)


def _materialize(ctx: ContextValue, args: Args) -> None:
    if not isinstance(args[0], Constant):
        raise Break(NO_FUNCTION, f"set_materialize_grads of {args[0].describe()}")
    ctx.materialize = bool(args[0].value)


def _dirty(ctx: ContextValue, args: Args) -> None:
    ctx.dirty = list(args)


_METHODS: dict[str, Callable[[ContextValue, Args], None]] = {
    "save_for_backward": _save,
    "mark_non_differentiable": _without_derivative,
    "set_materialize_grads": _materialize,
    "mark_dirty": _dirty,
    "save_for_forward": lambda ctx, args: None,
}


def _is_none(value: Value) -> bool:
    return is_none(value)


@handles(*compat.function_applies())
def _apply(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    kind, given = args[0], list(args[1:])
    if not isinstance(kind, ClassValue) or kwargs or not _is_usual(kind.python_class):
        raise Break(NO_FUNCTION, f"apply of {kind.describe()}")
    grad_mode = torch.is_grad_enabled()
    try:
        compat.set_grad_enabled(False)
        return _Application(tx, kind, given, grad_mode).record(grad_mode)
    finally:
        compat.set_grad_enabled(grad_mode)


def _is_usual(kind: type) -> bool:
    """Whether nothing but forward, setup_context and backward is the program's own."""
    function = torch.autograd.Function
    same = ("apply", "_backward_cls", "jvp", "generate_vmap_rule", "once_differentiable")
    for name in same[:1] + same[2:]:
        own, usual = find_in_class(kind, name), find_in_class(function, name)
        if (own is None) != (usual is None) or (own and usual and own[1] is not usual[1]):
            return False
    return find_in_class(kind, "vjp") == find_in_class(function, "vjp")


class _Application:
    """One call of `apply`."""

    def __init__(self, tx: Tracer, kind: ClassValue, given: list[Value], grad_mode: bool) -> None:
        self.tx = tx
        self.kind = kind
        self.given = given
        self.name = kind.python_class.__name__
        self.tensors = [value for value in given if isinstance(value, TensorValue)]
        self.needs = tuple(
            isinstance(value, TensorValue) and bool(value.fake.requires_grad) and grad_mode
            for value in given
        )

    def record(self, grad_mode: bool) -> Value:
        tx = self.tx
        ctx = ContextValue(self.kind.python_class, self.needs)
        with Inside(tx, f"forward of {self.name}") as forward:
            inner = [self._argument(forward, value) for value in self.given]
            result = self._forward(ctx, inner)
            outputs = result.parts() if isinstance(result, SequenceValue) else [result]
            if not outputs or not all(isinstance(value, TensorValue) for value in outputs):
                raise Break(NO_FUNCTION, f"forward of {self.name} answers {result.describe()}")
            results = [value for value in outputs if isinstance(value, TensorValue)]
            if isinstance(result, SequenceValue) and result.cls is not tuple:
                raise Break(NO_FUNCTION, f"forward of {self.name} answers {result.describe()}")
            nodes = [forward.localize(value.node) for value in results]
            without = _places(results, ctx.without)
            dirty = _places(results, ctx.dirty)
            if len(dirty) != len(ctx.dirty) or not all(
                any(results[place] is value for value in inner) for place in dirty
            ):
                raise Break(NO_FUNCTION, "mark_dirty of what is no argument, or no result")
            if not grad_mode and any(self._wants(inner, results[place]) for place in dirty):
                # the result is another tensor then, which does not
                raise Break(NO_FUNCTION, "mark_dirty of what requires grad, where grad is disabled")
        backward, kept = self._backward(forward, ctx, results, without)
        bare, first = None, len(kept)
        if not ctx.materialize:
            bare, more = self._bare_backward(forward, ctx, results)
            kept = [*kept, *more]
        by_version = {forward.localize(v.node) for v in ctx.saved if isinstance(v, TensorValue)}
        checked = tuple(forward.localize(node) in by_version for node in kept)
        forward.set_output((*nodes, *(forward.localize(node) for node in kept)))
        module, lifted = forward.finish_body()
        bodies = (
            tx.graph.add_module(module, "forward"),
            tx.graph.add_module(backward, "backward"),
            tx.graph.add_module(bare, "bare") if isinstance(bare, fx.GraphModule) else bare,
        )
        compat.set_grad_enabled(grad_mode)
        spec = (len(self.tensors), len(results), first, checked, without, dirty)
        found = find_in_class(self.kind.python_class, "backward")
        once = found is not None and compat.is_once_differentiable(found[1])
        made = record_call(
            tx, autograd_call, (*bodies, spec, once), [*(v.node for v in self.tensors), *lifted]
        )
        assert isinstance(made, SequenceValue)
        answers = list(made.parts())
        for place in dirty:  # the argument itself, as the program may ask
            answers[place] = self.given[_places(inner, [results[place]])[0]]
        written = [answers[place] for place in dirty]
        nodes_written = {value.node for value in written if isinstance(value, TensorValue)}
        tx.graph.written_by_functions.update(dict.fromkeys(_calls(made), nodes_written))
        return TupleValue(answers) if isinstance(result, SequenceValue) else answers[0]

    def _wants(self, inner: list[Value], result: TensorValue) -> bool:
        argument = self.given[_places(inner, [result])[0]]
        return isinstance(argument, TensorValue) and bool(argument.fake.requires_grad)

    def _argument(self, body: GraphBuilder, value: Value) -> Value:
        if not isinstance(value, TensorValue):
            return value
        node = body.add_example(f"arg{len(body.graph.nodes)}", value.fake)
        return TensorValue(node, python_class=value.cls)

    def _forward(self, ctx: ContextValue, inner: list[Value]) -> Value:
        tx = self.tx
        function = tx.get_attr(self.kind, "forward")
        setup = find_in_class(self.kind.python_class, "setup_context")
        if setup is None or setup == find_in_class(torch.autograd.Function, "setup_context"):
            return tx.call(function, [ctx, *inner], {})
        result = tx.call(function, inner, {})
        tx.call(tx.get_attr(self.kind, "setup_context"), [ctx, TupleValue(inner), result], {})
        return result

    def _backward(
        self,
        forward: GraphBuilder,
        ctx: ContextValue,
        results: list[TensorValue],
        without: tuple[int, ...],
    ) -> tuple[fx.GraphModule, list[fx.Node]]:
        """The body that answers derivatives, and the nodes that it needs of forward."""
        tx = self.tx
        if not any(self.needs):
            return fx.GraphModule(torch.nn.Module(), _nothing(len(results), len(self.tensors))), []
        with Inside(tx, f"backward of {self.name}", forward) as body:
            derivatives: list[Value] = [
                TensorValue(body.add_example(f"grad{place}", _scattered(tx, value.fake)))
                for place, value in enumerate(results)
            ]
            if not ctx.materialize:
                if len(results) - len(without) > 1:
                    # each may be undefined in one backward pass and not in another
                    raise Break(NO_FUNCTION, "set_materialize_grads(False) with several results")
                derivatives = [
                    Constant(None) if place in without else value
                    for place, value in enumerate(derivatives)
                ]
            return self._answers(body, ctx, derivatives)

    def _bare_backward(
        self, forward: GraphBuilder, ctx: ContextValue, results: list[TensorValue]
    ) -> tuple[fx.GraphModule | tuple[str, str], list[fx.Node]]:
        """The backward of undefined derivatives; the class and text of the error, if it raises."""
        if not any(self.needs):
            return fx.GraphModule(torch.nn.Module(), _nothing(0, len(self.tensors))), []
        try:
            with Inside(self.tx, f"backward of {self.name}", forward) as body:
                return self._answers(body, ctx, [Constant(None) for _ in results])
        except UserError as error:
            return (error.value.cls.__name__, _text(error.value)), []

    def _answers(
        self, body: GraphBuilder, ctx: ContextValue, derivatives: list[Value]
    ) -> tuple[fx.GraphModule, list[fx.Node]]:
        tx = self.tx
        found = tx.call(tx.get_attr(self.kind, "backward"), [ctx, *derivatives], {})
        parts = unpack(tx, found) if isinstance(found, SequenceValue) else [found]
        if len(parts) < len(self.given) or not all(_is_none(v) for v in parts[len(self.given) :]):
            raise Break(NO_FUNCTION, f"backward of {self.name} answers {len(parts)} values")
        outputs: list[fx.Node | None] = []
        for value, part in zip(self.given, parts):
            if isinstance(value, TensorValue):
                if not isinstance(part, TensorValue) and not _is_none(part):
                    raise Break(NO_FUNCTION, f"backward answers {part.describe()}")
                outputs.append(body.localize(part.node) if isinstance(part, TensorValue) else None)
        body.set_output(tuple(outputs))
        return body.finish_body()


def _text(error: Value) -> str:
    try:
        return str(error.as_python())
    except NotConcrete:
        return error.describe()


def _calls(made: SequenceValue) -> set[fx.Node]:
    found = [value.node for value in made.parts() if isinstance(value, TensorValue)]
    return {source for node in found for source in node.all_input_nodes}


def _places(values: Sequence[Value], told: Sequence[Value]) -> tuple[int, ...]:
    """Which of the values are among those that the context was given."""
    return tuple(
        place for place, value in enumerate(values) if any(value is other for other in told)
    )


def _nothing(results: int, arguments: int) -> fx.Graph:
    """A graph for a backward that is never called."""
    graph = fx.Graph()
    for place in range(results):
        graph.placeholder(f"grad{place}")
    graph.output((None,) * arguments)
    return graph


def _scattered(tx: Tracer, like: torch.Tensor) -> torch.Tensor:
    """A fake derivative that is contiguous in no memory format: autograd promises none."""
    with tx.graph.fake_mode:
        if like.dim() == 0:
            return torch.empty_like(like)
        *head, last = like.shape
        made: torch.Tensor = torch.empty((*head, 2 * last), dtype=like.dtype, device=like.device)[
            ..., ::2
        ]
        return made
