"""Graph builder of one frame, on fake tensors.

In: tensor operations in program order. Out: an `fx.GraphModule` of Torch IR whose placeholders are
the runtime inputs, with `meta["val"]` and `meta["stack_trace"]` on its nodes. Invariant: nodes are
recorded in the order in which the program ran the operations, and none that may have an effect is
dropped.
"""

from __future__ import annotations

import itertools
import operator
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break, SkipFrame
from flambeau_capture.graph.functions import Body
from flambeau_capture.graph.operator_effects import GraphEffects
from flambeau_capture.signal_handlers import HANDLERS
from flambeau_capture.source import CallResultSource, Source

#: Python's classes of numbers where torch expects a dtype: a graph cannot print them
_DTYPES: dict[Any, torch.dtype] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}


class Warned(Break):
    """An operation warns at each call: its Python function is interpreted, or it runs eagerly."""


@dataclass(frozen=True)
class GraphInput:
    """A tensor, or a number, that the graph takes when it runs."""

    node: fx.Node
    source: Source
    tensor: Any

    def is_number(self) -> bool:
        return not isinstance(self.tensor, torch.Tensor)

    def is_made(self) -> bool:
        """Whether it is made for this call: these come last, in the order of the program."""
        return isinstance(self.source, CallResultSource)


class CopiedTensor(NamedTuple):
    """A copy in place of a view, or a tensor made in place of one that eager keeps: what it is of,
    their versions then, where and why the graph is to end if that shows. seen: called then.
    alone: it may leave where nothing else of that memory is seen."""

    copy: torch.Tensor
    whole: torch.Tensor
    copy_version: int
    whole_version: int
    step: int
    report: Any
    seen: Callable[[], object] = lambda: None
    alone: bool = False


class WatchedLeaves(NamedTuple):
    """Parameters whose gradients a wrapper sums, within a group, when the backward pass ends; the
    step to end the graph at where that is not in it, and what a break says."""

    wrapper: Any
    group: Any
    parameters: Sequence[torch.Tensor]
    step: int
    report: Any

    def lead_to(self, graph: GraphBuilder, nodes: Iterable[fx.Node]) -> Iterator[fx.Node]:
        """Inputs of the graph among those that are such a parameter."""
        own = {id(each) for each in self.parameters}
        tensors = {given.node: given.tensor for given in graph.inputs}
        for node in nodes:
            tensor = tensors.get(node, graph.attributes.get(str(node.target)))
            if node.op in ("placeholder", "get_attr") and id(tensor) in own:
                yield node


class GraphBuilder:
    """Records operations; `finish` cuts what is not wanted and makes the module. device: where
    tensors are made that name no device."""

    def __init__(
        self, outer: GraphBuilder | None = None, device: torch.device | None = None
    ) -> None:
        self.outer = outer
        #: whether tensors that are given say nothing of their history there
        self.hides_history: bool = outer is not None and outer.hides_history
        self.transformed = outer is not None  # whether torch may map or transform what it computes
        self.fake_mode: Any = compat.new_fake_mode() if outer is None else outer.fake_mode
        self.graph = fx.Graph()
        self.inputs: list[GraphInput] = []
        self._names = set[str]()  # of inputs
        self.attributes: dict[str, torch.Tensor | fx.GraphModule] = {}
        self._attribute_nodes: dict[int, fx.Node] = {}
        self._lifted: dict[fx.Node, fx.Node] = {}
        self.calls = 0
        self.warned: list[tuple[str, type[Warning]]] = []  # of the operation run last
        #: data of attributes that capture made, and of nodes that it has computed
        self.constants: dict[fx.Node, torch.Tensor] = {}
        self.known: dict[fx.Node, Any] = {}
        #: tensors that must not leave: the fake, the step before that began, what a break says
        self.begun: list[tuple[torch.Tensor, int, Any]] = []
        #: parameters whose gradients are summed when a backward pass of this graph ends
        self.watched: list[WatchedLeaves] = []
        #: by the handle of what was started and not waited for: a step, what a break says
        self.unfinished: dict[Any, tuple[int, Any]] = {}
        #: what a backward pass of this graph examines again, which raises a `Break` where it has
        #: changed, and the step to end the graph at then
        self.examined_again: list[tuple[Callable[[], None], int]] = []
        #: what is made before the first call of this graph: each takes it back
        self.made_before: list[Callable[[], None]] = []
        # Steps at which operations with a history were recorded, where there is a clock.
        self.clock: weakref.WeakMethod[Callable[[], int]] | None = None
        self.steps: dict[fx.Node, int] = {}
        self.copied: list[CopiedTensor] = []
        #: values of tensors made here that have a `.grad`: leaves, and those that are to keep one
        self.own_leaves: list[Any] = []
        self.retaining: list[Any] = []
        #: what calls of autograd functions write to
        self.written_by_functions: dict[fx.Node, set[fx.Node]] = {}
        self.device = device
        #: classes of wrapper subclasses in the graph, with what their code reads
        self.examined: dict[type, Any] = {}
        self.effects: GraphEffects = GraphEffects() if outer is None else outer.effects
        self.is_way = False  # whether it is one of the two bodies of a branch by data
        self.ends_before_more: Break | None = None  # where the program has printed something
        self.by_data = False  # whether operators may give sizes and numbers that depend on data

    @property
    def outermost(self) -> GraphBuilder:
        """Computed: a builder that refers to itself would keep its frame's inputs alive."""
        return self if self.outer is None else self.outer.outermost

    def mark(self) -> int:
        """A number that changes whenever a call is recorded."""
        return self.calls

    def add_input(self, tensor: Any, source: Source, fake: Any = None) -> fx.Node:
        """An input: a tensor, or a number of Python's, for which `fake` is the symbol."""
        found = self.fake(tensor) if fake is None else fake
        node = self.add_example(self._new_name(source), found)
        self._names.add(str(node.target))
        self.inputs.append(GraphInput(node, source, tensor))
        return node

    def add_made(
        self, tensor: torch.Tensor, source: CallResultSource, fake: torch.Tensor
    ) -> fx.Node:
        """An input that is made when the graph is called, also if nothing uses it."""
        node = self.add_input(tensor, source, fake)
        self.calls += 1
        return node

    def _new_name(self, source: Source) -> str:
        return _unlike(_identifier(source), self._names.__contains__)

    def real(self, node: fx.Node) -> Any:
        """The program's object of an input or an attribute; None: it has none."""
        if node.op == "get_attr":
            return self.attributes.get(str(node.target)) if node.graph is self.graph else None
        return next((given.tensor for given in self.inputs if given.node is node), None)

    def number_call(self, target: Any, args: tuple[Any, ...]) -> fx.Node:
        """Arithmetic on numbers: pure, and no work for a backend if it is alone."""
        node = self.graph.call_function(target, args)
        node.meta["val"] = target(*fx.node.map_arg(args, _fake_of))
        node.meta.update(projection=True, stack_trace="")
        return node

    def size(self, node: fx.Node, dim: int) -> fx.Node:
        """A size of a tensor of the graph."""
        made = self.graph.call_method("size", (node, dim))
        made.meta.update(val=node.meta["val"].size(dim), projection=True, stack_trace="")
        return made

    def number_as_tensor(self, node: fx.Node) -> fx.Node:
        """A tensor of no dimension that has a number of the graph."""
        of_float = isinstance(node.meta["val"], torch.SymFloat)
        named = {"dtype": torch.float64 if of_float else torch.int64}
        made = self.run(torch.scalar_tensor, (node,), named)
        return self.record("call_function", torch.scalar_tensor, (node,), named, made, "")

    def add_attribute(self, tensor: torch.Tensor, hint: str) -> fx.Node:
        if id(tensor) not in self._attribute_nodes:
            node = self._attribute_nodes[id(tensor)] = self._attribute(tensor, hint)
            node.meta["val"] = self.fake(tensor)
        return self._attribute_nodes[id(tensor)]

    def add_module(self, module: fx.GraphModule, hint: str) -> fx.Node:
        """A graph that this one calls."""
        node = self._attribute(module, f"{hint}_{len(self.attributes)}")
        node.meta["val"] = module
        return node

    def _attribute(self, found: torch.Tensor | fx.GraphModule, hint: str) -> fx.Node:
        base = re.sub(r"\W", "_", hint).strip("_") or "tensor"
        base = f"p_{base}" if base[0].isdigit() else base
        taken = self.attributes
        name = _unlike(base, lambda name: name in taken or hasattr(fx.GraphModule, name))
        self.attributes[name] = found
        return self.graph.create_node("get_attr", name, (), {}, name=name)

    # -- graphs inside a graph ------------------------------------------------------------------

    def add_example(self, name: str, fake: Any) -> fx.Node:
        """An argument of a body."""
        node = self.graph.placeholder(name)
        node.meta["val"] = fake
        return node

    def localize(self, node: fx.Node) -> fx.Node:
        """A node of an enclosing graph as an argument of this one; its own nodes as they are."""
        if node.graph is self.graph:
            return node
        if node in self._lifted:
            return self._lifted[node]
        builder = self.outer
        while builder is not None and builder.graph is not node.graph:
            builder = builder.outer
        if builder is None:
            raise Break("FB0009", "a tensor that is used outside of the function that made it")
        name = f"outer_{len(self._lifted)}"
        made = self._lifted[node] = self.add_example(name, node.meta["val"])
        return made

    def lifted_nodes(self) -> dict[fx.Node, fx.Node]:
        """The nodes of enclosing graphs that a body takes, each with its argument."""
        return self._lifted

    def set_output(self, output: Any) -> None:
        self.graph.output(output)

    def finish_body(self) -> tuple[fx.GraphModule, list[fx.Node]]:
        """The body, and the nodes of enclosing graphs that it takes as its last arguments."""
        lifted = list(self._lifted.values())
        own = [n for n in self.graph.nodes if n.op == "placeholder" and n not in lifted]
        module, _ = self._module([*own, *lifted, *self.graph.nodes])
        return module, list(self._lifted)

    def _module(
        self, nodes: Iterable[fx.Node], name: str = "GraphModule"
    ) -> tuple[fx.GraphModule, dict[fx.Node, fx.Node]]:
        """A module of copies of these nodes, in their order, each once; and the copy of each."""
        final = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in nodes:
            if node not in copies:
                copies[node] = final.node_copy(node, lambda n: copies[n])
        root = torch.nn.Module()
        for node in final.nodes:
            if node.op == "get_attr":
                hold(root, str(node.target), self.attributes[str(node.target)])
        return Body(root, final, class_name=name), copies

    def fake(self, tensor: torch.Tensor) -> torch.Tensor:
        try:
            kept = tensor.grad if tensor.is_leaf else None
        except RuntimeError as error:  # of a view whose history torch refuses to make again
            raise Break("FB0011", f"an input has no history: {str(error)[:300]}") from None
        if kept is not None and any(
            getattr(kept, name) != getattr(tensor, name) for name in ("shape", "dtype", "device")
        ):  # as between two lines of `Module.to`, which gives a parameter other data first
            raise Break("FB0016", "a tensor whose .grad is of another shape, dtype or device")
        return compat.to_fake(self.fake_mode, tensor)

    def run(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute an operation's result on fake tensors; arguments hold nodes."""
        plain = fx.node.map_arg(args, _fake_of)
        named = fx.node.map_arg(kwargs, _fake_of)
        watching = compat.Watching(self.effects.see)
        by_data = compat.sized_by_data(self.fake_mode, self.by_data)
        with HANDLERS.postponed(), by_data, compat.collected_warnings() as self.warned:
            kernels = compat.symbolic_kernels(self.fake_mode)
            return self._run(target, plain, named, kernels, watching)

    def _run(self, target: Any, args: Any, kwargs: Any, kernels: Any, watching: Any) -> Any:
        try:
            with compat.asking(), kernels, self.fake_mode, watching:
                result = compat.perform(target, args, kwargs)
                return compat.anew(result) if target in compat.ALWAYS_NEW else result
        except compat.Warns:
            name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
            raise Warned("FB0023", f"call_function {name}, which warns at each call") from None
        except Exception as error:
            compat.end_guards(error)
            raise

    def record(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        stack_trace: str,
    ) -> fx.Node:
        if (ends := self.outermost.ends_before_more) is not None:
            raise ends
        args = tuple(_DTYPES.get(arg, arg) if type(arg) is type else arg for arg in args)
        if type(kwargs.get("dtype")) is type:
            kwargs = {**kwargs, "dtype": _DTYPES.get(kwargs["dtype"], kwargs["dtype"])}
        if target is operator.pow and _binds_looser(args[0]) and isinstance(result, torch.Tensor):
            target = torch.pow  # printed as `-2 ** x`, which is -(2 ** x)
        node = self.graph.create_node(op, target, args, kwargs)
        node.meta["val"] = result
        node.meta["stack_trace"] = stack_trace
        if (dtype := compat.computes_in(target, result)) is not None:
            node.meta[compat.COMPUTES_IN] = dtype
        self.calls += 1
        step = None if self.clock is None else self.clock()
        if step is not None and _has_history(result):
            self.steps[node] = step()
        return node

    def first_reader(self, node: fx.Node) -> int | None:
        """The first step at which something with a history was made of a value."""
        return min((self.steps[user] for user in node.users if user in self.steps), default=None)

    def record_mode(self, target: Any, args: tuple[Any, ...], stack_trace: str = "") -> fx.Node:
        """A call that changes a mode of torch: alone it is no work for a backend."""
        self.effects.switches = True
        node = self.graph.create_node("call_function", target, args, {})
        node.meta["val"] = None
        node.meta["stack_trace"] = stack_trace
        return node

    def is_empty(self) -> bool:
        return self.calls == 0

    def finish(
        self, outputs: Sequence[fx.Node], order: Callable[[Source], tuple[int, ...]], name: str
    ) -> tuple[fx.GraphModule, tuple[GraphInput, ...]]:
        """The module, and its inputs in the order of its placeholders.

        order: sort key of inputs by where they come from (arguments in their own order first).
        """
        if any(node.graph is not self.graph for node in outputs):
            raise SkipFrame("a tensor leaves the function that torch maps or differentiates")
        self.graph.output(tuple(outputs))
        _cut_dead_projections(self.graph)
        compat.narrow_gathers(self.graph)
        kept = [given for given in self.inputs if given.node.users or given.is_made()]
        kept.sort(key=lambda given: (given.is_made(), not given.is_number(), order(given.source)))
        dropped = {given.node for given in self.inputs} | {
            node for node in self.graph.nodes if node.op == "get_attr" and not node.users
        }
        rest = (node for node in self.graph.nodes if node not in dropped)
        module, copies = self._module([*(given.node for given in kept), *rest], name)
        source = module.forward.__code__.co_filename
        weakref.finalize(module, compat.forget_source, source).atexit = False
        inputs = tuple(GraphInput(copies[g.node], g.source, g.tensor) for g in kept)
        return module, inputs


def hold(owner: torch.nn.Module, name: str, value: torch.Tensor | torch.nn.Module) -> None:
    """Make a tensor or a module an attribute of a module."""
    if isinstance(value, torch.nn.Module):
        owner.add_module(name, value)
    elif isinstance(value, torch.nn.Parameter):
        owner.register_parameter(name, value)
    else:
        owner.register_buffer(name, value)


def _unlike(base: str, taken: Callable[[str], bool]) -> str:
    """A name, or the first of `name_1`, `name_2`, ... where that is taken."""
    names = itertools.chain([base], (f"{base}_{number}" for number in itertools.count(1)))
    return next(name for name in names if not taken(name))


def user_lines(module: fx.GraphModule) -> Iterator[str]:
    """The user's lines of a graph, each once, in order."""
    traces = (node.meta.get("stack_trace") for node in module.graph.nodes)
    yield from dict.fromkeys(trace for trace in traces if trace)


def _fake_of(node: fx.Node) -> Any:
    return node.meta["val"]


def _identifier(source: Source) -> str:
    """A node's name for an input: the variable's own where it is one."""
    text = source.name()
    direct = re.fullmatch(r"[LFG]\['(\w+)'\]", text)
    if direct is not None:
        return direct.group(1)
    return re.sub(r"\W+", "_", text).strip("_").lower()


def _binds_looser(base: Any) -> bool:
    """Whether a number is written with a sign, which Python applies after a power."""
    return isinstance(base, (int, float, complex)) and repr(base).startswith("-")


def _has_history(result: Any) -> bool:
    values = result if isinstance(result, tuple | list) else (result,)
    return any(isinstance(value, torch.Tensor) and value.requires_grad for value in values)


def _cut_dead_projections(graph: fx.Graph) -> None:
    """Drop `getitem`s of tuple results, and arithmetic on sizes, that nobody uses: all pure."""
    for node in reversed(list(graph.nodes)):
        if node.meta.get("projection") and not node.users:
            graph.erase_node(node)
