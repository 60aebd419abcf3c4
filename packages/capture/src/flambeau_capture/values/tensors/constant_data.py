"""Constant data of tensors, propagated through the graph.

In: a tensor whose data an operation asks for (a Python number, a branch, the size of a result).
Out: the data where it follows from tensors made of constants, from small buffers, or from small
integer inputs on the CPU, whose elements a guard then fixes. Invariant: nothing is known of a
tensor that was written to, that took part in randomness or that an operator outside of the table
computes; what is met with other elements is not looked at again, so that it costs one compilation.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.source import Source
from flambeau_capture.values.base import Tracer
from flambeau_capture.values.functions.callables import is_graph_function, is_operator
from flambeau_capture.values.tensors.graph_calls import operator_name, version_of
from flambeau_capture.values.tensors.tensor import TensorValue

#: elements of an input or a buffer that a guard fixes: numbers about data, not data
SMALL = 16
#: elements of anything that is computed of them
LARGE = 1 << 16
#: operations between a tensor and the constants and inputs that it follows from
STEPS = 1000
_KINDS = (torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)

#: operators whose result depends on the data of their arguments alone
PURE = frozenset(
    {
        # made of numbers
        "tensor", "as_tensor", "arange", "linspace", "zeros", "ones", "full", "eye", "zeros_like",
        "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "new_tensor", "tril_indices",
        "triu_indices", "scalar_tensor", "meshgrid", "one_hot",
        # arithmetic and logic, element by element
        "add", "sub", "rsub", "mul", "div", "truediv", "true_divide", "floordiv", "floor_divide",
        "mod", "remainder", "fmod", "pow", "neg", "abs", "sign", "ceil", "floor", "round", "trunc",
        "sqrt", "square", "reciprocal", "exp", "log", "log2", "minimum", "maximum", "clamp",
        "clamp_min", "clamp_max", "clip", "where", "eq", "ne", "lt", "le", "gt", "ge", "invert",
        "and_", "or_", "xor", "lshift", "rshift", "logical_and", "logical_or", "logical_not",
        "logical_xor", "bitwise_and", "bitwise_or", "bitwise_not", "bitwise_xor", "isnan", "isinf",
        "isfinite", "isin", "masked_fill", "bucketize", "searchsorted",
        # along dimensions
        "sum", "prod", "mean", "max", "min", "amax", "amin", "argmax", "argmin", "any", "all",
        "cumsum", "cumprod", "diff", "sort", "argsort", "topk", "count_nonzero", "bincount",
        "interpolate",
        # of another form
        "to", "type", "type_as", "long", "int", "short", "float", "double", "half", "bool", "byte",
        "cpu", "clone", "contiguous", "detach", "view", "reshape", "view_as", "reshape_as",
        "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "expand_as", "transpose",
        "swapaxes", "permute", "movedim", "t", "repeat", "tile", "flip", "roll", "unbind", "split",
        "chunk", "cat", "concat", "stack", "hstack", "vstack", "pad", "tril", "triu", "diag",
        "diagonal", "narrow", "select", "index_select", "gather", "take", "broadcast_to",
        "broadcast_tensors", "getitem", "unfold",
        # of a size that depends on data
        "repeat_interleave", "nonzero", "argwhere", "unique", "unique_consecutive",
        "masked_select",
        # answers of Python's
        "item", "tolist", "equal", "is_nonzero", "__int__", "__float__", "__bool__", "__index__",
    }
)  # fmt: skip
#: operators that read, and whose result is memory of its own
READERS = frozenset(
    {"embedding", "linear", "matmul", "bmm", "einsum", "softmax", "layer_norm", "conv1d", "conv2d",
     "scaled_dot_product_attention", "cos", "sin", "gelu", "relu", "silu"}
)  # fmt: skip


def known_data(tx: Tracer, tensor: TensorValue, assume: bool = True) -> torch.Tensor | None:
    """What the tensor holds, if that is known; a guard fixes the inputs that it follows from.
    Unless anything may be assumed, it has to follow from constants alone."""
    if not tensor.in_graph():
        _ = tensor.node  # an input from here on: it is read
    needed: dict[Source, torch.Tensor] = {}
    cone = _cone(tx, tensor.node, needed)
    if cone is None or (needed and not assume):
        return None
    if not all(tx.steady(source, real) for source, real in needed.items()):
        return None
    found = _evaluate(tx, cone)
    if found is not None:
        for source, real in needed.items():
            tx.guard(source, "TENSOR_VALUES", real)
    return found


# -- what a node follows from -------------------------------------------------------------------


def _cone(
    tx: Tracer, root: fx.Node, needed: dict[Source, torch.Tensor]
) -> dict[fx.Node, torch.Tensor | None] | None:
    """The nodes that a node follows from, in an order in which they can be computed, with the
    tensors of those that are there already; None where data of the program takes part."""
    found: dict[fx.Node, torch.Tensor | None] = {}
    waiting = [(root, False)]
    while waiting:
        node, entered = waiting.pop()
        if node in found:
            continue
        if entered:
            found[node] = None
            continue
        if len(found) + len(waiting) > STEPS:
            return None
        if node.op in ("placeholder", "get_attr"):
            real = _given(tx, node, needed)
            if real is None:
                return None
            found[node] = real
        elif _computes(node):
            waiting.append((node, True))
            waiting += [(argument, False) for argument in node.all_input_nodes]
        else:
            return None
    return found


def _computes(node: fx.Node) -> bool:
    if node.op not in ("call_function", "call_method") or "out" in node.kwargs:
        return False
    result = node.meta["val"]
    sizes = [item.numel() for item in tensors_of(result) if not isinstance(item.numel(), int)]
    return operator_name(node.target) in PURE and of_torch(node.target) and not sizes


def _given(tx: Tracer, node: fx.Node, needed: dict[Source, torch.Tensor]) -> torch.Tensor | None:
    """The tensor behind an input or an attribute of the graph, if its elements may be fixed."""
    builder = tx.graph.outermost
    constant = builder.constants.get(node)
    if constant is not None:
        return constant
    real: Any = builder.real(node)
    if type(real) not in (torch.Tensor, torch.nn.Buffer) or version_of(node.meta["val"]) != 0:
        return None
    if real.dtype not in _KINDS or real.device.type != "cpu" or real.numel() > SMALL:
        return None
    value = tx.heap.find(real)
    if not compat.is_plain_strided(real) or not isinstance(value, TensorValue):
        return None
    source = value.source
    if source is None or value.written_data is not None or _written_elsewhere(tx, real):
        return None
    if compat.torch_function_modes() or not tx.options.small_values:
        return None
    needed[source] = real
    found: torch.Tensor = real
    return found


def _written_elsewhere(tx: Tracer, real: torch.Tensor) -> bool:
    """Whether the graph writes to another of its inputs that may be the same memory."""
    builder = tx.graph.outermost
    inputs = [(given.node, given.tensor) for given in builder.inputs if not given.is_number()]
    inputs += [(node, builder.real(node)) for node in builder.graph.nodes if node.op == "get_attr"]
    return any(
        isinstance(other, torch.Tensor)
        and other is not real
        and compat.is_plain_strided(other)
        and compat.same_memory(other, real)
        and (version_of(node.meta["val"]) != 0 or not _is_read(node, True))
        for node, other in inputs
    )


# -- computing it -------------------------------------------------------------------------------


def _evaluate(tx: Tracer, cone: dict[fx.Node, torch.Tensor | None]) -> torch.Tensor | None:
    values: dict[fx.Node, Any] = {}
    memo = tx.graph.outermost.known
    for node, given in cone.items():
        if given is not None:
            values[node] = given.detach().clone() if given.numel() <= SMALL else given
        elif node in memo:
            values[node] = memo[node]
        else:
            computed = _compute(node, values)
            if computed is None:
                return None
            values[node] = memo[node] = computed
        if not _as_recorded(node, values[node]):
            return None
    found: torch.Tensor = values[next(reversed(cone))]
    return found


def _compute(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    args = fx.node.map_arg(node.args, lambda argument: values[argument])
    kwargs = fx.node.map_arg(node.kwargs, lambda argument: values[argument])
    return compute(node.target, args, kwargs)


def compute(target: Any, args: Any, kwargs: Any) -> Any:
    """An operator's result on real tensors; None where torch refuses, or where it is large."""
    try:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            if isinstance(target, str):
                found = getattr(args[0], target)(*args[1:], **kwargs)
            else:
                found = target(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None  # it is asked again, or raises, where the program does
    fits = (type(one) is torch.Tensor and one.numel() <= LARGE for one in tensors_of(found))
    there = (one.device.type != "meta" for one in tensors_of(found))
    return found if all(fits) and all(there) else None


def _as_recorded(node: fx.Node, real: Any) -> bool:
    """Whether what was computed is what the graph has: no operation in place came between."""
    fakes, reals = list(tensors_of(node.meta["val"])), list(tensors_of(real))
    return len(fakes) == len(reals) > 0 and all(
        (fake.shape, fake.dtype, fake.device.type) == (one.shape, one.dtype, one.device.type)
        and not fake.requires_grad
        and (fake.is_inference() or version_of(fake) == version_of(one))
        and _is_read(node, not fake.is_inference())
        for fake, one in zip(fakes, reals, strict=True)
    )


def _is_read(node: fx.Node, counted: bool) -> bool:
    """Whether nothing is done to a node, or to what shares its memory, that may write to it unseen.
    counted: torch counts what its own operators write, which it does not in inference mode."""
    seen: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        known = waiting.pop()
        for user in known.users:
            if user in seen:
                continue
            seen.add(user)
            if not _reads(user, counted):
                return False
            if any(
                compat.same_memory(one, other)
                for one in tensors_of(user.meta["val"])
                for other in tensors_of(known.meta["val"])
            ):
                waiting.append(user)
    return True


def _reads(user: fx.Node, counted: bool) -> bool:
    if not of_torch(user.target):
        return False
    name = operator_name(user.target)
    harmless = (name in PURE or name in READERS) and "out" not in user.kwargs
    private = name.startswith("_") and not name.startswith("__")  # `_foreach_add_` is not counted
    return harmless or (counted and not private)


def of_torch(target: Any) -> bool:
    """Whether a node's target is one of torch's own operators (or of Python's on them), by any
    name: what is made elsewhere may do anything."""
    if isinstance(target, str) or getattr(target, "__module__", None) == "_operator":
        return True
    if isinstance(target, types.FunctionType):
        return is_graph_function(target)
    return isinstance(target, types.BuiltinFunctionType) and is_operator(target)


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_of(item)
