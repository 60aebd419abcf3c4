"""Methods and attributes of tensors.

In: a tensor, and the name of a method or attribute. Out: plain Python about its metadata, a call
in the graph, or a break with its reason. Invariant: what fake tensors count otherwise than real
ones (versions, addresses) is never answered from a fake one.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import torch

from flambeau_capture.breaks import Break, SkipFrame
from flambeau_capture.graph import functions as graph_functions
from flambeau_capture.source import Attr, Called
from flambeau_capture.values.base import Args, Kwargs, Tracer, Unreconstructible, Value, needing
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.functions.methods import PROTOCOL, BoundMethod
from flambeau_capture.values.numpy.wrapping import rules
from flambeau_capture.values.registry import call_known
from flambeau_capture.values.tensors.graph_calls import COUNTED_BY_DATA, graph_call
from flambeau_capture.values.tensors.tensor import (
    TensorValue,
    has_place,
    is_whole,
    requires_grad_already,
)

_OF_HISTORY = frozenset({"requires_grad", "is_leaf", "grad_fn", "grad"})
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
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
_BY_STRIDES = frozenset({"stride", "is_contiguous", "dim_order"})

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
#: of these a graph with sizes by data has the result
_BY_DATA = frozenset(
    {"item", "tolist", "nonzero", "unique", "unique_consecutive", "masked_select", "argwhere"}
)
_OF_OBJECTS = frozenset(dir(object)) - {f"__{name}__" for name in COMPARED}
_BREAK_OF = {name: id for id, names in BREAKING_METHODS.items() for name in names}


def tensor_attribute(tensor: TensorValue, tx: Tracer, name: str) -> Value:
    _ = tensor.cls  # that it is a tensor is assumed from here on
    if name in ("is_leaf", "grad_fn"):
        assume_leaf(tx, tensor)
    if name in _OF_HISTORY and tx.graph.hides_history and tensor.fake.requires_grad:
        raise Break("FB0025", f"{name} of a tensor where torch hides its history")
    if name in _COUNTED:
        if tensor.real is None and name == "_version":  # what a graph gives has never been written
            raise SkipFrame(f"_version of {tensor.describe()}")
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
        if not tensor.fake.requires_grad or not tensor.fake.is_leaf or has_place(tx, tensor):
            return Constant(None)
        raise Break("FB0007", "reading .grad of a tensor made in the graph")
    if name == "grad_fn":
        if not tensor.fake.requires_grad or (tensor.fake.is_leaf and tensor.fake.dim() >= 0):
            return Constant(None)
        return NodeValue(tensor, tx)
    if name == "__class__":
        return tx.wrap_new(tensor.cls)
    if name == "__dict__":
        tensor.unknown("attribute '__dict__'")
    found = getattr(torch.Tensor, name, _MISSING)
    if found is _MISSING and name in tensor.attributes:
        return tensor.attributes[name]
    if found is _MISSING:
        if tensor.real is not None and tensor.source is not None and hasattr(tensor.real, name):
            return tx.wrap(getattr(tensor.real, name), Attr(tensor.source, name))
        tx.guard(tensor.source, "NOT_HASATTR", name)
        tensor.lacks(tx, name, "Tensor")
    if callable(found):
        return BoundMethod(tensor, name)
    if tensor.real is not None and tensor.source is not None:
        return tx.wrap(getattr(tensor.real, name), Attr(tensor.source, name))
    tensor.unknown(f"attribute {name!r}")


class NodeValue(Value):
    """The autograd node of a tensor: whether there is one is known; whoever looks at it is to find
    eager's, so that the graph ends before the operator that makes the tensor."""

    made_in_python = "FB0007"

    def __init__(self, tensor: TensorValue, tx: Tracer) -> None:
        made = tensor.source is None and tensor.real is None and tx.graph is tx.graph.outermost
        before = tx.graph.steps.get(tensor.node) if made else None
        self.step, self.lines = tx.step() if before is None else before, tx.user_lines()
        self.tx = tx
        own = getattr(tensor.node.target, "__module__", "") == graph_functions.__name__
        self.known = None if own else type(tensor.fake.grad_fn)

    @property
    def cls(self) -> type:
        """What torch's own operators make; functions of graphs stand for others."""
        return self._end() if self.known is None else self.known

    def describe(self) -> str:
        return "reading .grad_fn of a tensor made in the graph"

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> Value:
        self._end()

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        self._end()

    def _end(self) -> NoReturn:
        stopped = Break(self.made_in_python, self.describe())
        self.tx.heap.changed()
        stopped.stop, stopped.lines = self.step, self.lines
        raise stopped

    def reconstruct(self, writer: Any) -> NoReturn:
        raise Unreconstructible(self, self.describe())


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
    if name == "requires_grad_" and requires_grad_already(tensor, tx, args, kwargs):
        return tensor
    rule = tx.tensor_rules.methods.get(name)
    if rule is not None:
        ruled = rule(tensor, tx, args, kwargs)
        if ruled is not None:
            return ruled
    if name in _OF_OBJECTS:  # which ask the object itself: a fake one is another
        if name == "__hash__" and not args:
            return call_known(tx, hash, "hash", tensor)
        raise Break(_BREAK_OF.get(name, "FB0009"), f"call_method {name} of {tensor.describe()}")
    if name == "numpy" and not args and not kwargs:
        array: Value = rules().from_tensor(tx, tensor)
        return array
    if name in _BREAK_OF:
        call = "call_method", name, [tensor, *args], kwargs
        if name == "item" and tx.reads_early():
            early = tx.tensor_rules.number_for_python(tx, tensor)
            if early is not None:
                return early
        if name in _BY_DATA and tx.data_sizes() and _gives_sizes(tensor, name):
            if name == "tolist":
                return _as_list(tx, tensor)
            return graph_call(tx, *call)
        found = tx.tensor_rules.by_data(tx, *call, True)
        if found is not None:
            return found
        if name == "item" and not tx.reads_early():
            tx.tensor_rules.number_for_python(tx, tensor)
        raise Break(_BREAK_OF[name], f"call_method {name} of {tensor.describe()}")
    if name in CONSTANT_METHODS and not (name == "type" and args):
        if name in COUNTED_BY_DATA and tensor.fake.layout is not torch.strided:
            raise Break("FB0004", f"call_method {name} of {tensor.describe()}")
        if name == "storage_offset":
            return _offset(tx, tensor)
        if name in _BY_STRIDES:
            tx.tensor_rules.check_layout(tx, tensor)
        if name == "__len__":
            return Constant(tensor.length(tx))
        return tx.wrap_new(_query(tx, tensor, name, args, kwargs))
    if name == "type":
        args = [_named_type(arg) for arg in args]
    if name in ("__iter__", "__getitem__", "__setitem__"):
        return PROTOCOL[name](tensor, tx, args, kwargs) or Constant(None)
    if name == "new":
        return _new(tx, tensor, args, kwargs)
    return graph_call(tx, "call_method", name, [tensor, *args], kwargs)


def _new(tx: Tracer, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    """`x.new(2, 3)`, `x.new([1.0])`: a tensor of its dtype and device, of sizes or of numbers."""
    with needing("FB0009", lambda error: f"legacy method new() of a tensor with {error}"):
        plain = [arg.as_python() for arg in args]
    if kwargs or tensor.cls is not torch.Tensor or tensor.fake.layout is not torch.strided:
        raise Break("FB0009", "legacy method new() of a tensor")
    if len(plain) == 1 and isinstance(plain[0], list | tuple):
        by = "new_empty" if isinstance(plain[0], torch.Size) else "new_tensor"
        return graph_call(tx, "call_method", by, [tensor, *args], {})
    if not all(type(size) is int for size in plain):
        raise Break("FB0009", "legacy method new() of a tensor")
    sizes = tx.wrap_new(tuple(plain) or (0,))
    return graph_call(tx, "call_method", "new_empty", [tensor, sizes], {})


def _named_type(value: Value) -> Value:
    """A legacy class of tensors as its name, which a node may hold."""
    kind = value.as_python() if issubclass(value.cls, type(torch.FloatTensor)) else None
    return value if kind is None else Constant(f"{kind.__module__}.{kind.__name__}")


def _gives_sizes(tensor: TensorValue, name: str) -> bool:
    """Whether what a method gives are integers, floats, or tensors."""
    dtype = tensor.fake.dtype
    return name not in ("item", "tolist") or is_whole(dtype) or dtype.is_floating_point


def _as_list(tx: Tracer, tensor: TensorValue) -> Value:
    """`tolist()`, number by number."""
    fake = tensor.fake
    known = tx.tensor_rules.by_data(tx, "call_method", "tolist", [tensor], {}, False)
    if known is not None:
        return known
    if fake.dim() == 0:
        return tensor.call_method(tx, "item", [], {})
    tensor = tx.tensor_rules.rows(tx, tensor) or tensor
    sizes = [size for size in tensor.fake.shape if isinstance(size, int)]
    if len(sizes) < fake.dim() or math.prod(sizes) > _LONGEST_LIST:
        raise Break("FB0003", f"call_method tolist of {tensor.describe()}")
    items = [tensor.get_item(tx, Constant(place)) for place in range(sizes[0])]
    return ListValue([_as_list(tx, item) for item in items if isinstance(item, TensorValue)])


#: numbers that a graph reads one by one
_LONGEST_LIST = 64


def _query(tx: Tracer, tensor: TensorValue, name: str, args: Args, kwargs: Kwargs) -> Any:
    with needing("FB0009", lambda error: f"call_method {name} with {error}"):
        plain = [_fake_or_python(arg) for arg in args]
        named = {key: _fake_or_python(arg) for key, arg in kwargs.items()}
    fake = tensor.fake
    if name == "type":
        return fake.type()  # a fake tensor answers for its own device
    try:
        return getattr(fake, name)(*plain, **named)
    except (TypeError, IndexError, ValueError, RuntimeError) as error:
        raise Break("FB0011", f"{name}: {error}") from None


def _fake_or_python(value: Value) -> Any:
    return value.fake if isinstance(value, TensorValue) else value.as_python()
