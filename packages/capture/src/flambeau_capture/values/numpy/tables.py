"""Table of NumPy functions and their torch equivalents.

In: nothing. Out: tables by NumPy's names. Invariant: a row computes what NumPy computes for
booleans, integers and floating-point numbers of every sign, infinities and NaN included; dtypes
and shapes are not its business (see `array_functions`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, Kwargs, Value, needing
from flambeau_capture.values.constant import constant_of, is_none
from flambeau_capture.values.containers.sequences import SequenceValue, TupleValue

if TYPE_CHECKING:
    from flambeau_capture.values.numpy.functions import TorchEquivalent

Give = Callable[["TorchEquivalent", Args, Kwargs], Value]

# universal functions: operands are tensors of the dtype that NumPy computes in
BY_ELEMENT: dict[str, Any] = {
    "add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div,
    "floor_divide": torch.floor_divide, "remainder": torch.remainder, "power": torch.pow,
    "fmod": torch.fmod, "negative": torch.neg, "positive": torch.clone, "absolute": torch.abs,
    "fabs": torch.abs, "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1,
    "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p,
    "sqrt": torch.sqrt, "square": torch.square, "reciprocal": torch.reciprocal,
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "arcsin": torch.asin,
    "arccos": torch.acos, "arctan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh,
    "tanh": torch.tanh, "arcsinh": torch.asinh, "arccosh": torch.acosh, "arctanh": torch.atanh,
    "arctan2": torch.atan2, "hypot": torch.hypot, "logaddexp": torch.logaddexp,
    "maximum": torch.maximum, "minimum": torch.minimum, "fmax": torch.fmax, "fmin": torch.fmin,
    "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc, "rint": torch.round,
    "isnan": torch.isnan, "isinf": torch.isinf, "isfinite": torch.isfinite,
    "signbit": torch.signbit, "copysign": torch.copysign, "deg2rad": torch.deg2rad,
    "rad2deg": torch.rad2deg, "radians": torch.deg2rad, "degrees": torch.rad2deg,
    "greater": torch.gt, "greater_equal": torch.ge, "less": torch.lt, "less_equal": torch.le,
    "equal": torch.eq, "not_equal": torch.ne, "logical_and": torch.logical_and,
    "logical_or": torch.logical_or, "logical_xor": torch.logical_xor,
    "logical_not": torch.logical_not, "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or, "bitwise_xor": torch.bitwise_xor,
    "invert": torch.bitwise_not,
}  # fmt: skip
# division by zero and negative powers of integers: torch raises, NumPy does not, or the reverse
NOT_FOR_INTEGERS = frozenset({"floor_divide", "remainder", "power", "fmod", "reciprocal"})

# functions whose result is known if their arguments are
MADE_KNOWN = frozenset(
    {
        "array", "asarray", "arange", "zeros", "ones", "full", "empty_like", "zeros_like",
        "ones_like", "full_like", "eye", "identity", "linspace", "logspace", "geomspace",
        "meshgrid", "diag", "tri", "indices", "prod", "sum", "isscalar", "result_type",
        "promote_types", "can_cast", "broadcast_shapes", "shape", "ndim", "size", "median",
        "percentile", "quantile", "unique", "cumsum", "array_equal", "allclose", "isclose",
        "histogram", "digitize", "searchsorted", "interp", "finfo", "iinfo", "hanning", "hamming",
        "blackman", "kaiser", "bartlett", "argsort", "nonzero", "unravel_index", "round",
        "average", "convolve", "polyval", "polyfit", "triu_indices", "tril_indices",
        "ascontiguousarray",
    }
)  # fmt: skip


def _row(give: Callable[..., Value]) -> Callable[..., Give]:
    """What makes a row: `give` with its first arguments, or options."""
    return functools.partial(functools.partial, give)


def _given(args: Args, kwargs: Kwargs, *names: str) -> dict[str, Any]:
    """Arguments after the first by name, as constants; a break for a name not listed."""
    found = dict(zip(names, args[1:])) | dict(kwargs)
    if set(found) - set(names) or len(args) - 1 > len(names):
        raise Break("FB0003", f"a call of NumPy with {', '.join(sorted(found))}")
    with needing("FB0003", lambda error: f"a call of NumPy with {error}"):
        return {name: value.as_python() for name, value in found.items()}


@_row
def _reduction(
    target: Any, torch_: TorchEquivalent, args: Args, kwargs: Kwargs, summing: bool = False
) -> Value:
    given = _given(args, kwargs, "axis", "dtype", "out", "keepdims")
    tensor: Value = torch_.operand(args[0])
    axis, keep = given.get("axis"), bool(given.get("keepdims", False))
    if given.get("out") is not None or (given.get("dtype") is not None and not summing):
        raise Break("FB0003", "a reduction of NumPy with out or dtype")
    if summing:
        tensor = torch_.cast(tensor, torch_.dtype())
    if axis is None:
        axis = tuple(range(torch_.rank(tensor)))
    if axis == ():
        return torch_.call("clone", tensor)
    return torch_.call(target, tensor, axis, keep)


@_row
def _spread(target: Any, torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    given = _given(args, kwargs, "axis", "dtype", "out", "ddof", "keepdims")
    tensor = torch_.cast(torch_.operand(args[0]), torch_.dtype())
    if given.get("out") is not None or given.get("dtype") is not None:
        raise Break("FB0003", "std or var of NumPy with out or dtype")
    axis, keep = given.get("axis"), bool(given.get("keepdims", False))
    return torch_.call(target, tensor, axis, correction=given.get("ddof", 0), keepdim=keep)


@_row
def _position(target: Any, torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    given = _given(args, kwargs, "axis")
    return torch_.call(target, torch_.operand(args[0]), given.get("axis"))


@_row
def _running(target: Any, torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    axis = _given(args, kwargs, "axis").get("axis")
    tensor = torch_.cast(torch_.operand(args[0]), torch_.dtype())
    if axis is None:
        tensor, axis = torch_.call("reshape", tensor, -1), 0
    return torch_.call(target, tensor, axis)


def _one_product(torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    given = _given(args, kwargs, "axis", "dtype", "out", "keepdims")
    tensor = torch_.cast(torch_.operand(args[0]), torch_.dtype())
    if given.get("out") is not None or isinstance(given.get("axis"), tuple):
        raise Break("FB0003", "prod of NumPy with out or several axes")
    if given.get("axis") is not None:
        return torch_.call(torch.prod, tensor, given["axis"], bool(given.get("keepdims", False)))
    if given.get("keepdims"):
        raise Break("FB0003", "prod of NumPy with keepdims")
    return torch_.call(torch.prod, tensor)


@_row
def _joined(target: Any, torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    axis = _given(args, kwargs, "axis").get("axis", 0)
    if not isinstance(args[0], SequenceValue) or axis is None:
        raise Break("FB0003", "arrays joined along no axis")
    parts = TupleValue(torch_.common(args[0].parts()))
    return torch_.call(target, parts, axis)


def by_shape(torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    """Whatever the arguments were, NumPy has said which shape it comes to (in C order)."""
    if "order" in kwargs or not hasattr(torch_.expected, "shape"):
        raise Break("FB0003", "a shape in another order, or several")
    return torch_.call("reshape", torch_.operand(args[0]), tuple(torch_.expected.shape))


def _transposed(torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    with needing("FB0003", lambda error: f"a transposition by {error}"):
        given = [value.as_python() for value in [*args[1:], *kwargs.values()]]
    axes = given[0] if len(given) == 1 and not isinstance(given[0], int) else tuple(given)
    tensor = torch_.operand(args[0])
    if not axes:
        axes = tuple(reversed(range(torch_.rank(tensor))))
    return torch_.call("permute", tensor, tuple(axes))


@_row
def _plainly(
    target: Any, names: tuple[str, ...], torch_: TorchEquivalent, args: Args, kwargs: Kwargs
) -> Value:
    """The same positional arguments in both libraries."""
    given = _given(args, kwargs, *names)
    if list(given) != list(names)[: len(given)]:
        raise Break("FB0003", f"a call of NumPy with {', '.join(given)}")
    return torch_.call(target, torch_.operand(args[0]), *given.values())


def _cast_to(torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 2 or set(kwargs) - {"copy"}:
        raise Break("FB0003", "astype with more than a dtype")
    tensor = torch_.operand(args[0])
    return torch_.call("to", tensor, torch_.dtype(), copy=True)


@_row
def _products(target: Any, torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 2 or kwargs:
        raise Break("FB0003", "a product of NumPy with out")
    return torch_.call(target, *torch_.common(args))


def _dot(torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 2 or kwargs:
        raise Break("FB0003", "numpy.dot with out")
    left, right = torch_.common(args)
    scalars = not torch_.rank(left) or not torch_.rank(right)
    if torch_.rank(right) > 2:
        raise Break("FB0003", "numpy.dot of more than two dimensions")
    return torch_.call(torch.mul if scalars else torch.matmul, left, right)


def _chosen(torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 3 or kwargs:
        raise Break("FB0004", "numpy.where of a condition alone")
    condition = torch_.cast(torch_.operand(args[0]), torch.bool)
    return torch_.call(torch.where, condition, *torch_.common(args[1:]))


def _clipped(torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("a", "a_min", "a_max"), args)) | dict(kwargs)
    low, high = given.get("a_min", given.get("min")), given.get("a_max", given.get("max"))
    if set(given) - {"a", "a_min", "a_max", "min", "max"}:
        raise Break("FB0003", "numpy.clip with out")
    (found,) = torch_.common([given["a"]])
    for bound, target in ((low, torch.maximum), (high, torch.minimum)):
        if bound is not None and not is_none(bound):
            found = torch_.call(target, found, *torch_.common([bound]))
    return found


@_row
def _filled(value: Any, torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    if value is None and len(args) < 2:
        raise Break("FB0003", "a filling value by name")
    number = constant_of(args[1]) if value is None else value
    number = number.item() if hasattr(number, "item") else number
    shape = tuple(torch_.expected.shape)
    return torch_.call(torch.full, shape, number, dtype=torch_.dtype())


def _sorted(torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    axis = _given(args, kwargs, "axis").get("axis", -1)
    tensor: Value = torch_.operand(args[0])
    if axis is None:
        tensor, axis = torch_.call("reshape", tensor, -1), 0
    values: Any = torch_.call(torch.sort, tensor, axis)
    return values.parts()[0]  # type: ignore[no-any-return]


def _einsum(torch_: TorchEquivalent, args: Args, kwargs: Kwargs) -> Value:
    if kwargs:
        raise Break("FB0003", "numpy.einsum with options")
    return torch_.call(torch.einsum, args[0], *torch_.common(args[1:]))


REDUCTIONS: dict[str, Give] = {
    "sum": _reduction(torch.sum, summing=True), "mean": _reduction(torch.mean, summing=True),
    "max": _reduction(torch.amax), "amax": _reduction(torch.amax),
    "min": _reduction(torch.amin), "amin": _reduction(torch.amin),
    "any": _reduction(torch.any), "all": _reduction(torch.all),
    "std": _spread(torch.std), "var": _spread(torch.var), "prod": _one_product,
    "argmax": _position(torch.argmax), "argmin": _position(torch.argmin),
    "cumsum": _running(torch.cumsum), "cumprod": _running(torch.cumprod),
}  # fmt: skip

METHODS: dict[str, Give] = {
    "reshape": by_shape, "ravel": by_shape, "squeeze": by_shape,
    "flatten": lambda torch_, args, kwargs: torch_.call("clone", by_shape(torch_, args, kwargs)),
    "transpose": _transposed, "astype": _cast_to,
    "swapaxes": _plainly("swapaxes", ("axis1", "axis2")),
}  # fmt: skip

OTHERS: dict[str, Give] = {
    **REDUCTIONS,
    "reshape": by_shape, "ravel": by_shape, "squeeze": by_shape, "expand_dims": by_shape,
    "atleast_1d": by_shape, "atleast_2d": by_shape, "transpose": _transposed,
    "swapaxes": _plainly("swapaxes", ("axis1", "axis2")),
    "moveaxis": _plainly("moveaxis", ("source", "destination")),
    "concatenate": _joined(torch.cat), "stack": _joined(torch.stack),
    "flip": _plainly("flip", ("axis",)), "tril": _plainly(torch.tril, ("k",)),
    "triu": _plainly(torch.triu, ("k",)), "broadcast_to": _plainly("expand", ("shape",)),
    "matmul": _products(torch.matmul), "dot": _dot, "outer": _products(torch.outer),
    "where": _chosen, "clip": _clipped, "zeros_like": _filled(0), "ones_like": _filled(1),
    "full_like": _filled(None), "sort": _sorted, "einsum": _einsum,
}  # fmt: skip
