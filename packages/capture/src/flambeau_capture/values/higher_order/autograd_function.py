"""`torch.autograd.Function` as a higher-order operator of two graphs.

In: a subclass of Function and the arguments of its `apply`; the `ctx` of one that torch applies.
Out: the results, made by `autograd_functions.autograd_call`; `GivenContext`. Invariant: what
backward reads of `ctx` is a tensor of the forward body, which autograd keeps as it does what
`save_for_backward` is given, or a plain value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.effects.side_effects import DeferredCall
from flambeau_capture.graph.autograd_functions import autograd_call
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.source import Attr, Source
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, UserError, Value, unpack
from flambeau_capture.values.constant import Constant, constant_of, is_none
from flambeau_capture.values.containers.sequences import SequenceValue, TupleValue, is_mutable
from flambeau_capture.values.functions.call_rules import handles
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.higher_order.bodies import inside, not_under_hooks
from flambeau_capture.values.objects.attributes import (
    Instance,
    assume_special_methods,
    class_attribute,
    find_in_class,
    instance_dict,
)
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import tracked, wraps_if
from flambeau_capture.values.tensors.graph_calls import record_call
from flambeau_capture.values.tensors.tensor import TensorValue

NO_FUNCTION = "FB0007"


class ContextValue(Value):
    """The `ctx` of forward and backward."""

    described = "ctx of {0.kind.__name__}"
    cls: type

    def __init__(self, kind: type, needs: tuple[bool, ...]) -> None:
        self.cls = getattr(kind, "_backward_cls", torch.autograd.function.FunctionCtx)
        self.kind = kind
        self.needs = needs
        #: what its methods were given last
        self.given: dict[str, list[Value]] = {name: [] for name in _METHODS}
        self.attributes: dict[str, Value] = {}
        self.arguments: list[Value] = []  # what the function was called with
        self.unpacked = False

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in self.attributes:
            known = self.attributes[name]
            if tx.run_later and self.is_shared(known):
                raise Break("FB0025", f"{tx.run_later} reads {known.describe()} in {name!r} of ctx")
            return known
        if name == "saved_tensors":
            if not tx.run_later:  # nothing is saved until forward is over
                return TupleValue([])
            self.unpacked = True
            return TupleValue(self.given["save_for_backward"])
        if name == "needs_input_grad":
            return tx.wrap_new(self.needs)
        if name in _METHODS:
            return BoundMethod(self, name)
        found = find_in_class(self.kind, name)
        if found is not None and not hasattr(torch.autograd.Function, name):
            if tx.run_later and isinstance(found[1], int | float | str | torch.Tensor):
                raise Break("FB0025", f"{tx.run_later} reads {name!r} of its class")
            return class_attribute(tx, self, self.kind, name)
        if hasattr(torch.autograd.function.FunctionCtx, name) or found is not None:
            raise Break(NO_FUNCTION, f"{name} of {self.describe()}")
        self.lacks(tx, name)

    def is_shared(self, value: Value) -> bool:
        """Whether a value is a container, or an object that is not the program's yet, which more
        than the context has."""
        if isinstance(value, TupleValue):
            return any(map(self.is_shared, value.parts()))
        if not (is_mutable(value) or isinstance(value, Instance)):
            return False
        reached = (each for given in self.arguments for each in (given, *given.holds()))
        known = value.source is not None and not isinstance(value, Instance)
        return known or (value.source is None and any(value is each for each in reached))

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        tx.heap.changed()
        self.attributes[name] = value

    def del_attr(self, tx: Tracer, name: str) -> None:
        tx.heap.changed()
        if self.attributes.pop(name, None) is None:
            tx.raise_error(AttributeError, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in _METHODS:
            self.unknown(f"method {name!r}")
        refused = _METHODS[name](args)
        if refused:
            raise Break(NO_FUNCTION, refused)
        tx.heap.changed()
        self.given[name] = list(args)
        return Constant(None)

    @property
    def materialize(self) -> bool:
        return all(constant_of(flag) for flag in self.given["set_materialize_grads"])


def _no_tensor(args: Args) -> str:
    known = all(isinstance(a, TensorValue) or is_none(a) for a in args)
    return "" if known else "save_for_backward of what is no tensor"


def _no_flag(args: Args) -> str:
    known = isinstance(args[0], Constant)
    return "" if known else f"set_materialize_grads of {args[0].describe()}"


#: what is wrong with their arguments
_METHODS: dict[str, Callable[[Args], str]] = {
    "save_for_backward": _no_tensor,
    "set_materialize_grads": _no_flag,
    **dict.fromkeys(("mark_non_differentiable", "mark_dirty", "save_for_forward"), lambda args: ""),
}


class GivenContext(ObjectValue):
    """The `ctx` of a function that torch itself applies. What its methods are given is set when the
    graph has run: torch looks at it once the function has returned."""

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in _METHODS:
            return BoundMethod(self, name)
        if name == "needs_input_grad" and self.source is not None:
            return tx.wrap(self.real.needs_input_grad, Attr(self.source, name))
        return super().get_attr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in _METHODS:
            return super().call_method(tx, name, args, kwargs)
        flag = name == "set_materialize_grads"
        if kwargs or (flag and [arg.cls for arg in args] != [bool]):
            raise Break(NO_FUNCTION, f"{name} of {self.describe()}")
        tx.heap.log(DeferredCall(_notify, [self, Constant(name), *args]))
        return Constant(None)


def _notify(ctx: Any, name: str, *given: Any) -> None:
    getattr(ctx, name)(*given)


@wraps_if(lambda obj: issubclass(type(obj), torch.autograd.function.BackwardCFunction), 60)
@tracked
def wrap_context(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", type(obj))
    assume_special_methods(tx, type(obj))
    if not tx.heap.take_attributes(instance_dict(obj), obj):
        return OpaqueValue(obj, source)
    return GivenContext(type(obj), real=obj, source=source)


@handles(*compat.function_applies())
def _apply(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    kind, given = args[0], list(args[1:])
    if (
        not isinstance(kind, ClassValue)
        or kwargs
        or not _is_usual(kind.python_class, tx.graph.transformed)
    ):
        raise Break(NO_FUNCTION, f"apply of {kind.describe()}")
    grad_mode = torch.is_grad_enabled()
    try:
        compat.set_grad_enabled(False)
        return _Application(tx, kind, given, grad_mode).record(grad_mode)
    finally:
        compat.set_grad_enabled(grad_mode)


def _is_usual(kind: type, transformed: bool) -> bool:
    """Whether nothing but forward, setup_context and backward is the program's own, of what is
    called: derivatives of forward mode and rules of `vmap` are not but by a transform."""
    function = torch.autograd.Function
    of_transforms = ("jvp", "generate_vmap_rule") if transformed else ()
    for name in ("apply", "once_differentiable", *of_transforms):
        own, usual = find_in_class(kind, name), find_in_class(function, name)
        if (own is None) != (usual is None) or (own and usual and own[1] is not usual[1]):
            return False
    return find_in_class(kind, "vjp") == find_in_class(function, "vjp")


Body = tuple[fx.GraphModule, list[fx.Node]]


class _Application:
    """One call of `apply`."""

    def __init__(self, tx: Tracer, kind: ClassValue, given: list[Value], grad_mode: bool) -> None:
        self.tx = tx
        self.kind = kind
        self.given = given
        self.name = kind.python_class.__name__
        self.tensors = [value for value in given if isinstance(value, TensorValue)]
        self.needs = tuple(
            isinstance(value, TensorValue) and bool(value.fake.requires_grad) for value in given
        )
        self.followed = grad_mode and any(self.needs)

    def record(self, grad_mode: bool) -> Value:
        tx = self.tx
        ctx = self.ctx = ContextValue(self.kind.python_class, self.needs)
        ctx.arguments, around = self.given, tx.graph
        with inside(tx, f"forward of {self.name}") as forward:
            self.forward = forward
            forward.transformed = around.transformed
            inner = [self._argument(forward, value) for value in self.given]
            result = self._forward(ctx, inner)
            outputs = result.parts() if isinstance(result, SequenceValue) else [result]
            results = [value for value in outputs if isinstance(value, TensorValue)]
            if not results or not all(isinstance(v, TensorValue) or _is_plain(v) for v in outputs):
                raise Break(NO_FUNCTION, f"forward of {self.name} answers {result.describe()}")
            if isinstance(result, SequenceValue) and result.cls is not tuple:
                raise Break(NO_FUNCTION, f"forward of {self.name} answers {result.describe()}")
            if any(value.node.graph is not forward.graph for value in results):
                raise Break(NO_FUNCTION, f"forward of {self.name} answers a tensor from outside")
            nodes = [forward.localize(value.node) for value in results]
            without = _places(results, ctx.given["mark_non_differentiable"])
            marked = ctx.given["mark_dirty"]
            dirty = _places(results, marked)
            if len(dirty) != len(marked) or not all(
                any(results[place] is value for value in inner) for place in dirty
            ):
                raise Break(NO_FUNCTION, "mark_dirty of what is no argument, or no result")
            if not grad_mode and any(self._wants(inner, results[place]) for place in dirty):
                # the result is another tensor then, which does not
                raise Break(NO_FUNCTION, "mark_dirty of what requires grad, where grad is disabled")
        backward, kept = self._backward(outputs, results, without)
        first, cases = len(kept), []
        for defined in () if ctx.materialize else _patterns(len(results), without):
            body, more = self._undefined(outputs, results, defined)
            own = (
                tx.graph.add_module(body, "backward") if isinstance(body, fx.GraphModule) else body
            )
            cases.append((defined, own, (len(kept), len(kept) + len(more))))
            kept = [*kept, *more]
        saved = ctx.given["save_for_backward"]
        if saved and self.followed:
            not_under_hooks(tx, NO_FUNCTION, f"{self.name} saves tensors")
        by_version = {forward.localize(v.node): 0 for v in saved if isinstance(v, TensorValue)}
        local = [forward.localize(node) for node in kept]
        # autograd looks at the versions of all, whichever of them backward computes with
        unread = [node for node in by_version if ctx.unpacked and node not in local]
        checked = tuple(node in by_version for node in (*local, *unread))
        forward.set_output((*nodes, *local, *unread))
        module, lifted = forward.finish_body()
        bodies = (
            tx.graph.add_module(module, "forward"),
            tx.graph.add_module(backward, "backward"),
            tuple(cases),
        )
        compat.set_grad_enabled(grad_mode)
        spec = (len(self.tensors), len(results), first, checked, without, dirty)
        found = find_in_class(self.kind.python_class, "backward")
        once = found is not None and compat.is_once_differentiable(found[1])
        made = record_call(
            tx,
            autograd_call,
            (*bodies, spec, once, self.name),
            [*(v.node for v in self.tensors), *lifted],
        )
        assert isinstance(made, SequenceValue)
        answers = list(made.parts())
        for place in dirty:  # the argument itself, as the program may ask
            answers[place] = self.given[_places(inner, [results[place]])[0]]
        last = {id(value): answers[place] for place, value in enumerate(results)}
        entered = {
            id(value) for value in inner
        }  # each time that one is returned, a view of its own
        answers = [
            answers[place] if id(value) in entered else last[id(value)]
            for place, value in enumerate(results)
        ]
        written = [answers[place] for place in dirty]
        nodes_written = {value.node for value in written if isinstance(value, TensorValue)}
        tx.graph.written_by_functions.update(dict.fromkeys(_calls(made), nodes_written))
        if not isinstance(result, SequenceValue):
            return answers[0]
        tensors = iter(answers)
        return TupleValue([next(tensors) if isinstance(v, TensorValue) else v for v in outputs])

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
        self, outputs: Sequence[Value], results: list[TensorValue], without: tuple[int, ...]
    ) -> Body:
        materialize = self.ctx.materialize

        def derivatives(body: GraphBuilder) -> list[Value]:
            found: list[Value] = [
                TensorValue(body.add_example(f"grad{place}", _scattered(self.tx, value.fake)))
                for place, value in enumerate(results)
            ]
            for place in () if materialize else without:
                found[place] = Constant(None)
            tensors = iter(found)  # what is no tensor has no derivative
            return [
                next(tensors) if isinstance(v, TensorValue) else Constant(None) for v in outputs
            ]

        return self._answers(len(results), derivatives)

    def _undefined(
        self, outputs: Sequence[Value], results: list[TensorValue], defined: tuple[bool, ...]
    ) -> Body | tuple[tuple[str, str], list[fx.Node]]:
        """The backward of derivatives of which these are defined; the class and text of the error,
        if it raises."""

        def derivatives(body: GraphBuilder) -> list[Value]:
            found = [
                TensorValue(body.add_example(f"grad{place}", _scattered(self.tx, value.fake)))
                if there
                else Constant(None)
                for place, (value, there) in enumerate(zip(results, defined, strict=True))
            ]
            tensors = iter(found)
            return [
                next(tensors) if isinstance(v, TensorValue) else Constant(None) for v in outputs
            ]

        try:
            return self._answers(sum(defined), derivatives)
        except UserError as error:
            return (error.value.cls.__name__, _text(error.value)), []

    def _answers(self, count: int, derivatives: Callable[[GraphBuilder], list[Value]]) -> Body:
        """The body that answers `count` derivatives, and the nodes that it needs of forward."""
        tx = self.tx
        if not self.followed:
            return fx.GraphModule(torch.nn.Module(), _nothing(count, len(self.tensors))), []
        with inside(tx, f"backward of {self.name}", self.forward, later=True) as body:
            given = [self.ctx, *derivatives(body)]
            found = tx.call(tx.get_attr(self.kind, "backward"), given, {})
            parts = unpack(tx, found) if isinstance(found, SequenceValue) else [found]
            if len(parts) < len(self.given) or not all(map(is_none, parts[len(self.given) :])):
                raise Break(NO_FUNCTION, f"backward of {self.name} answers {len(parts)} values")
            outputs: list[fx.Node | None] = []
            for value, part in zip(self.given, parts):
                if isinstance(value, TensorValue):
                    if not isinstance(part, TensorValue) and not is_none(part):
                        raise Break(NO_FUNCTION, f"backward answers {part.describe()}")
                    node = part.node if isinstance(part, TensorValue) else None
                    outputs.append(node and body.localize(node))
            body.set_output(tuple(outputs))
            return body.finish_body()


def _patterns(results: int, without: Sequence[int]) -> list[tuple[bool, ...]]:
    """Which derivatives may be defined where not all of them are: a result may have none."""
    if results - len(without) > _MOST_RESULTS:
        raise Break(NO_FUNCTION, f"set_materialize_grads(False) with over {_MOST_RESULTS} results")
    each = [(False,) if place in without else (True, False) for place in range(results)]
    return [*itertools.product(*each)][1:]


_MOST_RESULTS = 3  # the program's backward is interpreted once for each set of them


def _is_plain(value: Value) -> bool:
    """Whether a value holds no tensor, and never changes."""
    if isinstance(value, TupleValue):
        return all(map(_is_plain, value.parts()))
    return isinstance(value, Constant)


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
        made = torch.empty((*head, 2 * last), dtype=like.dtype, device=like.device)
        return made[..., ::2]
