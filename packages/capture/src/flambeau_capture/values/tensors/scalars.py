"""Scalar operands given as tensors or symbols.

In: a call whose `value`, `alpha` or `fill_value` is a tensor of no dimension, for which torch would
read a Python number, or an index that is a symbol, which torch would fix. Out: the same by
operators that take them. Invariant: the number is never read, so that nothing depends on it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import REASONS, Break, BreakReport
from flambeau_capture.graph.builder import CopiedTensor
from flambeau_capture.values.base import Args, Kwargs, Tracer, UserError, Value
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import SequenceValue, SliceValue, TupleValue
from flambeau_capture.values.tensors.data.constant_data import dimensions_of, is_ellipsis
from flambeau_capture.values.tensors.graph_calls import (
    graph_call,
    require_number,
    tensor_call,
    version_of,
)
from flambeau_capture.values.tensors.numbers.data_numbers import read_position, selected
from flambeau_capture.values.tensors.symbolic_numbers import (
    SymbolValue,
    is_known,
    symbol_operator,
    symbol_value,
)
from flambeau_capture.values.tensors.tensor import TensorValue


def _number(value: Value | None) -> TensorValue | None:
    """A tensor of no dimension, of floating-point numbers, that torch takes for one."""
    if isinstance(value, TensorValue) and value.fake.dim() == 0 and not value.fake.requires_grad:
        return value if value.fake.is_floating_point() else None
    return None


def _op(tx: Tracer, name: str, *args: Value) -> Value:
    return graph_call(tx, "call_method", name, list(args), {})


def scaled_add(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`a.add_(b, alpha=t)` as `a.add_(b * t)`."""
    number = _number(kwargs.get("alpha"))
    if number is None or len(args) != 2:
        return None
    return _op(tx, name, args[0], _op(tx, "mul", args[1], number))


_UNFILLED = {"full": torch.empty, "full_like": torch.empty_like, "new_full": "new_empty"}
FILLED = tuple(_UNFILLED)
_FACTORY = frozenset({"dtype", "device", "layout", "memory_format"})


def filled(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`full_like(x, t)` as `empty_like(x).fill_(t)`."""
    count = 3 if name == "new_full" else 2
    if len(args) != count or not kwargs.keys() <= _FACTORY:
        return None
    *like, number = args
    sizes = name == "full_like" or isinstance(like[-1], SequenceValue)  # torch takes no integer
    if _number(number) is None or not sizes:
        return None
    made = _UNFILLED[name]
    kind = "call_method" if isinstance(made, str) else "call_function"
    return _op(tx, "fill_", graph_call(tx, kind, made, like, kwargs), number)


def pointwise_pair(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`a.addcdiv_(b, c, value=t)` as `a.add_(b / c * t)`."""
    number = _number(kwargs.get("value"))
    if number is None or len(args) != 3:
        return None
    pair = _op(tx, "mul", _op(tx, _combining(name), args[1], args[2]), number)
    return _op(tx, "add_" if name.endswith("_") else "add", args[0], pair)


def foreach_pair(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`_foreach_addcdiv_(as, bs, cs, ts)` with numbers as tensors, tensor by tensor."""
    if len(args) != 4 or kwargs:
        return None
    lists = [arg for arg in args[:3] if isinstance(arg, SequenceValue)]
    count = lists[0].length(tx) if lists else -1
    numbers: Value = args[3]
    if len(lists) != 3 or any(one.length(tx) != count for one in lists):
        return None
    if isinstance(numbers, TensorValue) and tuple(numbers.fake.shape) == (count,):
        numbers = graph_call(tx, "call_function", torch.unbind, [numbers], {})
    if not isinstance(numbers, SequenceValue) or numbers.length(tx) != count:
        return None
    if all(_number(number) is None for number in numbers.parts()):
        return None  # the operator's own
    for a, b, c, number in zip(*(one.parts() for one in lists), numbers.parts()):
        _op(tx, "add_", a, _op(tx, "mul", _op(tx, _combining(name), b, c), number))
    return Constant(None)


_RUNNING = {
    "batch_norm": (torch.nn.functional.batch_norm, "training", False),
    "instance_norm": (torch.nn.functional.instance_norm, "use_input_stats", True),
}
NORMS = tuple(_RUNNING)
_PARAMETERS = "input", "running_mean", "running_var", "weight", "bias"


def running_average(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`batch_norm(x, mean, var, momentum=t)` of an open number t: the statistics of this batch, and
    the running ones as `mean * (1 - t) + this * t`."""
    fn, learns, by_default = _RUNNING[name]
    names = *_PARAMETERS, learns, "momentum", "eps"
    given = dict(zip(names, args)) | dict(kwargs)
    momentum = given.get("momentum")
    if not isinstance(momentum, SymbolValue) or not given.keys() <= set(names):
        return None  # torch.batch_norm has one more
    kept = symbol_operator(tx, "-", Constant(1.0), momentum)
    flag = given.get(learns, Constant(by_default))
    if kept is None or not isinstance(flag, Constant):
        return None
    running = [given.get(each) for each in ("running_mean", "running_var")]
    stats = [each for each in running if isinstance(each, TensorValue) and flag.value]
    if len(stats) == 1:
        return None
    this = [graph_call(tx, "call_function", torch.zeros_like, [each], {}) for each in stats]
    given |= {**dict(zip(("running_mean", "running_var"), this)), "momentum": Constant(1.0)}
    result = graph_call(tx, "call_function", fn, [given.pop("input")], given)
    for each, new in zip(stats, this, strict=True):
        _op(tx, "add_", _op(tx, "mul_", each, kept), _op(tx, "mul", new, momentum))
    return result


def _combining(name: str) -> str:
    return "div" if "addcdiv" in name else "mul"


def select(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`x[:, n]` as `x[:, :].select(1, n)`, where n is an open integer, or a tensor that is one; as
    `x[:, n : n + 1].select(1, 0)` where n depends on data, or is a tensor of which no copy is laid
    out as the view is: the graph checks a slice's bounds."""
    if not isinstance(args[0], TensorValue):
        return None
    everything = SliceValue(Constant(None), Constant(None), Constant(None))
    keys = list(args[1].parts()) if isinstance(args[1], TupleValue) else [args[1]]
    dots = [place for place, key in enumerate(keys) if key.cls is type(...)]
    if len(dots) == 1:
        missing = args[0].fake.dim() - sum(map(dimensions_of, keys))
        keys[dots[0] : dots[0] + 1] = [everything] * missing
    if not all(_is_plain_key(key) for key in keys):
        return _separately(tx, name, args[0], keys, everything)
    found = next((place for place, key in enumerate(keys) if _is_open(tx, key)), None)
    if found is None or sum(not is_none(key) for key in keys) > args[0].fake.dim():
        return None
    position, taken = keys[found], everything
    if _by_data(position):
        size = args[0].fake.shape[sum(not is_none(key) for key in keys[:found])]
        start = _bound(tx, position, size)
        taken = SliceValue(start, _next(tx, start), Constant(None))
        position = Constant(0)
    rest = [taken if place == found else key for place, key in enumerate(keys)]
    kept: Value = args[0]
    if not all(key is everything for key in rest):
        kept = graph_call(tx, "call_function", operator.getitem, [kept, TupleValue(rest)], {})
    dim = sum(isinstance(key, SliceValue) or is_none(key) for key in rest[:found])
    if isinstance(position, TensorValue):
        picked = _pick(tx, kept, dim, position)
        return _by_number(tx, name, args[0], keys, found) if picked is None else picked
    try:
        return graph_call(tx, "call_method", "select", [kept, Constant(dim), position], {})
    except UserError:
        return None  # a place that there is not: what reads by a key has words of its own


def _separately(
    tx: Tracer, name: str, tensor: Value, keys: list[Value], everything: Value
) -> Value | None:
    """`x[mask, t]` as `x[:, t][mask]`, which is how torch reads a tensor of one integer."""
    for place, key in enumerate(keys):
        if isinstance(key, TensorValue) and _is_plain_key(key) and _is_open(tx, key):
            before = [everything] * sum(map(dimensions_of, keys[:place]))
            chosen = select(tx, name, [tensor, TupleValue([*before, key])], {})
            rest = TupleValue([*keys[:place], *keys[place + 1 :]])
            if chosen is not None:
                return graph_call(tx, "call_function", operator.getitem, [chosen, rest], {})
    return None


def _by_number(tx: Tracer, name: str, tensor: Value, keys: list[Value], place: int) -> Value | None:
    """The same with the number that is read of a tensor among the keys."""
    position = keys[place]
    if not isinstance(position, TensorValue) or not _may_be_read(tx):
        return None
    keys[place] = read_position(tx, position)
    return select(tx, name, [tensor, TupleValue(keys)], {})


def _may_be_read(tx: Tracer) -> bool:
    return tx.data_sizes() and tx.graph is tx.graph.outermost


def within_size(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`x[m:n]`, where m, n or the size depends on data, by bounds from the beginning: that 0 <= m
    <= n <= size is checked in the graph. A call where it is not so runs eagerly, as Python counts
    from the end there, and cuts off."""
    given = args[1].parts() if isinstance(args[1], TupleValue) else [args[1]]
    if not isinstance(args[0], TensorValue):
        return None
    sizes = args[0].fake.shape
    keys = [_read_bounds(tx, key) if isinstance(key, SliceValue) else key for key in given]
    if not compat.data_expressions(sizes) and not any(map(_has_data_bound, keys)):
        return None
    placed = [
        _from_beginning(tx, key, sizes[dim])
        if isinstance(key, SliceValue) and dim < len(sizes)
        else key
        for key, dim in zip(keys, _dimensions(keys, len(sizes)), strict=True)
    ]
    if any(new is not old for new, old in zip(placed, given, strict=True)):
        fn = getattr(operator, name)
        return graph_call(tx, "call_function", fn, [args[0], TupleValue(placed), *args[2:]], kwargs)
    for key, dim in zip(keys, _dimensions(keys, len(sizes)), strict=True):
        if isinstance(key, SliceValue) and _has_data_bound(key) and dim < len(sizes):
            ends = [
                none
                if is_none(bound)
                else bound.number
                if isinstance(bound, SymbolValue)
                else bound.as_python()
                for bound, none in zip(key.bounds, (0, sizes[dim]))
            ]
            for low, high in combinations([0, *ends, sizes[dim]], 2):  # each is to be known
                condition = low <= high
                if not isinstance(condition, torch.SymBool):
                    continue
                within = symbol_value(tx, condition)
                if not is_known(within):
                    require_number(tx, within, f"a slice of [{low}:{high}]")
    return None


def _read_bounds(tx: Tracer, key: SliceValue) -> SliceValue:
    """A slice with numbers where its bounds are tensors of one integer, as Python reads them."""
    bounds = [
        read_position(tx, bound)
        if isinstance(bound, TensorValue) and _is_integer(bound.fake) and tx.data_sizes()
        else bound
        for bound in key.bounds
    ]
    if all(map(operator.is_, bounds, key.bounds)):
        return key
    low, high, step = bounds
    return SliceValue(low, high, step)


def _is_integer(fake: torch.Tensor) -> bool:
    plain = not fake.is_floating_point() and not fake.is_complex() and fake.dtype != torch.bool
    return plain and fake.numel() == 1


def _dimensions(keys: Sequence[Value], rank: int) -> Iterator[int]:
    """The first dimension that each key of an indexing is of."""
    dim = 0
    for place, key in enumerate(keys):
        yield dim
        dim += dimensions_of(key)
        if is_ellipsis(key):
            dim = rank - sum(map(dimensions_of, keys[place + 1 :]))


def _from_beginning(tx: Tracer, key: SliceValue, size: Any) -> SliceValue:
    """A slice with no bound that counts from the end, and none beyond it, where data decides that;
    itself where that changes nothing."""
    low, high, step = key.bounds
    first, last = _bound(tx, low, size), _bound(tx, high, size)
    return key if first is low and last is high else SliceValue(first, last, step)


def _bound(tx: Tracer, bound: Value, size: Any) -> Value:
    if isinstance(bound, SymbolValue):
        # `x[-n:]`, for n = 0 all of it
        if bound.by_data and bound.cls is int and compat.is_negated(bound.number):
            if require_number(tx, symbol_value(tx, bound.number < 0), f"a bound of {bound.number}"):
                return symbol_value(tx, size + bound.number)
        return bound
    if not compat.own_data_symbols(size) or bound.cls is not int:
        return bound
    number = bound.as_python()
    enough = symbol_value(tx, size >= abs(number))
    if is_known(enough) or (
        abs(number) == 1 and require_number(tx, enough, f"a slice that leaves one of {size}")
    ):
        return symbol_value(tx, size + number) if number < 0 else bound
    there = symbol_value(tx, size + number) if number < 0 else bound
    end = Constant(0) if number < 0 else symbol_value(tx, size)
    found = selected(tx, enough, there, end)
    if not isinstance(found, SymbolValue):
        return bound
    for low, high in ((0, found.number), (found.number, size)):
        require_number(tx, symbol_value(tx, low <= high), f"a bound of {bound.describe()}", True)
    return found


def as_many_as_selected(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> None:
    """`x[key] = values`, where data decides how many values there are. Rule: they are as many as
    the key selects, by the same count, or by one that the graph checks to be equal; else one may be
    repeated for all, and the graph ends."""
    given = dict(zip(("self", "indices", "values"), args)) | dict(kwargs)
    target, key, values = (given.get(each) for each in ("self", "indices", "values"))
    if not isinstance(values, TensorValue) or not isinstance(target, TensorValue) or key is None:
        return
    keys = key.parts() if isinstance(key, SequenceValue) else [key]
    counts = compat.data_expressions(target.fake.shape)
    for each in keys:
        if isinstance(each, TensorValue):
            counts |= compat.data_expressions(each.fake.shape)
            counts |= compat.data_expressions([compat.count_of(each.fake)])
        elif isinstance(each, SliceValue) and _has_data_bound(each):
            return  # a copy to a view, which compares the sizes
    others = [n for n in values.fake.shape if compat.data_expressions([n]) - counts]
    masks = [x for x in keys if isinstance(x, TensorValue) and x.fake.dtype == torch.bool]
    if len(others) == len(masks) == 1 and compat.count_of(masks[0].fake) is None:
        places = graph_call(tx, "call_method", "nonzero", [masks[0]], {})
        if isinstance(places, TensorValue):
            same = symbol_value(tx, places.fake.shape[0] == others[0])
            if require_number(tx, same, f"{name} of as many values as a key selects"):
                return
    indices = [x.fake.shape for x in keys if isinstance(x, TensorValue)]
    if not masks and len(indices) == len(keys) <= target.fake.dim():
        selected_shape = (*torch.broadcast_shapes(*indices), *target.fake.shape[len(keys) :])
        if _checked_equal(tx, name, values.fake.shape, selected_shape):
            return
    _same_counts(name, compat.data_expressions(values.fake.shape), counts)


def _checked_equal(tx: Tracer, name: str, shape: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether the graph checks of each size that data decides that it is the one that is wanted,
    counted from the last."""
    pairs = list(zip(reversed(shape), reversed(wanted)))
    return len(shape) <= len(wanted) and all(
        require_number(tx, symbol_value(tx, one == other), f"{name} of as many values as places")
        for one, other in pairs
        if isinstance(one, torch.SymInt)
        and compat.data_expressions([one]) - compat.data_expressions([other])
        and not is_known(symbol_value(tx, one == other))
    )


#: they read as much of their source as there are places, whatever that is
SCATTERS = ("scatter", "scatter_add", "scatter_reduce")


def as_many_as_places(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> None:
    """`x.scatter(dim, index, source)`: by the same counts, or the graph ends."""
    given = dict(zip(("self", "dim", "index", "src"), args)) | dict(kwargs)
    index, source = given.get("index"), given.get("src")
    if isinstance(index, TensorValue) and isinstance(source, TensorValue):
        one, other = (compat.data_expressions(each.fake.shape) for each in (index, source))
        if not _checked_equal(tx, name, source.fake.shape, index.fake.shape):
            _same_counts(name, one ^ other, set())


def _same_counts(name: str, found: set[Any], known: set[Any]) -> None:
    if found - known:
        other = ", ".join(sorted(map(str, found - known)))
        raise Break("FB0004", f"{name} of as many values as {other}, which is another count")


def _by_data(value: Value) -> bool:
    return isinstance(value, SymbolValue) and value.by_data and value.cls is int


def _has_data_bound(key: Value) -> bool:
    return isinstance(key, SliceValue) and any(map(_by_data, key.bounds[:2]))


def assign(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`x[:, n] = v` as `x[:, :].select(1, n).copy_(v)`, where n is an open integer."""
    if len(args) != 3:
        return None
    key, value = args[1], args[2]
    keys = list(key.parts()) if isinstance(key, TupleValue) else [key]
    is_tensor = isinstance(value, TensorValue)
    is_number = isinstance(value, Constant) and value.cls in (int, float, bool)
    if not (is_tensor or is_number):
        return None
    for n, one in enumerate(keys):
        if isinstance(one, TensorValue):
            if not _is_plain_key(one) or not _may_be_read(tx) or not _is_open(tx, one):
                return None
            keys[n] = read_position(tx, one)
    place = select(tx, name, [args[0], TupleValue(keys)], {})
    if not isinstance(place, TensorValue):
        return None
    while isinstance(value, TensorValue) and value.fake.dim() > place.fake.dim():
        if not isinstance(value.fake.shape[0], int) or value.fake.shape[0] != 1:
            return None
        # an assignment drops leading dimensions of size 1, a copy does not
        value = _op(tx, "select", value, Constant(0), Constant(0))
    _op(tx, "copy_" if is_tensor else "fill_", place, value)
    return Constant(None)


def _pick(tx: Tracer, tensor: Value, dim: int, index: Value) -> Value | None:
    """A copy in place of eager's view, which may not be written to or leave the graph."""
    if tx.graph is not tx.graph.outermost or not isinstance(tensor, TensorValue):
        return None
    if tensor.fake.select(dim, 0).stride() != tensor.fake.select(dim, 0).contiguous().stride():
        return None  # the copy would not be laid out as the view is
    keys = ListValue([*(Constant(None) for _ in range(dim)), index])
    made = tensor_call(tx, "call_function", compat.index_operator(), [tensor, keys])
    report = BreakReport(REASONS["FB0002"], "x[i] of a tensor i", tx.user_lines())
    version = version_of(tensor.fake)
    copied = CopiedTensor(made.fake, tensor.fake, 0, version, tx.step(), report)
    tx.graph.copied.append(copied)
    return made


def _next(tx: Tracer, position: Value) -> Value:
    number = position.number if isinstance(position, SymbolValue) else position.as_python()
    return symbol_value(tx, number + 1)


def _is_open(tx: Tracer, key: Value) -> bool:
    if isinstance(key, TensorValue):
        return tx.tensor_rules.known_data(tx, key) is None
    return isinstance(key, SymbolValue) and key.cls is int


def _is_plain_key(key: Value) -> bool:
    if isinstance(key, TensorValue):
        return key.fake.dim() == 0 and key.fake.dtype in (torch.int64, torch.int32)
    known = isinstance(key, Constant) and (key.cls is int or is_none(key))
    return known or isinstance(key, SliceValue)
