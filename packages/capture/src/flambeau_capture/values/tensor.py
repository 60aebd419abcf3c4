"""Tensors: nodes of the graph with fake metadata.

In: tensors of the program, and operations on them. Out: `TensorValue`, `graph_call`, which records
one operation. Invariant: an operation whose result is one of its arguments answers that argument's
value, so in-place operators keep the identity that the program sees.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.source import Attr, Called, Source
from flambeau_capture.values.base import (
    Args,
    IteratorValue,
    Kwargs,
    NotConcrete,
    Tracer,
    Value,
)
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.methods import BoundMethod


class TensorValue(Value):
    """A tensor. One that the program already has becomes an input only when it is used."""

    def __init__(
        self,
        node: fx.Node | None = None,
        *,
        source: Source | None = None,
        enter: Callable[[], fx.Node] | None = None,
        python_class: type = torch.Tensor,
        real: torch.Tensor | None = None,
    ) -> None:
        self._node = node
        self._enter = enter
        self._class = python_class
        self.source = source
        self.real = real
        self.written_grad: Value | None = None
        self.written_data: TensorValue | None = None
        self.written_flag: bool | None = None
        self.frozen_from: fx.Node | None = None  # what it was before `requires_grad_(False)`
        self.untracked = False  # whether the graph's node lacks the history that it has
        self.truth_known: bool | None = None  # of a comparison that no data can change

    @property
    def node(self) -> fx.Node:
        if self._node is None:
            assert self._enter is not None
            self._node = self._enter()
        if self.untracked and torch.is_grad_enabled():
            raise Break("FB0016", "a new leaf, or a leaf on new data, in what is differentiated")
        return self._node

    def stand_on(self, node: fx.Node, requires_grad: bool | None) -> None:
        """Be another node from here on; requires_grad: of the leaf, None: as the node is."""
        self._node = node
        self.untracked = bool(requires_grad)
        if requires_grad:
            self.fake.requires_grad_(True)

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
            _ = self.node  # what is asked about is guarded
        return self._class

    def describe(self) -> str:
        if self._node is None and self.real is not None:
            return f"TensorVariable({tuple(self.real.shape)})"
        return f"TensorVariable({tuple(self.fake.shape)})"

    def truth(self, tx: Tracer) -> bool:
        if self.truth_known is not None:
            return self.truth_known
        data = known(tx, self)
        if data is not None and data.numel() == 1:
            return bool(data)
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
        graph_call(tx, "call_function", operator.setitem, [self, key, value], {})

    def contains(self, tx: Tracer, item: Value) -> bool:
        raise Break("FB0001", f"containment test in {self.describe()}")

    def iterate(self, tx: Tracer) -> IteratorValue:
        from flambeau_capture.values.iterators import SequenceIterator

        if self.fake.dim() == 0:
            tx.raise_error(TypeError, "iteration over a 0-d tensor")
        return SequenceIterator(graph_call(tx, "call_function", torch.unbind, [self], {}))

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return tensor_attribute(self, tx, name)

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        if name == "data":
            for rule in DATA_RULES:
                rule(self, tx, value)
            return
        if name == "grad" and _has_place(tx, self):
            _ = self.cls  # that it is a tensor is assumed from here on
            if not self._may_be_grad(value):
                raise Break("FB0007", f".grad of a tensor is set to {value.describe()}")
            self.written_grad = value
            tx.heap.changed(self)  # replayed where the program has the tensor
            return
        if name == "requires_grad":
            if _asks_what_is(self, tx, [value], {}):
                return
            if GRAD_RULES["requires_grad_"](self, tx, [value], {}) is not None:
                return
        if name in ("grad", "requires_grad"):
            raise Break("FB0007", f"assignment to .{name} of a tensor")
        self.unknown(f"assignment to attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        return tensor_method(self, tx, name, args, kwargs)

    def _may_be_grad(self, value: Value) -> bool:
        """Whether torch accepts a value as `.grad`."""
        if isinstance(value, Constant):
            return is_none(value)
        if not isinstance(value, TensorValue):
            return False
        mine, other = self.fake, value.fake
        return (mine.shape, mine.dtype, mine.device) == (other.shape, other.dtype, other.device)

    def replay(self, writer: Any) -> None:
        """Set the attributes of an existing tensor that are written."""
        flag = None if self.written_flag is None else Constant(self.written_flag)
        written = {
            "data": self.written_data, "requires_grad": flag, "grad": self.written_grad,
        }  # fmt: skip
        for name, value in written.items():
            if value is not None:
                writer.load(value)
                writer.load(self)
                writer.store_attr(name)

    def reconstruct(self, writer: Any) -> None:
        if self.source is not None:
            writer.load_source(self.source)
        else:
            writer.load_graph_output(self.node)


CONSTANT_ATTRIBUTES = frozenset(
    {
        "dtype", "device", "layout", "ndim", "is_cuda", "is_cpu", "is_sparse", "is_quantized",
        "is_mkldnn", "is_mps", "is_xpu", "is_meta", "is_nested", "requires_grad", "is_leaf",
        "shape", "names", "itemsize", "nbytes", "is_sparse_csr", "is_ipu", "is_vulkan",
    }
)  # fmt: skip
GRAPH_ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})

# Methods that answer plain Python about metadata.
CONSTANT_METHODS = frozenset(
    {
        "size", "dim", "ndimension", "numel", "nelement", "stride", "is_contiguous",
        "element_size", "is_floating_point", "is_complex", "is_signed", "get_device",
        "storage_offset", "is_same_size", "is_inference", "is_conj", "is_neg", "type",
        "__len__", "is_coalesced", "dense_dim", "sparse_dim", "dim_order",
        "has_names",
    }
)  # fmt: skip

BREAKING_METHODS: dict[str, tuple[str, ...]] = {
    "FB0002": ("item", "__int__", "__float__", "__index__", "__bool__", "__complex__",
               "is_nonzero", "equal", "allclose"),
    "FB0003": ("numpy", "tolist", "__array__", "__dlpack__", "__reduce_ex__", "__deepcopy__",
               "data_ptr", "storage", "untyped_storage", "is_set_to", "is_shared", "is_pinned",
               "__repr__", "__str__", "__format__"),
    "FB0004": ("nonzero", "unique", "unique_consecutive", "masked_select", "argwhere"),
    "FB0007": ("backward", "requires_grad_", "retain_grad", "register_hook",
               "register_post_accumulate_grad_hook"),
    "FB0016": ("resize_", "resize_as_", "set_", "t_", "transpose_", "squeeze_", "unsqueeze_",
               "swapaxes_", "swapdims_", "as_strided_", "rename_", "share_memory_", "pin_memory",
               "detach_", "swap_"),
}  # fmt: skip
# What depends on how many values a sparse tensor holds: fake ones do not know.
COUNTED_BY_DATA = frozenset(
    {
        "values", "indices", "_values", "_indices", "_nnz", "is_coalesced", "crow_indices",
        "col_indices", "ccol_indices", "row_indices",
    }
)  # fmt: skip
# What makes quantized tensors, which fake ones take for plain.
QUANTIZING = frozenset(
    {"quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic"}
)
_BREAK_OF = {name: id for id, names in BREAKING_METHODS.items() for name in names}

# Tensor methods that are operators with another spelling: the function is what the graph records.
_ITERATION = frozenset({"__iter__"})


def tensor_attribute(tensor: TensorValue, tx: Tracer, name: str) -> Value:
    _ = tensor.cls  # that it is a tensor is assumed from here on
    if name in ("is_leaf", "grad_fn"):
        assume_leaf(tx, tensor)
    if name in _COUNTED:
        tensor.unknown(f"attribute {name!r}")
    if name in CONSTANT_ATTRIBUTES and hasattr(torch.Tensor, name):
        if name == "nbytes":
            return tx.wrap_new(tensor.fake.numel() * tensor.fake.element_size())
        return tx.wrap_new(getattr(tensor.fake, name))
    if name == "data":
        with torch.no_grad():
            return graph_call(tx, "call_function", getattr, [tensor, Constant(name)], {})
    if name in GRAPH_ATTRIBUTES:
        return graph_call(tx, "call_function", getattr, [tensor, Constant(name)], {})
    if name == "grad":
        if tensor.written_grad is not None:
            return tensor.written_grad
        if tensor.source is not None and tensor.real is not None:
            return tx.wrap(tensor.real.grad, Attr(tensor.source, "grad"))
        if not tensor.fake.requires_grad or not tensor.fake.is_leaf or _has_place(tx, tensor):
            return Constant(None)
        raise Break("FB0007", "reading .grad of a tensor made in the graph")
    if name == "grad_fn":
        if not tensor.fake.requires_grad or (tensor.fake.is_leaf and tensor.fake.dim() >= 0):
            return Constant(None)
        raise Break("FB0007", "reading .grad_fn of a tensor made in the graph")
    if name == "__class__":
        return tx.wrap_new(tensor.cls)
    if name == "__dict__":
        tensor.unknown("attribute '__dict__'")
    found = getattr(torch.Tensor, name, _MISSING)
    if found is _MISSING:
        if tensor.real is not None and tensor.source is not None and hasattr(tensor.real, name):
            return tx.wrap(getattr(tensor.real, name), Attr(tensor.source, name))
        tx.guard(tensor.source, "NOT_HASATTR", name)
        tx.raise_error(AttributeError, f"'Tensor' object has no attribute '{name}'")
    if callable(found):
        return BoundMethod(tensor, name)
    if tensor.real is not None and tensor.source is not None:
        return tx.wrap(getattr(tensor.real, name), Attr(tensor.source, name))
    tensor.unknown(f"attribute {name!r}")


_MISSING = object()
_COUNTED = frozenset({"_version", "output_nr"})  # what fake tensors count for themselves


def assume_leaf(tx: Tracer, tensor: TensorValue) -> None:
    """Guard that a tensor of the program is a leaf, or is none: other guards do not ask."""
    if tensor.real is not None and tensor.source is not None and tensor.real.requires_grad:
        tx.guard(Attr(tensor.source, "is_leaf"), "CONSTANT_MATCH", tensor.real.is_leaf)


def _offset(tx: Tracer, tensor: TensorValue) -> Value:
    """Where it begins in its memory: fixed for a tensor of the program, and for a new one."""
    if tensor.real is not None and tensor.source is not None:
        tx.guard_equal(Called(tensor.source, storage_offset), tensor.real.storage_offset())
    elif tensor.fake._is_view():
        raise Break("FB0003", f"call_method storage_offset of {tensor.describe()}")
    return tx.wrap_new(tensor.fake.storage_offset())


def storage_offset(tensor: torch.Tensor) -> int:
    return int(tensor.storage_offset())


def tensor_method(tensor: TensorValue, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
    if name == "as_subclass":
        return tx.call(tx.wrap_new(torch.Tensor.as_subclass), [tensor, *args], kwargs)
    if name == "requires_grad_" and _asks_what_is(tensor, tx, args, kwargs):
        return tensor
    if name in GRAD_RULES:
        ruled = GRAD_RULES[name](tensor, tx, args, kwargs)
        if ruled is not None:
            return ruled
    if name == "numpy" and not args and not kwargs:
        from flambeau_capture.values.arrays import rules  # arrays are built on tensors

        found: Value = rules().from_tensor(tx, tensor)
        return found
    if name in _BREAK_OF:
        if (known_answer := ask(tx, "call_method", name, [tensor, *args], kwargs)) is not None:
            return known_answer
        raise Break(_BREAK_OF[name], f"call_method {name} of {tensor.describe()}")
    if name in CONSTANT_METHODS and not (name == "type" and args):
        if name in COUNTED_BY_DATA and tensor.fake.layout is not torch.strided:
            raise Break("FB0004", f"call_method {name} of {tensor.describe()}")
        if name == "storage_offset":
            return _offset(tx, tensor)
        if name == "__len__":
            return Constant(tensor.length(tx))
        return tx.wrap_new(_query(tx, tensor, name, args, kwargs))
    if name in _ITERATION:
        return tensor.iterate(tx)
    if name == "__getitem__":
        return tensor.get_item(tx, args[0])
    if name == "__setitem__":
        tensor.set_item(tx, args[0], args[1])
        return Constant(None)
    if name == "new":
        raise Break("FB0009", "legacy method new() of a tensor")
    if name == "size_":
        tensor.unknown("size_")
    return graph_call(tx, "call_method", name, [tensor, *args], kwargs)


def _has_place(tx: Tracer, tensor: TensorValue) -> bool:
    """Whether what is written to `.grad` is kept: by the program's tensor, or by one that stays."""
    if tensor.source is not None and tensor.real is not None:
        return True
    return any(own is tensor for own in tx.graph.outermost.own_leaves)


def _asks_what_is(tensor: TensorValue, tx: Tracer, args: Args, kwargs: Kwargs) -> bool:
    """Whether `requires_grad_` would change nothing."""
    flag = [*args, *kwargs.values(), Constant(True)][0]
    return bool(tensor.fake.requires_grad) == flag.truth(tx)


def _query(tx: Tracer, tensor: TensorValue, name: str, args: Args, kwargs: Kwargs) -> Any:
    try:
        plain = [_fake_or_python(arg) for arg in args]
        named = {key: _fake_or_python(arg) for key, arg in kwargs.items()}
    except NotConcrete as error:
        raise Break("FB0009", f"call_method {name} with {error}") from None
    fake = tensor.fake
    if name == "type":
        kind = fake.type()  # a fake tensor answers for its own device
        return kind
    try:
        return getattr(fake, name)(*plain, **named)
    except (TypeError, IndexError, ValueError, RuntimeError) as error:
        raise Break("FB0011", f"{name}: {error}") from None


def _fake_or_python(value: Value) -> Any:
    return value.fake if isinstance(value, TensorValue) else value.as_python()


def graph_argument(value: Value) -> Any:
    """What a graph's node holds for a value; a break where it can hold nothing for it."""
    converted = value.graph_argument() if hasattr(value, "graph_argument") else _MISSING
    if converted is not _MISSING:
        return converted
    if isinstance(value, TensorValue):
        return value.node
    try:
        plain = value.as_python()
    except NotConcrete:
        raise Break("FB0015", value.describe()) from None
    if not _holdable(plain):
        raise Break("FB0015", value.describe())
    return plain


_HOLDABLE = (
    int, float, bool, str, bytes, complex, type(None), type(Ellipsis), torch.dtype, torch.device,
    torch.layout, torch.memory_format, slice, range,
)  # fmt: skip


def _holdable(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_holdable(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(k, str) and _holdable(v) for k, v in value.items())
    return isinstance(value, _HOLDABLE) or value in _CLASSES


_CLASSES = (float, int, bool, complex)


def graph_call(tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs) -> Value:
    """Record one operation; answer its result."""
    overridden = override(tx, op, target, args, kwargs)
    if overridden is not None:
        return overridden
    rewrite = REWRITES.get(operator_name(target))
    if rewrite is not None:
        instead = rewrite(tx, operator_name(target), args, kwargs)
        if instead is not None:
            return instead
    values: dict[int, TensorValue] = {}
    for value in [*args, *kwargs.values()]:
        _collect(value, values)
    plain_name = operator_name(target).partition(".")[0]
    if plain_name in QUANTIZING:
        raise Break("FB0012", f"{plain_name} makes a quantized tensor")
    if plain_name in COUNTED_BY_DATA:
        for value in values.values():
            if value.fake.layout is not torch.strided:
                raise Break("FB0004", f"{plain_name} of a {value.fake.layout} tensor")
    localize = tx.graph.localize
    node_args = fx.node.map_arg(tuple(graph_argument(arg) for arg in args), localize)
    node_kwargs = fx.node.map_arg(
        {key: graph_argument(arg) for key, arg in kwargs.items()}, localize
    )
    device = tx.graph.outermost.device
    if device is not None and target in compat.device_constructors():
        if node_kwargs.get("device") is None:
            node_kwargs = {**node_kwargs, "device": device}
    by_fake = {id(value.fake): value for value in values.values()}
    versions = [(value.fake, version_of(value.fake)) for value in values.values()]
    shapes = [(value.fake.shape, value.fake.stride()) for value in values.values()]
    try:
        result = tx.graph.run(op, target, node_args, node_kwargs)
    except Exception:  # with numbers in place of symbols the operator may do
        node_args, node_kwargs = (fixed_numbers(tx, part) for part in (node_args, node_kwargs))
        try:
            result = run_call(tx, op, target, node_args, node_kwargs)
        except Break as error:
            instead = ask(tx, op, target, args, kwargs) if error.reason.id in _OF_DATA else None
            if instead is None:
                raise
            return instead
    if result is NotImplemented:
        return Constant(NotImplemented)
    if isinstance(result, _PLAIN):
        return tx.wrap_new(result)
    if [(f.shape, f.stride()) for f, _ in versions] != shapes:
        tx.heap.changed()  # so that capture starts again, with fake tensors as they were
        raise Break("FB0016", f"{operator_name(target)} changed the metadata of its argument")
    same = by_fake.get(id(result))
    if same is not None and all(version_of(f) == v and v >= 0 for f, v in versions):
        return same  # nothing happened: `x.contiguous()` of a contiguous tensor
    node = tx.graph.record(op, target, node_args, node_kwargs, result, tx.stack_trace())
    if same is not None:
        return same
    return _result(tx, node, result, by_fake)


def override(tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """What `__torch_function__` of an argument's class answers; None: there is none."""
    for rule in OVERRIDES:
        found = rule(tx, op, target, args, kwargs)
        if found is not None:
            return found
    return None


# Rules asked before an operation is recorded (see `values.overriding`).
OVERRIDES: list[Callable[[Tracer, str, Any, Args, Kwargs], Value | None]] = []

# What tensors are known to hold (see `values.knowledge`), and operations by it (`values.asking`).
KNOWN: list[Callable[[Tracer, TensorValue], torch.Tensor | None]] = []
ASKED: list[Callable[[Tracer, str, Any, Args, Kwargs], Value | None]] = []
_OF_DATA = ("FB0002", "FB0003", "FB0004")  # breaks that are none where the data is known


def known(tx: Tracer, tensor: TensorValue) -> torch.Tensor | None:
    """What a tensor holds, if capture knows; guards fix what that follows from."""
    return next((data for rule in KNOWN if (data := rule(tx, tensor)) is not None), None)


def known_number(tx: Tracer, tensor: TensorValue) -> int | float | None:
    """The number that a tensor of one element holds, if capture knows it."""
    data = known(tx, tensor)
    return None if data is None or data.numel() != 1 or data.is_complex() else data.item()


def ask(tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """The result of an operation on data that capture knows."""
    answers = (rule(tx, op, target, args, kwargs) for rule in ASKED)
    return next((found for found in answers if found is not None), None)


# Operators that a call may have to be written by others of, by name (see `values.scalars`).
REWRITES: dict[str, Callable[[Tracer, str, Args, Kwargs], Value | None]] = {}

# Methods that drive autograd and that the graph can hold, sometimes (see `builtins.derivatives`).
GRAD_RULES: dict[str, Callable[[TensorValue, Tracer, Args, Kwargs], Value | None]] = {}

# What assigning to `.data` does (see `values.newdata`).
DATA_RULES: list[Callable[[TensorValue, Tracer, Value], None]] = []

# Told of tensors that the graph makes and that derivatives end at (see `builtins.derivatives`).
NEW_LEAVES: list[Callable[[Tracer, TensorValue], None]] = []

_PLAIN = (
    bool, int, float, str, torch.dtype, torch.device, torch.Size,
    torch.SymInt, torch.SymFloat, torch.SymBool,
)  # fmt: skip


def record_call(tx: Tracer, target: Any, head: tuple[Any, ...], tensors: list[fx.Node]) -> Value:
    """Record a call whose arguments are nodes already."""
    args = fx.node.map_arg((*head, *tensors), tx.graph.localize)
    return record_result(tx, target, args, run_call(tx, "call_function", target, args, {}))


def record_result(tx: Tracer, target: Any, args: tuple[Any, ...], result: Any) -> Value:
    """Record a call whose result on fake tensors is known."""
    local = fx.node.map_arg(args, tx.graph.localize)
    node = tx.graph.record("call_function", target, local, {}, result, tx.stack_trace())
    return _result(tx, node, result, {})


def record_derivative(
    tx: Tracer, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], known: list[TensorValue]
) -> Value:
    """Record `torch.autograd.grad` in the form that graphs hold; known: tensors that it may answer
    as they are."""
    from flambeau_capture.values.tuples import TupleValue

    result = run_call(tx, "call_function", torch.autograd.grad, args, kwargs)
    node = tx.graph.record("call_function", target, args, kwargs, result, tx.stack_trace())
    by_fake = {id(value.fake): value for value in known}
    items: list[Value] = []
    for place, item in enumerate(result):
        made = project(tx, node, place, item, by_fake)
        items.append(made)
        if isinstance(made, TensorValue):
            by_fake[id(item)] = made
    return TupleValue(items)


def _collect(value: Value, into: dict[int, TensorValue]) -> None:
    if isinstance(value, TensorValue):
        into[id(value)] = value
    else:
        for inner in getattr(value, "parts", tuple)():
            _collect(inner, into)


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was written to; -1 where torch does not count."""
    return -1 if tensor.is_inference() else int(tensor._version)


def run_call(
    tx: Tracer, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    try:
        return tx.graph.run(op, target, args, kwargs)
    except Break:
        raise
    except Exception as error:
        if tx.shapes and _ABOUT_SYMBOLS.search(str(error)):
            raise RuntimeError(f"{operator_name(target)} takes no symbols: {error}") from error
        raise _as_break(operator_name(target), error) from error


_ABOUT_SYMBOLS = re.compile(r"[Ss]ym(Int|Float|Bool|bolic)")


def fixed_numbers(tx: Tracer, arguments: Any) -> Any:
    """Arguments of a node with numbers where symbols were, which a guard then fixes."""

    def fix(node: fx.Node) -> Any:
        number = node.meta["val"]
        is_number = isinstance(number, torch.SymInt | torch.SymFloat)
        return tx.shapes.value(number) if is_number else node

    return fx.node.map_arg(arguments, fix)


def _as_break(name: str, error: Exception) -> Break:
    causes = [error, error.__cause__, error.__context__]
    for cause in causes:
        if isinstance(cause, compat.data_dependent_errors()):
            return Break("FB0002", f"call_function {name}")
        if isinstance(cause, compat.dynamic_shape_errors()):
            return Break("FB0004", f"call_function {name}")
        if isinstance(cause, compat.unsupported_fake_errors()):
            return Break("FB0011", f"{name} has no rule for fake tensors")
    text = re.sub(r"\s+", " ", str(error)).strip()
    return Break("FB0011", f"call_function {name}: {type(error).__name__}: {text[:300]}")


def operator_name(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def _result(tx: Tracer, node: fx.Node, result: Any, by_fake: dict[int, TensorValue]) -> Value:
    from flambeau_capture.values.lists import ListValue
    from flambeau_capture.values.tuples import TupleValue

    if isinstance(result, torch.Tensor):
        known = by_fake.get(id(result))
        if known is not None:
            return known
        made = TensorValue(node, python_class=_public_class(result))
        if node.kwargs.get("requires_grad") is True and result.is_leaf:
            for rule in NEW_LEAVES:
                rule(tx, made)
        return made
    if isinstance(result, tuple | list):
        items = []
        for index, item in enumerate(result):
            items.append(project(tx, node, index, item, by_fake))
        if isinstance(result, list):
            return ListValue(items)
        return TupleValue(items, type(result))
    if type(result) is dict:
        return _dict_result(tx, node, result, by_fake)
    if result is None:
        return Constant(None)
    if isinstance(result, bool | int | float | str | torch.dtype | torch.device):
        return tx.wrap_new(result)
    raise Break("FB0011", f"{operator_name(node.target)} answers a {type(result).__name__}")


def _dict_result(tx: Tracer, node: fx.Node, result: Any, by_fake: dict[int, TensorValue]) -> Value:
    from flambeau_capture.values.dicts import DictValue

    entries = [
        (tx.wrap_new(key), project(tx, node, key, item, by_fake)) for key, item in result.items()
    ]
    return DictValue(entries, tx=tx)


def project(
    tx: Tracer, node: fx.Node, key: Any, item: Any, by_fake: dict[int, TensorValue]
) -> Value:
    """One item of a result that is a container."""
    if not isinstance(item, torch.Tensor | tuple | list | dict):
        return tx.wrap_new(item)
    part = tx.graph.graph.call_function(operator.getitem, (node, key))
    part.meta.update(val=item, projection=True)
    part.meta["stack_trace"] = node.meta.get("stack_trace", "")
    return _result(tx, part, item, by_fake)


def _public_class(fake: torch.Tensor) -> type:
    if isinstance(fake, torch.nn.Parameter):
        return torch.nn.Parameter
    return torch.Tensor
