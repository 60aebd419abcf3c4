"""Tensors as values: graph nodes with fake metadata.

In: tensors of the program, and results of operations. Out: `TensorValue`; `TensorRules`, the table
of what is done with one, which `builtins.tensors.rules` fills. Invariant: a tensor of the program
enters the graph, under guard, when it is first used.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch
from torch import fx

from flambeau_capture.breaks import Break
from flambeau_capture.source import Source
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, is_none

Operation = Callable[[Tracer, str, Any, Args, Kwargs], Value | None]
Rewrite = Callable[[Tracer, str, Args, Kwargs], Value | None]
Method = Callable[["TensorValue", Tracer, Args, Kwargs], Value | None]


@dataclass(frozen=True)
class TensorRules:
    """Each rule answers None where it has nothing to say.

    override: what `__torch_function__` of an argument's class answers.
    rewrites: operators that a call may have to be written by others of, by name; of several for
        one, the first that answers.
    by_data: the result of an operation on data that capture knows; whether guards may fix some.
    known_number: what a node is, or a size of its tensor, if capture knows.
    known_data: what a tensor holds, if capture knows; guards fix what that follows from.
    truth_by_sizes: what a tensor is, where sizes alone decide it, as the graph checks it.
    number_for_python: the number of a tensor, read before the graph where Python needs it.
    in_general: a condition on a count that depends on data, as the graph checks it.
    check_layout: breaks where a kernel lays a tensor out otherwise than its fake says.
    rows: the rows of a tensor of which data decides how many there are.
    set_data: assigning to `.data`.
    new_leaf: is given tensors that the graph makes and that derivatives end at.
    methods: those that drive autograd and that the graph can hold, sometimes.
    wrapper: a tensor of the program of a class that flattens; and one that the graph makes.
    attribute, method: any other of a plain tensor, which always have an answer.
    """

    override: Operation
    rewrites: Mapping[str, Sequence[Rewrite]]
    by_data: Callable[[Tracer, str, Any, Args, Kwargs, bool], Value | None]
    known_number: Callable[[Tracer, fx.Node, int | None], int | float | None]
    known_data: Callable[[Tracer, TensorValue], torch.Tensor | None]
    truth_by_sizes: Callable[[Tracer, TensorValue], bool | None]
    number_for_python: Callable[[Tracer, TensorValue], Value | None]
    in_general: Callable[[Tracer, Value], bool | None]
    check_layout: Callable[[Tracer, TensorValue], None]
    rows: Callable[[Tracer, TensorValue], TensorValue | None]
    set_data: Callable[[TensorValue, Tracer, Value], None]
    new_leaf: Callable[[Tracer, TensorValue], None]
    methods: Mapping[str, Method]
    wrapper: Callable[[Tracer, torch.Tensor, Source], Value]
    made_wrapper: Callable[[Tracer, fx.Node, type], TensorValue]
    attribute: Callable[[TensorValue, Tracer, str], Value]
    method: Callable[[TensorValue, Tracer, str, Args, Kwargs], Value]


@dataclass(eq=False, repr=False)
class TensorValue(Value):
    """A tensor. One that the program already has becomes an input only when it is used."""

    _node: fx.Node | None = None
    _: KW_ONLY
    source: Source | None = None
    enter: Callable[[], fx.Node] | None = None
    python_class: type = torch.Tensor
    real: torch.Tensor | None = None
    written_grad: Value | None = None
    written_data: TensorValue | None = None
    written_flag: bool | None = None
    #: methods that are to be called on the program's own tensor, in order
    calls: list[tuple[str, Args]] = field(default_factory=list)
    attributes: dict[str, Value] = field(default_factory=dict)  # of no name that tensors have
    frozen_from: fx.Node | None = None  # what it was before `requires_grad_(False)`
    untracked: bool = False  # whether the graph's node lacks the history that it has
    truth_known: bool | None = None  # of a comparison that no data can change

    @property
    def node(self) -> fx.Node:
        if self._node is None:
            assert self.enter is not None
            self._node = self.enter()
        if self.untracked and torch.is_grad_enabled():
            raise Break("FB0016", "a new leaf, or a leaf on new data, in what is differentiated")
        return self._node

    def stand_on(self, node: fx.Node, requires_grad: bool | None) -> None:
        """Be another node from here on; requires_grad: of the leaf, None: as the node is."""
        self._node = node
        self.untracked = bool(requires_grad)
        if requires_grad:
            self.fake.requires_grad_(True)

    def graph_argument(self) -> fx.Node:
        return self.node

    def own_object(self) -> Any:
        written = self.written_data is not None or bool(self.calls)
        written = written or (self.in_graph() and self.fake._version != 0)
        return self.as_python() if self.real is None or written else self.real

    def in_graph(self) -> bool:
        """Whether the graph has it already, as an input or as a result."""
        return self._node is not None

    @property
    def fake(self) -> torch.Tensor:
        node = self.node if self._node is None else self._node
        fake: torch.Tensor = node.meta["val"]
        return fake

    @property
    def cls(self) -> type:
        if self._node is None:
            _ = self.node  # what is looked at is guarded
        return self.python_class

    def describe(self) -> str:
        if self._node is None and self.real is not None:
            return f"TensorValue({tuple(self.real.shape)})"
        return f"TensorValue({tuple(self.fake.shape)})"

    def truth(self, tx: Tracer) -> bool:
        if self.truth_known is not None:
            return self.truth_known
        data = tx.tensor_rules.known_data(tx, self)
        if data is not None and data.numel() == 1:
            return bool(data)
        decided = tx.tensor_rules.truth_by_sizes(tx, self)
        if decided is not None:
            return decided
        early = tx.tensor_rules.number_for_python(tx, self)
        if early is not None:
            return early.truth(tx)
        raise Break("FB0001", f"truth of {self.describe()}")

    def length(self, tx: Tracer) -> int:
        return int(self.first_size(tx))

    def first_size(self, tx: Tracer) -> int | torch.SymInt:
        """`len()` of the tensor, which may be a symbol."""
        if self.fake.dim() == 0:
            tx.raise_error(TypeError, "len() of a 0-d tensor")
        return self.fake.shape[0]

    def get_item(self, tx: Tracer, key: Value) -> Value:
        return tx.binary("getitem", self, key)

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        tx.graph_call("call_function", operator.setitem, [self, key, value], {})

    def contains(self, tx: Tracer, item: Value) -> bool:
        raise Break("FB0001", f"containment test in {self.describe()}")

    def iterate(self, tx: Tracer) -> IteratorValue:
        if self.fake.dim() == 0:
            tx.raise_error(TypeError, "iteration over a 0-d tensor")
        rows = tx.tensor_rules.rows(tx, self) or self
        return tx.iterator_of(tx.graph_call("call_function", torch.unbind, [rows], {}))

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return tx.tensor_rules.attribute(self, tx, name)

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        if name == "data":
            tx.tensor_rules.set_data(self, tx, value)
            return
        if name == "grad" and has_place(tx, self):
            _ = self.cls  # that it is a tensor is assumed from here on
            if not self._may_be_grad(value):
                raise Break("FB0007", f".grad of a tensor is set to {value.describe()}")
            self.written_grad = value
            tx.heap.changed(self)  # replayed where the program has the tensor
            return
        if name == "requires_grad":
            if requires_grad_already(self, tx, [value], {}):
                return
            if tx.tensor_rules.methods["requires_grad_"](self, tx, [value], {}) is not None:
                return
        if name in ("grad", "requires_grad"):
            raise Break("FB0007", f"assignment to .{name} of a tensor")
        if not hasattr(self.cls, name) and self._takes_attributes(tx):
            self.attributes[name] = value
            tx.heap.changed(self if self.real is not None else None)
            return
        self.unknown(f"assignment to attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        return tx.tensor_rules.method(self, tx, name, args, kwargs)

    def del_attr(self, tx: Tracer, name: str) -> None:
        if name not in self.attributes or self.real is not None:
            super().del_attr(tx, name)
            return
        del self.attributes[name]
        tx.heap.changed()

    def _takes_attributes(self, tx: Tracer) -> bool:
        """Whether it is plain, and the same object for the whole frame."""
        plain = self.cls in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        return plain and tx.graph is tx.graph.outermost

    def _may_be_grad(self, value: Value) -> bool:
        if isinstance(value, Constant):
            return is_none(value)
        if not isinstance(value, TensorValue):
            return False
        mine, other = self.fake, value.fake
        return (mine.shape, mine.dtype, mine.device) == (other.shape, other.dtype, other.device)

    def replay(self, writer: Any) -> None:
        """Change an existing tensor as the program has: the methods that change its sizes, and the
        attributes that are written."""
        for method, args in self.calls:
            writer.do(getattr(torch.Tensor, method), [self, *args])
        flag = None if self.written_flag is None else Constant(self.written_flag)
        written = self.attributes | {
            "data": self.written_data, "requires_grad": flag, "grad": self.written_grad,
        }  # fmt: skip
        for name, value in written.items():
            if value is not None:
                writer.load(value)
                writer.load(self)
                writer.store_attr(name)

    def rebuild(self, writer: Any) -> None:
        if not self.attributes:
            writer.load_graph_output(self.node)
            return
        with writer.building(self):
            writer.load_graph_output(self.node)
        for name, value in self.attributes.items():
            writer.do_with_top(object.__setattr__, [Constant(name), value])


def known_number(tx: Tracer, tensor: TensorValue) -> int | float | None:
    """The number that a tensor of one element holds, if capture knows it."""
    data = tx.tensor_rules.known_data(tx, tensor)
    return None if data is None or data.numel() != 1 or data.is_complex() else data.item()


def is_whole(dtype: torch.dtype) -> bool:
    """Whether the elements of a dtype are integers."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def has_place(tx: Tracer, tensor: TensorValue) -> bool:
    """Whether what is written to `.grad` is kept: by the program's tensor, or by one that stays."""
    if tensor.source is not None and tensor.real is not None:
        return True
    return any(own is tensor for own in tx.graph.outermost.own_leaves)


def requires_grad_already(tensor: TensorValue, tx: Tracer, args: Args, kwargs: Kwargs) -> bool:
    """Whether `requires_grad_` would change nothing, nor raise, as it does of an inference tensor
    outside of that mode."""
    flag = [*args, *kwargs.values(), Constant(True)][0]
    allowed = not (tensor.fake.is_inference() and flag.truth(tx))
    if not (allowed or torch.is_inference_mode_enabled()):
        return False
    return bool(tensor.fake.requires_grad) == flag.truth(tx)
