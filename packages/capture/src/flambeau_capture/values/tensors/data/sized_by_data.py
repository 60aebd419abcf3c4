"""Functions that take no symbolic sizes, of sizes and numbers that depend on data.

In: such a call. Out: the same by functions that take them; None where data decides nothing, and the
call is torch's own. Invariant: what torch's own refuses, the graph does, or the program runs
eagerly there.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Mapping
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.graph.functions import NotInGeneral
from flambeau_capture.polyfills import packing, sized
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import SequenceValue, SliceValue, TupleValue
from flambeau_capture.values.tensors.graph_calls import check_all, graph_call, tensor_call
from flambeau_capture.values.tensors.numbers.data_numbers import (
    MOST_TURNS,
    checked,
    is_by_data,
    read_number,
)
from flambeau_capture.values.tensors.symbolic_numbers import (
    SymbolValue,
    open_numbers,
    symbol_operator,
    symbol_value,
)
from flambeau_capture.values.tensors.tensor import TensorValue

_ZERO = Constant(0)


#: functions of sizes alone, and of sizes after a tensor
OF_SIZES: Mapping[str, Any] = {
    "zeros": torch.zeros,
    "ones": torch.ones,
    "empty": torch.empty,
    "full": torch.full,
}
SIZES_AFTER = tuple(f"new_{name}" for name in OF_SIZES) + ("expand", "view", "reshape", "repeat")


def sizes(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """A size that is given as a tensor is the number that is read of it."""
    if not tx.data_sizes():
        return None
    kept = [args[0]] if name in SIZES_AFTER else []
    given = [_as_size(tx, each) for each in args[len(kept) :]]
    if all(map(operator.is_, given, args[len(kept) :])):
        return None
    if name in SIZES_AFTER:
        return graph_call(tx, "call_method", name, [*kept, *given], kwargs)
    return graph_call(tx, "call_function", OF_SIZES[name], given, kwargs)


def _as_size(tx: Tracer, value: Value) -> Value:
    if isinstance(value, TensorValue):
        whole = not value.fake.dtype.is_floating_point and not value.fake.dtype.is_complex
        counts = whole and value.fake.dtype is not torch.bool and value.fake.dim() == 0
        return read_number(tx, value) if counts else value
    if not isinstance(value, ListValue | TupleValue):
        return value
    parts = list(value.parts())
    found = [_as_size(tx, part) for part in parts]
    return value if all(map(operator.is_, parts, found)) else TupleValue(found)


def one_hot(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`one_hot(y)` counts the classes, where data is not known before."""
    given = dict(zip(("input", "num_classes"), args)) | dict(kwargs)
    y, classes = given.get("input"), given.get("num_classes", Constant(-1))
    if not isinstance(y, TensorValue) or y.fake.dtype != torch.int64 or not tx.data_sizes():
        return None
    if type(classes) is not Constant or classes.value != -1:
        return None
    fn = torch.nn.functional.one_hot
    known = tx.tensor_rules.by_data(tx, "call_function", fn, [y], {}, False)
    if known is not None:
        return known
    largest = read_number(tx, tensor_call(tx, "call_method", "max", [y]))
    counted = symbol_operator(tx, "+", largest, Constant(1))
    if counted is None or not checked(tx, ">=", largest, "one_hot of negative numbers"):
        return None
    return tx.call_python(sized.one_hot, [y, counted])


def bincount(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`bincount(x, minlength=n)` where data decides n: as if no number were beyond, which the graph
    checks."""
    given = dict(zip(("self", "weights", "minlength"), args)) | dict(kwargs)
    x, least = given.get("self"), given.get("minlength", _ZERO)
    if not isinstance(x, TensorValue) or x.fake.dim() != 1 or x.fake.dtype != torch.int64:
        return None
    if not is_by_data(least) or "weights" in given or not tx.answers_in_general():
        return None
    if not checked(tx, ">=", least, "bincount of a negative length"):
        return None
    for fn, bound in ((operator.ge, _ZERO), (operator.lt, least)):
        words = ("bincount of a number that is none of those named",)
        check_all(tx, tensor_call(tx, "call_function", fn, [x, bound]), NotInGeneral, words)
    sizes = TupleValue([least])
    zeros = graph_call(tx, "call_method", "new_zeros", [x, sizes], {})
    ones = tensor_call(tx, "call_function", torch.ones_like, [x])
    return tensor_call(tx, "call_method", "index_add", [zeros, _ZERO, x, ones])


def pad(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """By numbers that data decides nothing is cut off, in general, which decompositions query."""
    given = dict(zip(("input", "pad"), args)) | dict(kwargs)
    amounts = given.get("pad")
    for amount in amounts.parts() if isinstance(amounts, SequenceValue) else []:
        if is_by_data(amount) and tx.answers_in_general():
            checked(tx, ">=", amount, "a pad that cuts off")
    return None


#: factors, and parts of one, below which a product with a size is exact
_LARGEST_FACTOR = 2**20


def interpolate(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`scale_factor=n` by an integer that data decides: to sizes that are as many times larger,
    which kernels compute with the same quotient. By a factor of open sizes, too: to sizes in whole
    numbers, which guards can say."""
    names = "input", "size", "scale_factor"
    given = dict(zip(names, args)) | dict(kwargs)
    x, factor = given.pop("input", None), given.pop("scale_factor", None)
    if not isinstance(x, TensorValue) or factor is None or len(args) > len(names):
        return None
    size, constant = given.pop("size", None), type(factor) is Constant
    recomputed = given.pop("recompute_scale_factor", Constant(None)).as_python()
    times, parts = factor, 1
    if constant:
        plain = factor.cls in (int, float) and (size is None or is_none(size))
        if not plain or not _is_open(x) or not 0 < factor.as_python() < _LARGEST_FACTOR:
            return None
        count, parts = float(factor.as_python()).as_integer_ratio()
        if parts >= _LARGEST_FACTOR:
            return None
        times = Constant(count)
    elif not isinstance(factor, SymbolValue) or factor.cls is not int:
        return None
    if is_by_data(factor) and not checked(tx, ">", factor, "a scale"):
        return None
    found: list[Value] = []
    for each in x.fake.shape[2:]:
        larger = symbol_operator(tx, "*", symbol_value(tx, each), times)
        divided = None if larger is None else symbol_operator(tx, "//", larger, Constant(parts))
        if divided is None:
            return None
        found.append(divided)
    mode = given.get("mode", Constant("nearest")).as_python()
    if not constant or recomputed or mode == "area":
        fn = torch.nn.functional.interpolate
        return graph_call(tx, "call_function", fn, [x, ListValue(found)], given)
    aligned = given.get("align_corners", Constant(None)).as_python()
    wide = given.get("antialias", Constant(False)).as_python()
    resampled = _RESAMPLED.get((mode, len(found)))
    wide = wide or torch.are_deterministic_algorithms_enabled()  # which has other formulas
    if resampled is None or wide or (mode in _NEAREST and aligned is not None):
        return None
    rest = [] if mode in _NEAREST else [Constant(bool(aligned))]
    factors = [Constant(float(factor.as_python()))] * len(found)
    return graph_call(tx, "call_function", resampled, [x, ListValue(found), *rest, *factors], {})


_NEAREST = {"nearest": "upsample_nearest", "nearest-exact": "_upsample_nearest_exact"}
#: by mode and number of sides
_RESAMPLED: Mapping[tuple[str, int], Any] = {
    **{
        (mode, sides): getattr(torch.ops.aten, f"{name}{sides}d").default
        for mode, name in _NEAREST.items()
        for sides in (1, 2, 3)
    },
    ("linear", 1): torch.ops.aten.upsample_linear1d.default,
    ("bilinear", 2): torch.ops.aten.upsample_bilinear2d.default,
    ("bicubic", 2): torch.ops.aten.upsample_bicubic2d.default,
    ("trilinear", 3): torch.ops.aten.upsample_trilinear3d.default,
}


def pad_sequence(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """Rows are joined to each up to the longest, and all are stacked."""
    names = "sequences", "batch_first", "padding_value", "padding_side"
    given = dict(zip(names, args)) | dict(kwargs)
    parts = given["sequences"].parts() if isinstance(given["sequences"], SequenceValue) else []
    fakes = [part.fake for part in parts if isinstance(part, TensorValue)]
    if not fakes or len(fakes) < len(parts) or not all(fake.dim() for fake in fakes):
        return None
    if not any(isinstance(fake.shape[0], torch.SymInt) for fake in fakes):
        return None
    longest = fakes[0].shape[0]
    for fake in fakes[1:]:
        longest = torch.sym_max(longest, fake.shape[0])
    value, first = given.get("padding_value", Constant(0.0)), given.get("batch_first")
    before = given["padding_side"].as_python() == "left" if "padding_side" in given else False
    padded: list[Value] = []
    for part, fake in zip(parts, fakes, strict=True):
        sizes = [symbol_value(tx, longest - fake.shape[0]), *map(Constant, fakes[0].shape[1:])]
        more = graph_call(tx, "call_method", "new_full", [part, TupleValue(sizes), value], {})
        both = ListValue([more, part] if before else [part, more])
        padded.append(graph_call(tx, "call_function", torch.cat, [both], {}))
    dim = Constant(0 if first is not None and first.truth(tx) else 1)
    return graph_call(tx, "call_function", torch.stack, [ListValue(padded), dim], {})


def tensor_split(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """By a tensor of places: at the numbers that are read of it, which slices check."""
    names = "input", "tensor_indices_or_sections", "dim"
    given = dict(zip(names, args)) | dict(kwargs)
    x, at = given.get("input"), given.get("tensor_indices_or_sections", given.get("indices"))
    if not isinstance(x, TensorValue) or not isinstance(at, TensorValue) or at.fake.dim() != 1:
        return None
    count = at.fake.shape[0]
    if not isinstance(count, int) or count > MOST_TURNS or not tx.data_sizes():
        return None
    if at.fake.dtype != torch.int64 or at.fake.device.type != "cpu":
        return None  # eager refuses it
    return tx.call_python(packing.tensor_split, [x, at, given.get("dim", _ZERO)])


def narrow(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """From a place that data decides: a slice, whose bounds the graph checks."""
    given = dict(zip(("input", "dim", "start", "length"), args)) | dict(kwargs)
    x, dim, length = given.get("input"), given.get("dim"), given.get("length")
    if not isinstance(x, TensorValue) or type(dim) is not Constant or length is None:
        return None
    start = _as_size(tx, given["start"]) if tx.data_sizes() else given["start"]
    if (not is_by_data(start) and not is_by_data(length)) or not x.fake.dim():
        return None
    end = symbol_operator(tx, "+", start, length)
    if end is None or not checked(tx, ">=", start, "narrow from a negative place"):
        return None
    everything = SliceValue(Constant(None), Constant(None), Constant(None))
    keys = [everything] * (dim.value % x.fake.dim())
    taken = TupleValue([*keys, SliceValue(start, end, Constant(None))])
    return graph_call(tx, "call_function", operator.getitem, [x, taken], {})


def cdist(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """The operator that it calls once it has looked at the sizes."""
    given = dict(zip(("x1", "x2", "p", "compute_mode"), args)) | dict(kwargs)
    tensors = [given.get("x1"), given.get("x2")]
    sizes = [n for x in tensors if isinstance(x, TensorValue) for n in x.fake.shape]
    if not compat.data_expressions(sizes) or len(tensors) != 2:
        return None
    modes = "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist"
    mode = given.get("compute_mode", Constant(modes[0])).as_python()
    number = modes.index(mode) if mode in modes else 2
    norm = Constant(float(given.get("p", Constant(2.0)).as_python()))
    fn = torch.ops.aten._cdist_forward.default
    operands: list[Any] = [*tensors, norm, Constant(number)]
    return graph_call(tx, "call_function", fn, operands, {})


#: pools over a window, and over as many windows as there are results
POOLS: Mapping[str, Any] = {
    f"{kind}_pool{dims}d": getattr(torch.nn.functional, f"adaptive_{kind}_pool{dims}d")
    for kind in ("avg", "max")
    for dims in (1, 2, 3)
}


def whole_pool(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """A pool whose window is all there is, of open size: one result."""
    given = dict(zip(("input", "kernel_size", "stride", "padding"), args)) | dict(kwargs)
    x, window = given.get("input"), given.get("kernel_size")
    only = {"input", "kernel_size", "stride", "ceil_mode", "count_include_pad"}
    if not isinstance(x, TensorValue) or window is None or given.keys() - only or len(args) > 3:
        return None
    dims = int(name[-2])
    sides = list(window.parts()) if isinstance(window, SequenceValue) else [window] * dims
    if len(sides) != dims or not open_numbers(sides) or x.fake.dim() <= dims:
        return None
    for side, size in zip(sides, x.fake.shape[-dims:], strict=True):
        number = side.number if isinstance(side, SymbolValue) else side.as_python()
        if compat.known_condition(number == size) is not True:
            return None
    return tx.call_python(POOLS[name], [x, Constant(1)])


_POOL = ("input", "kernel_size", "stride", "padding")
_WORDS = {"avg": ("ceil_mode", "count_include_pad"), "max": ("dilation", "ceil_mode")}


def pool(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """A pool over windows of open size, or by open steps: of the windows as a last dimension."""
    kind, dims = name[:3], int(name[-2])
    given = dict(zip((*_POOL, *_WORDS[kind]), args)) | dict(kwargs)
    x, window = given.pop("input", None), given.pop("kernel_size", None)
    rounded_up = given.pop("ceil_mode", Constant(False)).truth(tx)
    if rounded_up or window is None or not open_numbers([*args, *kwargs.values()]):
        return None
    padded_counts = given.pop("count_include_pad", Constant(True)).truth(tx)
    sides = {"kernel_size": _sides(window, dims)}
    for each, usual in (("stride", window), ("padding", _ZERO), ("dilation", Constant(1))):
        said = given.pop(each, usual)
        empty = isinstance(said, SequenceValue) and not said.parts()
        sides[each] = _sides(usual if empty or is_none(said) else said, dims)
    if given or not isinstance(x, TensorValue) or any(len(s) != dims for s in sides.values()):
        return None
    if not x.fake.is_contiguous() or not x.fake.is_floating_point() or x.fake.dim() <= dims:
        return None
    padding = sides["padding"]
    none = all(type(each) is Constant and each.value == 0 for each in padding)
    if not padded_counts and not none:
        return None
    parts: list[Value] = [TupleValue(sides["kernel_size"]), TupleValue(sides["stride"])]
    parts += [Constant(None) if none else TupleValue(padding), TupleValue(sides["dilation"])]
    return tx.call_python(sized.pool, [x, *parts, Constant(kind == "max")])


def _sides(value: Value | None, dims: int) -> list[Value]:
    """An argument by dimension; nothing: it is of another kind."""
    parts = list(value.parts()) if isinstance(value, SequenceValue) else [value] * dims
    parts = parts * dims if len(parts) == 1 else parts
    numbers = [each for each in parts if each is not None and each.cls is int]
    return numbers if len(numbers) == len(parts) else []


def group_norm(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """By an open number of groups."""
    names = ("input", "num_groups", "weight", "bias", "eps", "cudnn_enabled")
    given = dict(zip(names, args)) | dict(kwargs)
    x, groups = given.get("input"), given.get("num_groups")
    given.pop("cudnn_enabled", None)
    if not isinstance(x, TensorValue) or groups is None or not open_numbers([groups]):
        return None
    plain = x.fake.dtype in (torch.float32, torch.float64) and x.fake.is_contiguous()
    return tx.call_python(sized.group_norm, [], given) if plain and x.fake.dim() > 1 else None


_SIGNATURES = {name: inspect.signature(form) for name, (form, _) in sized.FORMS.items()}


def of_open_numbers(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """With a number that is open, where torch's own takes a plain one: by what it is made of."""
    form, plain = sized.FORMS[name]
    kwargs = {key: value for key, value in kwargs.items() if not _says_nothing(key, value)}
    try:
        given = _SIGNATURES[name].bind(*args, **kwargs).arguments
    except TypeError:
        return None
    if plain and not any(_is_open(given[each]) for each in plain if each in given):
        return None
    if "dtype" in given and name not in ("tril_indices", "triu_indices"):
        dtype = given["dtype"].as_python()
        if dtype is not None and not dtype.is_floating_point:
            return None
    if name != "istft" and any(map(_is_complex, args)):  # the others compute with real numbers
        return None
    found = tx.call_python(form, args, kwargs)
    return None if isinstance(found, Constant) and found.value is NotImplemented else found


def _is_open(value: Value) -> bool:
    """Whether a number among these is open, or a size of a tensor."""
    if isinstance(value, TensorValue):
        return any(isinstance(size, torch.SymInt) for size in value.fake.shape)
    if isinstance(value, tuple | SequenceValue):
        return any(map(_is_open, value if isinstance(value, tuple) else value.parts()))
    return bool(open_numbers([value]))


#: functions that move pixels, by how much or in windows; adaptive pools, by how many results
MOVES: Mapping[str, Any] = {
    "pixel_shuffle": sized.pixel_shuffle,
    "pixel_unshuffle": sized.pixel_unshuffle,
    "im2col": sized.im2col,
}
ADAPTIVE_MAX = tuple(f"adaptive_max_pool{dims}d" for dims in (1, 2, 3))


def moved(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """By open numbers. Shuffled pictures lie as the given ones, windows always row by row."""
    x = args[0] if args else None
    if not isinstance(x, TensorValue) or x.fake.dim() < 3:
        return None
    windows = name == "im2col"
    if windows and not (x.fake.is_floating_point() and x.fake.dim() <= 4):
        return None
    if not windows and not x.fake.is_contiguous():
        return None
    numbers = open_numbers([*args[1:], *kwargs.values()])
    return tx.call_python(MOVES[name], args, kwargs) if numbers else None


def adaptive_max(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """To an open number of results."""
    given = dict(zip(("input", "output_size", "return_indices"), args)) | dict(kwargs)
    x, size = given.get("input"), given.get("output_size")
    dims = int(name[-2])
    if not isinstance(x, TensorValue) or x.fake.dim() <= dims or not x.fake.is_contiguous():
        return None
    if not x.fake.is_floating_point():
        return None  # which torch refuses
    sides = list(size.parts()) if isinstance(size, SequenceValue) else [size] * dims
    if len(sides) != dims or not open_numbers([each for each in sides if each is not None]):
        return None
    if any(type(each) is Constant and each.cls is not int for each in sides):
        return None  # None: as many as there are
    indices = given.get("return_indices", Constant(False)).truth(tx)
    found = tx.call_python(sized.adaptive_max_pool, [x, TupleValue([*map(_known, sides)])])
    return found if indices else found.get_item(tx, _ZERO)


def _known(value: Value | None) -> Value:
    assert value is not None
    return value


def covariance(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """By sizes, and by weights as the graph checks them: torch reads their sum."""
    given = dict(zip(("input",), args)) | dict(kwargs)
    x, correction = given.get("input"), given.get("correction", Constant(1))
    weights = {each: given[each] for each in given.keys() & {"fweights", "aweights"}}
    known = {"input", "correction", *weights} if name == "cov" else {"input"}
    if not isinstance(x, TensorValue) or len(args) > 1 or given.keys() - known:
        return None
    if not all(is_none(each) or _weighs(key, each) for key, each in weights.items()):
        return None
    if weights and not tx.answers_in_general():
        return None
    if not x.fake.dtype.is_floating_point or not 1 <= x.fake.dim() <= 2:
        return None
    if type(correction) is not Constant or correction.cls is not int:
        return None
    if not x.fake.shape[-1] > correction.value:
        return None  # torch warns of it
    return tx.call_python(sized.cov if name == "cov" else sized.corrcoef, args, kwargs)


def _weighs(key: str, value: Value) -> bool:
    """Whether torch takes a tensor as weights of that kind."""
    return (
        isinstance(value, TensorValue)
        and value.fake.dim() == 1
        and value.fake.dtype.is_floating_point == (key == "aweights")
        and value.fake.dtype != torch.bool
    )


def _says_nothing(key: str, value: Value) -> bool:
    """Whether an argument of a function that makes tensors is as if it was not given."""
    plain = {"layout": torch.strided, "requires_grad": False, "pin_memory": False, "out": None}
    return key in plain and type(value) is Constant and value.value in (plain[key], None)


def _is_complex(value: Value) -> bool:
    if isinstance(value, TensorValue):
        return value.fake.is_complex()
    return type(value) is Constant and isinstance(value.value, complex)


def _are_sizes(value: Value) -> bool:
    """Whether it is the lengths, or the batch sizes, of a packed sequence."""
    if not isinstance(value, TensorValue) or value.fake.dtype != torch.int64:
        return False
    return value.fake.dim() == 1 and value.fake.device.type == "cpu"


def pack(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """By a mask of what is within its sequence."""
    x, lengths, *_ = args
    if not isinstance(x, TensorValue) or not _are_sizes(lengths) or kwargs:
        return None
    return tx.call_python(packing.pack, args) if tx.data_sizes() and x.fake.numel() else None


def pad_packed(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """By the mask of what there is."""
    if not tx.data_sizes() or not _are_sizes(args[1]) or kwargs:
        return None
    return tx.call_python(packing.pad, args)
