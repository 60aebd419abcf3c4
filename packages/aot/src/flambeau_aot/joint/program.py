"""The program to compile, in one form for every front end.

In: a captured `fx.GraphModule`, or any callable with tensors it reads. Out: a `InputProgram`: its
static tensors (parameters, buffers) and a way to run it on stand-ins for them and for the inputs.
Invariant: the program reads no tensor but those it is handed; a GraphModule's own tensors are
replaced at every `get_attr`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import (
    DATA_DEPENDENT_ERRORS,
    FakeTensor,
    FakeTensorMode,
    enter_inference,
    environment_of,
    exit_inference,
    sequence_number,
    set_grad_enabled,
)
from flambeau_aot.errors import AotError, is_refusal
from flambeau_aot.joint.dispatch_mode import ASSERTION, JointTracer
from flambeau_aot.joint.source_lines import Lines
from flambeau_aot.refusals import refusal
from flambeau_aot.sizes import has_symbols, symbolic_parts

Run = Callable[[Sequence[torch.Tensor], Sequence[Any], JointTracer], Any]


@dataclass(frozen=True)
class InputProgram:
    """A program, its static tensors with their names, and how to run it on stand-ins."""

    name: str
    static: tuple[torch.Tensor, ...]
    static_names: tuple[str, ...]
    input_names: tuple[str, ...]
    run: Run
    lines_from_stack: bool
    checked: bool = True
    """Whether it raises by data where eager does, although nothing reads the result."""
    symbolic: tuple[Any, ...] = ()
    """For a program whose sizes are left open: by input, the fake tensor or the number that stands
    for it."""
    subclasses: bool = False
    """Whether it makes tensor subclasses."""
    fake_mode: type[FakeTensorMode] = FakeTensorMode
    """The class of the mode that whoever captured it has used: another one may take long to load"""
    environment: Any = None
    """The shape environment of sizes that depend on data, where it has any."""
    conditions: tuple[Callable[[], bool], ...] = ()
    """What its calls ask of the world in a backward pass: where one no longer holds, eager's
    gradients are others than those that were traced."""

    def untraced(self, static: Sequence[torch.Tensor], args: Sequence[Any]) -> Any:
        """What the program returns for tensors: it is run as eager runs it."""
        try:
            return self.run(static, args, _Untraced())  # type: ignore[arg-type]
        except AotError as error:
            raise (error.__cause__ or error) from None

    def eagerly(self, *args: Any) -> Any:
        """The same with its own static tensors."""
        return self.untraced(self.static, args)


@dataclass(frozen=True)
class _Untraced:
    """In the place of a tracer, for a program that is not traced."""

    lines: Lines = field(default_factory=Lines)

    def assertion(self, condition: Any, message: str) -> None:
        """A condition on sizes, which are numbers here."""
        ASSERTION(condition, message)


def of_graph_module(gm: fx.GraphModule, name: str) -> InputProgram:
    """A captured graph: placeholders are the inputs, `get_attr` tensors the static ones."""
    nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    targets = [str(node.target) for node in gm.graph.nodes if node.op == "get_attr"]
    values = {target: attrgetter(target)(gm) for target in targets}
    tensors = {target: x for target, x in values.items() if isinstance(x, torch.Tensor)}
    first = {id(tensor): target for target, tensor in reversed(tensors.items())}
    names = [target for target, tensor in tensors.items() if first[id(tensor)] == target]
    place = {target: at for at, target in enumerate(names)}
    position = {target: place[first[id(tensor)]] for target, tensor in tensors.items()}
    inputs, stand_ins = [str(x.target) for x in nodes], [x.meta.get("val") for x in nodes]

    def run(params: Sequence[torch.Tensor], args: Sequence[Any], tracer: JointTracer) -> Any:
        return _interpret(gm, position, params, args, tracer)

    symbolic = tuple(stand_ins) if any(map(has_symbols, stand_ins)) else ()
    modes = [type(value.fake_mode) for value in stand_ins if isinstance(value, FakeTensor)]
    mode = modes[0] if modes else FakeTensorMode
    static = tuple(tensors[target] for target in names)
    own = (name, static, tuple(names), tuple(inputs), run)
    numbers = symbolic_parts(x.meta.get("val") for x in gm.graph.nodes)
    environment = next((environment_of(each) for each in numbers), None)
    asked = (getattr(node.target, "still_holds", None) for node in gm.graph.nodes)
    conditions = tuple(dict.fromkeys(each for each in asked if each is not None))
    return InputProgram(
        *own,
        False,
        symbolic=symbolic,
        fake_mode=mode,
        environment=environment,
        conditions=conditions,
    )


def of_callable(fn: Callable[..., Any], count: int, name: str) -> InputProgram:
    """A plain function of `count` flat inputs that reads no other tensor."""
    return of_module_call(lambda values, *inputs: fn(*inputs), {}, count, name)


def of_module_call(
    fn: Callable[..., Any], static: dict[str, torch.Tensor], count: int, name: str
) -> InputProgram:
    """A function `fn(static_values, *inputs)` whose static tensors are handed to it."""
    names = tuple(static)

    def run(params: Sequence[torch.Tensor], args: Sequence[Any], tracer: JointTracer) -> Any:
        lines = tracer.lines
        lines.leave()
        try:
            return fn(dict(zip(names, params, strict=True)), *args)
        except Exception as error:
            raise _explained(error, name, lines.of_error(error)) from error

    inputs = tuple(f"arg_{index}" for index in range(count))
    return InputProgram(name, tuple(static.values()), names, inputs, run, True)


def _interpret(
    gm: fx.GraphModule,
    position: dict[str, int],
    params: Sequence[torch.Tensor],
    args: Sequence[Any],
    tracer: JointTracer,
) -> Any:
    lines = tracer.lines
    values: dict[fx.Node, Any] = {}
    remaining = iter(args)
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(remaining)
            continue
        if node.op == "get_attr":
            target = str(node.target)
            known = position.get(target)
            values[node] = attrgetter(target)(gm) if known is None else params[known]
            continue
        given, named = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        if node.op == "output":
            return given[0]
        lines.enter(node.meta, sequence_number())
        try:
            if node.target is ASSERTION:  # a condition has no truth while it is traced
                tracer.assertion(*given)
            elif node.target is enter_inference:  # the caller's results get the mode; its guard
                values[node] = torch.is_grad_enabled()  # would bring back this thread's modes
                set_grad_enabled(not given[0])
            elif node.target is exit_inference:
                set_grad_enabled(*given)
            elif node.op == "call_function":
                values[node] = node.target(*given, **named)  # type: ignore[operator]
            elif node.op == "call_method":
                values[node] = getattr(given[0], str(node.target))(*given[1:], **named)
            else:
                raise refusal("AO0026", op=node.op)
        except Exception as error:
            raise _explained(
                error, node.format_node() or node.name, node.meta.get("stack_trace", "")
            ) from error
    raise refusal("AO0027")


_TORCH_SAYS = {
    "as_strided() is non-compositional": "AO0029",
    "resize a view tensor to a larger size": "AO0030",
    "functionalization encountered a tensor being mutated that has internal overlap": "AO0031",
    "aten::equal: attempted to run this operator with Meta tensors": "AO0032",
    "but its data is not allocated yet": "AO0033",
    "has_fw_view() INTERNAL ASSERT": "AO0034",
    "new_fn INTERNAL ASSERT": "AO0035",
}
"""What functionalization refuses, by its own words, and the refusal that it is."""


def _explained(error: Exception, what: str, lines: str | None) -> AotError:
    if isinstance(error, AotError):
        return error if error.user_lines or not lines else type(error)(error.message, lines)
    if isinstance(error, DATA_DEPENDENT_ERRORS):
        return refusal("AO0028", lines or "", what=what, error=error)
    for words, id in _TORCH_SAYS.items():
        if words in str(error):
            return refusal(id, lines or "", what=what)
    id = "AO0036" if is_refusal(error) else "AO0037"
    return refusal(id, lines or "", what=what, kind=type(error).__name__, error=error)
