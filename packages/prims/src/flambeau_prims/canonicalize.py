"""Canonicalisation: decompositions applied to an FX graph.

In: a GraphModule of Torch functions, methods and modules (as `torch.fx.symbolic_trace` gives) or
of ATen overloads, and example inputs. Out: a GraphModule of prims, with the same inputs and
outputs and the same parameters and buffers, `meta["val"]` on every node.
Invariant: the graph computes what the input computed on inputs of these shapes. A write to a value
that nothing else can see becomes a new value; a write to an input, or to what has views, is
refused, since only a functional graph says what it means.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from flambeau_prims._op import PRIMS, prim_of
from flambeau_prims._torch_compat import (
    DispatchMode,
    FakeTensorMode,
    OpOverload,
    argument_names,
    is_composite,
    is_mutable,
    is_view_op,
    make_fake,
    reads_metadata,
)
from flambeau_prims.decomposition_choice import decompositions
from flambeau_prims.decomposition_table import Decomposition
from flambeau_prims.dialect import DialectError, where_from
from flambeau_prims.functional_variants import functional_form
from flambeau_prims.graph_recorder import GraphRecorder, TracedValue, flatten, map_values
from flambeau_prims.shape_rules import TensorMeta, dense_order

# What a node has of its origin, handed on to the prims that replace it.
_NOTES = ("stack_trace", "nn_module_stack")


def lower(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    table: Mapping[OpOverload, Decomposition] | None = None,
) -> fx.GraphModule:
    """`gm` with every operation that `table` knows (all, if None) written in prims.

    Operations without a decomposition stay as ATen overloads. Each node carries the user's lines
    (`stack_trace`) of the node it came from, and `source_op`, the ATen operation it is part of.
    Shapes are those of `example_inputs` (real or fake tensors, or numbers). Where those of fake
    tensors are symbols, so are the graph's; what lowering had to ask about them is in the guards of
    their `ShapeEnv`, and the graph is right where those hold.

    Raises `DialectError` with the user's line for an operation that writes to an input, or to a
    tensor that has views; other writes become new values.
    """
    mode = _mode_of(example_inputs)
    graph = fx.Graph()
    lowering = _Lowering(
        gm, GraphRecorder(graph, mode), decompositions() if table is None else table
    )
    with torch.no_grad():
        output = lowering.run(*example_inputs)
    graph.output(map_values(lowering.recorder.node_of, output))
    graph.eliminate_dead_code()
    graph.lint()
    return fx.GraphModule(lowering.attributes(), graph)


def _mode_of(inputs: Sequence[Any]) -> FakeTensorMode:
    for item in inputs:
        if (mode := getattr(item, "fake_mode", None)) is not None:
            return mode  # type: ignore[no-any-return]
    return FakeTensorMode()


class _Lowering(fx.Interpreter):
    """Runs the graph on `TracedValue`s; what is not ATen yet runs on fake tensors, and its ATen
    operations are caught on the way to the dispatcher."""

    def __init__(
        self, gm: fx.GraphModule, recorder: GraphRecorder, table: Mapping[OpOverload, Decomposition]
    ) -> None:
        super().__init__(gm, garbage_collect_values=True)
        self.current: fx.Node | None = None
        self._names: dict[int, str] = {}
        self.recorder = recorder
        self.table = table
        self.constants: dict[str, Any] = {}
        self._by_id: dict[int, tuple[torch.Tensor, TracedValue]] = {}
        self._catching = _Catching(self)
        # values that share memory with others, by id; kept alive, so that an id stays theirs
        self._shared: set[int] = set()
        self._kept: list[TracedValue] = []

    def run_node(self, n: fx.Node) -> Any:
        notes = {key: n.meta[key] for key in _NOTES if key in n.meta}
        self.recorder.notes = {**notes, "source_node": n.name}
        self.current = n
        return super().run_node(n)

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        item = super().placeholder(target, args, kwargs)
        node = self.recorder.graph.placeholder(str(target))
        node.meta.update(self.recorder.notes)
        if isinstance(item, torch.Tensor):
            return self._entering(item, node)
        if isinstance(item, torch.SymInt):
            self.recorder.sizes.given(node, item)
        node.meta["val"] = item
        return item

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        item = super().get_attr(target, args, kwargs)
        return self._attribute(str(target), item) if isinstance(item, torch.Tensor) else item

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(target, OpOverload):
            return self.apply(target, args, kwargs)
        if target is operator.getitem and not isinstance(args[0], TracedValue):
            return args[0][args[1]]
        if not any(isinstance(x, TracedValue) for x in flatten((args, kwargs))) and not _is_torch(
            target
        ):
            return target(*args, **kwargs)  # arithmetic on sizes and the like
        return self._on_fakes(target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self._on_fakes(lambda x, *rest, **kw: getattr(x, str(target))(*rest, **kw),
                              args, kwargs)  # fmt: skip

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        module = self.fetch_attr(str(target))
        names = {id(t): f"{target}.{name}" for name, t in _tensors_of(module)}

        def call(*inner_args: Any, **inner_kwargs: Any) -> Any:
            self._names = names
            try:
                return module(*inner_args, **inner_kwargs)
            finally:
                self._names = {}

        return self._on_fakes(call, args, kwargs)

    def apply(self, op: OpOverload, args: Any, kwargs: Any) -> Any:
        """One ATen operation on values: decomposed, or a leaf."""
        if (prim := prim_of(op)) is not None:
            return self.recorder.prim(prim, tuple(args), kwargs)
        if is_mutable(op):
            return self._written(op, args, kwargs)
        if is_view_op(op):
            for x in args:
                self._share(x)
            result = self._functional(op, args, kwargs)
            for x in result if isinstance(result, (list, tuple)) else (result,):
                self._share(x)
            return result
        return self._functional(op, args, kwargs)

    def _share(self, x: Any) -> None:
        """Note that another value may show the elements of `x`; `x` is kept, and so its id."""
        if isinstance(x, TracedValue):
            self._kept.append(x)
            self._shared.add(id(x))

    def _written(self, op: OpOverload, args: Any, kwargs: Any) -> Any:
        """An operation that writes to its first argument: that becomes another value."""
        target = args[0] if args else None
        variant = functional_form(op)
        first, *_ = argument_names(op)[0]
        if not isinstance(target, TracedValue) or variant is None or variant.written != (first,):
            raise self._refused(op, "there is no form of it that only returns the result")
        if target.node.op in ("placeholder", "get_attr"):
            raise self._refused(op, f"{target.node.name} is an input of the graph")
        if id(target) in self._shared:
            raise self._refused(op, f"{target.node.name} shares its memory with a view")
        result = self._functional(variant.functional, args, kwargs)
        if result.shape != target.shape:
            raise self._refused(op, f"the result has shape {result.shape}, not {target.shape}")
        if result.dtype != target.dtype:
            cast = PRIMS["cast"]
            result = self.recorder.prim(cast, (result,), {"dtype": target.dtype})
        if result.meta.stride != target.meta.stride:
            order = dense_order(target.meta)
            result = self.recorder.prim(PRIMS["clone"], (result,), {"order": order})
        target.node, target.meta = result.node, result.meta
        return target

    def _refused(self, op: OpOverload, why: str) -> DialectError:
        name = self.current.name if self.current is not None else "?"
        return DialectError(
            f"node {name}: {op} writes to its argument, and {why}; `lower` takes functional graphs"
            f"{where_from(self.current)}"
        )

    def _functional(self, op: OpOverload, args: Any, kwargs: Any) -> Any:
        self.recorder.notes["source_op"] = str(op)
        if (function := self.table.get(op)) is not None:
            result = self.recorder.decompose(function, args, kwargs)
            if result is not NotImplemented:
                return result
        elif is_composite(op):
            return self._on_fakes(op, args, kwargs)
        mode = self.recorder.mode
        with mode:
            result = op(*map_values(self._fake, args), **map_values(self._fake, kwargs))
        return self.recorder.leaf(op, args, kwargs, result)

    def caught(self, op: OpOverload, args: Any, kwargs: Any) -> Any:
        """An ATen operation on its way to the dispatcher, with fake tensors in and out."""
        result = self.apply(op, map_values(self._value, args), map_values(self._value, kwargs))
        return map_values(self._tracked, result)

    def _on_fakes(self, function: Any, args: Any, kwargs: Any) -> Any:
        fakes = map_values(self._fake, (args, kwargs))
        with self.recorder.mode, self._catching:
            result = function(*fakes[0], **fakes[1])
        return map_values(self._value, result)

    def _fake(self, item: Any) -> Any:
        return self._tracked(item) if isinstance(item, TracedValue) else item

    def _tracked(self, item: Any) -> Any:
        if not isinstance(item, TracedValue):
            return item
        fake = item.fake(self.recorder.mode)
        self._by_id[id(fake)] = (fake, item)
        return fake

    def _value(self, item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        if (known := self._by_id.get(id(item))) is not None:
            return known[1]
        # A tensor that the traced code holds by itself: a parameter of a module, or a constant.
        name = self._names.get(id(item)) or f"_tensor_constant{len(self.constants)}"
        value = self._attribute(name, item)
        self._by_id[id(item)] = (item, value)
        return value

    def _entering(self, item: torch.Tensor, node: fx.Node) -> TracedValue:
        meta = TensorMeta.of(item)
        mode = self.recorder.mode
        fake = make_fake(mode, meta.shape, meta.stride, meta.dtype, meta.device)
        node.meta["val"] = fake
        self.recorder.sizes.seen(node, meta)
        return TracedValue(meta, node, fake)

    def _attribute(self, name: str, item: torch.Tensor) -> TracedValue:
        self.constants[name] = item
        node = self.recorder.graph.get_attr(name)
        node.meta.update(self.recorder.notes)
        return self._entering(item, node)

    def attributes(self) -> torch.nn.Module:
        """A module that holds the tensors which the graph reads by name."""
        root = torch.nn.Module()
        for name, item in self.constants.items():
            *path, last = name.split(".")
            owner = root
            for part in path:
                if not hasattr(owner, part):
                    owner.add_module(part, torch.nn.Module())
                owner = getattr(owner, part)
            if isinstance(item, torch.nn.Parameter):
                owner.register_parameter(last, item)
            else:
                owner.register_buffer(last, item)
        return root


def _is_torch(target: Any) -> bool:
    """Whether a function may create tensors without being given any (`torch.zeros`)."""
    module: str = getattr(target, "__module__", None) or ""
    return module.partition(".")[0] == "torch" or isinstance(target, type(torch.zeros))


def _tensors_of(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


class _Catching(DispatchMode):
    """Hands the ATen operations of Torch-level code to the lowering."""

    def __init__(self, lowering: _Lowering) -> None:
        super().__init__()
        self._lowering = lowering

    def dispatched(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if reads_metadata(op):
            return op(*args, **kwargs)
        return self._lowering.caught(op, args, kwargs)
