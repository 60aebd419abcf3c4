"""Constant data of tensors, and data-dependent operators on it.

In: a tensor whose data an operation needs (a Python number, a branch, the size of a result). Out:
the data where it follows from constants, small buffers or small integer inputs on the CPU, whose
elements a guard then fixes; the operation written with numbers for tensors, places for masks.
Invariant: nothing is known of a tensor that was written to, that took part in randomness or that an
operator outside of the table computes; one whose elements vary is not looked at again.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.source import ModuleEntry, Source
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import SliceValue, TupleValue
from flambeau_capture.values.functions.call_rules import is_graph_function, is_operator
from flambeau_capture.values.tensors.graph_calls import graph_call, version_of
from flambeau_capture.values.tensors.refused_calls import operator_name
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
    """The tensor's data, if known; guards fix what it follows from: constants and the state of
    modules, other tensors only with `assume`."""
    if not tensor.in_graph():
        _ = tensor.node  # an input from here on: it is read
    needed: dict[Source, torch.Tensor] = {}
    given: dict[fx.Node, torch.Tensor] = {}

    def enters(node: fx.Node) -> bool | None:
        if node.op not in ("placeholder", "get_attr"):
            return _computes(node) or None
        real = _given(tx, node, needed)
        if real is None:
            return None
        given[node] = real
        return False

    nodes = cone(tensor.node, enters)
    if nodes is None:
        return None
    if not assume and not all(isinstance(source, ModuleEntry) for source in needed):
        return None
    if not all(tx.steady(source, real) for source, real in needed.items()):
        return None
    found = _evaluate(tx, nodes, given)
    if found is not None:
        for source, real in needed.items():
            tx.guard(source, "TENSOR_VALUES", real)
    return found


def known_number(tx: Tracer, node: fx.Node, dim: int | None) -> int | float | None:
    """The number that a node is, or the size of its tensor; None if it is not known."""
    keys: list[Any] = []
    while dim is None and not isinstance(node.meta["val"], torch.Tensor):
        keys += [node.args[1]] if node.target is operator.getitem else []
        (node, *_) = node.all_input_nodes
    data = known_data(tx, TensorValue(node))
    if data is None or (dim is None and not keys and data.numel() != 1):
        return None
    found: Any = data.size(dim) if dim is not None else data.tolist() if keys else data.item()
    for key in reversed(keys):
        found = found[key]
    return found if type(found) in (int, float) else None


# -- what a node follows from -------------------------------------------------------------------


def cone(
    root: fx.Node, enters: Callable[[fx.Node], bool | None], most: int = STEPS
) -> list[fx.Node] | None:
    """The nodes that one follows from, in order. `enters` says of each whether what it is made of
    belongs to them; None, or more nodes than `most`: what it follows from is not known."""
    found, waiting = {root}, [root]
    while waiting:
        node = waiting.pop()
        more = enters(node)
        if more is None or len(found) > most:
            return None
        fresh = [each for each in node.all_input_nodes if more and each not in found]
        found.update(fresh)
        waiting += fresh
    return sorted(found)


def _computes(node: fx.Node) -> bool:
    if node.op not in ("call_function", "call_method") or "out" in node.kwargs:
        return False
    result = node.meta["val"]
    sizes = [item.numel() for item in tensors_of(result) if not isinstance(item.numel(), int)]
    return operator_name(node.target) in PURE and of_torch(node.target) and not sizes


def _given(tx: Tracer, node: fx.Node, needed: dict[Source, torch.Tensor]) -> torch.Tensor | None:
    """The tensor of an input or an attribute of the graph, if its elements may be fixed."""
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
    if source is None or value.written_data is not None or written_elsewhere(tx, real):
        return None
    if compat.torch_function_modes() or not tx.options.small_values:
        return None
    needed[source] = real
    found: torch.Tensor = real
    return found


def written_elsewhere(tx: Tracer, real: torch.Tensor) -> bool:
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


def _evaluate(
    tx: Tracer, nodes: list[fx.Node], given: dict[fx.Node, torch.Tensor]
) -> torch.Tensor | None:
    values: dict[fx.Node, Any] = {}
    memo = tx.graph.outermost.known
    for node in nodes:
        if node in given:
            real = given[node]
            values[node] = real.detach().clone() if real.numel() <= SMALL else real
        elif node in memo:
            values[node] = memo[node]
        else:
            read = values.__getitem__
            args, kwargs = (fx.node.map_arg(part, read) for part in (node.args, node.kwargs))
            computed = compute(node.target, args, kwargs)
            if computed is None:
                return None
            values[node] = memo[node] = computed
        if not _as_recorded(node, values[node]):
            return None
    found: torch.Tensor = values[nodes[-1]]
    return found


def compute(target: Any, args: Any, kwargs: Any) -> Any:
    """An operator's result on real tensors; None where torch refuses, or where it is large."""
    found = _result(target, args, kwargs)
    fits = (type(one) is torch.Tensor and one.numel() <= LARGE for one in tensors_of(found))
    there = (one.device.type != "meta" for one in tensors_of(found))
    return found if all(fits) and all(there) else None


def _result(target: Any, args: Any, kwargs: Any) -> Any:
    try:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            return compat.perform(target, args, kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None  # it is computed again, or raises, where the program does


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
    """Whether nothing may write to a node's memory unseen; `counted`: torch counts writes."""
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


def is_only_read(node: fx.Node) -> bool:
    """Whether a node's memory is as its operator has made it: nothing writes to it."""
    unwritten = all(
        fake.is_inference() or version_of(fake) == 0 for fake in tensors_of(node.meta["val"])
    )
    return unwritten and _is_read(node, counted=True)


def _reads(user: fx.Node, counted: bool) -> bool:
    if not of_torch(user.target):
        return False
    name = operator_name(user.target)
    harmless = (name in PURE or name in READERS) and "out" not in user.kwargs
    private = name.startswith("_") and not name.startswith("__")  # `_foreach_add_` is not counted
    return harmless or (counted and not private)


def of_torch(target: Any) -> bool:
    """Whether a node's target is one of torch's own operators, or of Python's, by any name."""
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


_INDEXING = (operator.getitem, operator.setitem)


def answer(
    tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs, assume: bool
) -> Value | None:
    """The result of an operation that fails where data is not known; None: nothing helps. assume:
    guards may fix elements for it."""
    rules = (_with_numbers, _with_indices, _with_size, _whole)
    answers = (rule(tx, op, target, args, kwargs, assume) for rule in rules)
    return next((found for found in answers if found is not None), None)


def _again(tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs) -> Value | None:
    try:
        return graph_call(tx, op, target, args, kwargs)
    except Break:
        return None


def _with_numbers(
    tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs, assume: bool
) -> Value | None:
    """`torch.arange(t)` with the number that t is known to be."""
    numbers: list[Constant] = []
    key = 1 if target in _INDEXING else None  # alone of these is a number there
    if key and isinstance(args[1], ListValue) and args[1].source is None:
        parts = args[1].parts()
        if any(isinstance(part, TensorValue) for part in parts):  # then torch takes it as a tuple
            args = [args[0], TupleValue(parts), *args[2:]]
    how = assume, numbers
    given = [_numbered(tx, arg, key in (None, place), *how) for place, arg in enumerate(args)]
    named = {name: _numbered(tx, arg, key is None, *how) for name, arg in kwargs.items()}
    return _again(tx, op, target, given, named) if numbers else None


def _numbered(
    tx: Tracer, value: Value, inside: bool, assume: bool, numbers: list[Constant]
) -> Value:
    if isinstance(value, TensorValue):
        if not inside or value.fake.dim() or value.fake.dtype == torch.bool:
            return value
        found = known_data(tx, value, assume)
        if found is None:
            return value
        numbers.append(Constant(found.item()))
        return numbers[-1]
    if type(value) is SliceValue:
        bounds = (_numbered(tx, bound, True, assume, numbers) for bound in value.bounds)
        start, stop, step = bounds
        return SliceValue(start, stop, step)
    if isinstance(value, ListValue) and value.source is None:
        return ListValue([_numbered(tx, part, inside, assume, numbers) for part in value.parts()])
    if isinstance(value, TupleValue):
        parts = [_numbered(tx, part, inside, assume, numbers) for part in value.parts()]
        return TupleValue(parts, value.cls)
    return value


def _with_indices(
    tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs, assume: bool
) -> Value | None:
    """`x[mask]` by the places at which the mask is known to be true."""
    if target not in _INDEXING or not isinstance(args[0], TensorValue):
        return None
    keys = args[1].parts() if type(args[1]) is TupleValue else [args[1]]
    placed: list[Value] = []
    for place, key in enumerate(keys):
        is_mask = isinstance(key, TensorValue) and key.fake.dtype in (torch.bool, torch.uint8)
        if not is_mask or not isinstance(key, TensorValue) or key.fake.dim() == 0:
            placed.append(key)
            continue
        mask = known_data(tx, key, assume)
        if mask is None or not _covers(mask, args[0].fake, keys, place):
            return None
        placed += [_constant(tx, each) for each in mask.nonzero(as_tuple=True)]
    if len(placed) == len(keys) and all(new is old for new, old in zip(placed, keys)):
        return None
    return _again(tx, op, target, [args[0], TupleValue(placed), *args[2:]], kwargs)


def _covers(mask: torch.Tensor, indexed: torch.Tensor, keys: list[Value], place: int) -> bool:
    """Whether a mask is of the sizes that it indexes, which its places alone do not say."""
    start = sum(map(dimensions_of, keys[:place]))
    if any(is_ellipsis(key) for key in keys[:place]):
        start = indexed.dim() - sum(map(dimensions_of, keys[place:]))
    return indexed.shape[start : start + mask.dim()] == mask.shape


def dimensions_of(key: Value) -> int:
    """How many dimensions a key of an indexing takes."""
    if isinstance(key, TensorValue):
        return key.fake.dim() if key.fake.dtype in (torch.bool, torch.uint8) else 1
    none = isinstance(key, Constant) and key.cls in (type(None), bool)  # of open numbers, too
    return 0 if none or is_ellipsis(key) else 1


def is_ellipsis(key: Value) -> bool:
    return isinstance(key, Constant) and key.cls is type(...)


def number_as_key(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`x[t]` by the number of a tensor that the graph makes of it: Python reads that, too."""
    if kwargs or not isinstance(args[0], TensorValue):
        return None
    keys = args[1].parts() if isinstance(args[1], TupleValue) else [args[1]]
    numbers = [key for key in keys if isinstance(key, TensorValue) and key.fake.dim() == 0]
    if not numbers or any(key.fake.dtype is torch.uint8 for key in numbers):
        return None  # bytes are masks
    target = getattr(operator, name)
    return _with_numbers(tx, "call_function", target, args, kwargs, assume=False)


def write(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`x[mask] = values` by the places of a mask that is known: few backends take open sizes."""
    if len(args) != 3 or not isinstance(args[2], TensorValue) or args[2].fake.dim() == 0:
        return None
    return _with_indices(tx, "call_function", operator.setitem, args, kwargs, assume=False)


def _with_size(
    tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs, assume: bool
) -> Value | None:
    """`repeat_interleave` with the size of its result, where the repeats are known."""
    repeats = kwargs.get("repeats", args[1] if len(args) > 1 else None)
    if operator_name(target) != "repeat_interleave" or "output_size" in kwargs:
        return None
    found = known_data(tx, repeats, assume) if isinstance(repeats, TensorValue) else None
    if found is None or (found.numel() == 1 and isinstance(args[0], TensorValue)):
        return None  # one repeats each element so often: the size is not the sum
    places = _result(torch.repeat_interleave, (found,), {})  # a size that is given is not checked
    if places is None:
        return None
    return _again(tx, op, target, args, {**kwargs, "output_size": Constant(places.numel())})


def _whole(
    tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs, assume: bool
) -> Value | None:
    if operator_name(target) not in PURE or not of_torch(target) or "out" in kwargs:
        return None
    try:
        plain = [_plain(tx, arg, assume) for arg in args]
        named = {name: _plain(tx, arg, assume) for name, arg in kwargs.items()}
    except (NotConcrete, Break):
        return None
    result = compute(target, plain, named)
    return None if result is None else _value(tx, result)


def _plain(tx: Tracer, value: Value, assume: bool) -> Any:
    if isinstance(value, TensorValue):
        found = known_data(tx, value, assume)
        if found is None:
            raise NotConcrete(value.describe())
        return found
    if isinstance(value, ListValue | TupleValue):
        items = [_plain(tx, part, assume) for part in value.parts()]
        return items if isinstance(value, ListValue) else tuple(items)
    if isinstance(value, SliceValue):
        return slice(*(_plain(tx, bound, assume) for bound in value.bounds))
    found = value.graph_argument()
    if isinstance(found, fx.Node):
        raise NotConcrete(value.describe())
    return found


def _value(tx: Tracer, result: Any) -> Value:
    if isinstance(result, torch.Tensor):
        return _constant(tx, result)
    if type(result) in (tuple, list) and any(True for _ in tensors_of(result)):
        items = [_value(tx, item) for item in result]
        return ListValue(items) if type(result) is list else TupleValue(items)
    return tx.wrap_new(result)


def _constant(tx: Tracer, tensor: torch.Tensor) -> Value:
    """A tensor of known data, made anew each time the graph runs."""
    builder = tx.graph.outermost
    node = builder.add_attribute(tensor, "known")
    builder.constants[node] = tensor
    return graph_call(tx, "call_method", "clone", [TensorValue(node)], {})
