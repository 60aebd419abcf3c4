"""NumPy functions as torch functions of the same answer.

In: calls, methods, operators and subscripts of NumPy. Out: arrays. Invariant: NumPy itself says
which dtype and which shape a result has, by the same call on arrays of ones; where torch's result
differs, or there is no function in the tables, it is a graph break. What is known at capture time
is computed by NumPy.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch

from flambeau_capture._torch_compat import same_memory
from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, needing
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.containers.sequences import SequenceValue, SliceValue, TupleValue
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.numpy.arrays import ArrayNumber, ArrayValue, NumpyScalar, scalar_call
from flambeau_capture.values.numpy.error_state import assume_unwatched
from flambeau_capture.values.numpy.tables import (
    BY_ELEMENT,
    MADE_KNOWN,
    METHODS,
    NOT_FOR_INTEGERS,
    OTHERS,
    REDUCTIONS,
    Give,
    by_shape,
)
from flambeau_capture.values.tensors.graph_calls import graph_call, tensor_call
from flambeau_capture.values.tensors.tensor import TensorValue

np: Any = sys.modules["numpy"]  # the program has imported it: capture itself does without

DTYPES: dict[torch.dtype, Any] = {
    torch.bool: np.bool_, torch.uint8: np.uint8, torch.int8: np.int8, torch.int16: np.int16,
    torch.int32: np.int32, torch.int64: np.int64, torch.float32: np.float32,
    torch.float64: np.float64,
}  # fmt: skip
TORCH_DTYPES = {np.dtype(kind): dtype for dtype, kind in DTYPES.items()}


def from_tensor(tx: Tracer, tensor: TensorValue) -> Value:
    """`tensor.numpy()`."""
    fake = tensor.fake
    if fake.dtype not in DTYPES or fake.device.type != "cpu" or fake.requires_grad:
        raise Break("FB0003", f"numpy() of {tensor.describe()}")
    return Array(_unnoticed(tx, tensor))


def to_tensor(tx: Tracer, value: Array) -> TensorValue:
    """`torch.from_numpy(value)`: another tensor over the same memory."""
    return _unnoticed(tx, value.tensor(tx))


def _unnoticed(tx: Tracer, tensor: TensorValue) -> TensorValue:
    """The same memory, of whose writes through NumPy autograd learns as little as it does of
    NumPy's own."""
    return tensor_call(tx, "call_function", getattr, [tensor, Constant("data")])


# -- asking NumPy --------------------------------------------------------------------------------


def _plain(value: Value, tensors: bool = False) -> Any:
    """What stands for an argument in a call of NumPy that is made for the asking; for a tensor an
    array, or with `tensors` a tensor."""
    if isinstance(value, Array | ArrayNumber):
        return value.sample()
    if isinstance(value, TensorValue):
        sample = Array(value).sample()
        if not tensors:
            return sample
        grad, device = value.fake.requires_grad, value.fake.device.type
        one = torch.ones((), dtype=value.fake.dtype, device="cpu" if device == "cpu" else "meta")
        return one.expand(sample.shape).detach().requires_grad_(grad)
    if isinstance(value, SequenceValue):
        return value.cls([_plain(part, tensors) for part in value.parts()])
    if isinstance(value, SliceValue):
        return value.as_slice()
    with needing("FB0003", lambda error: f"NumPy with {error}"):
        return value.as_python()


def _all_plain(
    args: Args, kwargs: Kwargs, tensors: bool = False
) -> tuple[list[Any], dict[str, Any]]:
    named = {key: _plain(arg, tensors) for key, arg in kwargs.items()}
    return [_plain(arg, tensors) for arg in args], named


def _ask(
    tx: Tracer, fn: Callable[..., Any], args: Args, kwargs: Kwargs, tensors: bool = False
) -> Any:
    plain, named = _all_plain(args, kwargs, tensors)
    return _answer(fn, plain, named, "error" if tensors else "ignore")


def _answer(
    fn: Callable[..., Any],
    plain: list[Any],
    named: dict[str, Any],
    warn: Literal["error", "ignore"] = "ignore",
) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter(warn)
        try:
            return fn(*plain, **named)
        except Exception as error:
            raise Break("FB0003", f"{_name(fn)}: {type(error).__name__}: {error}") from None


def _name(fn: Any) -> str:
    return f"numpy.{getattr(fn, '__name__', type(fn).__name__)}"


def _all_known(values: Args) -> bool:
    def known(value: Value) -> bool:
        if isinstance(value, Array):
            return value.known is not None
        parts = value.parts() if isinstance(value, SequenceValue) else ()
        return not isinstance(value, TensorValue | ArrayNumber) and _all_known(parts)

    return all(map(known, values))


def _made(tx: Tracer, result: Any) -> Value:
    if isinstance(result, np.ndarray):
        if result.dtype not in TORCH_DTYPES:
            raise Break("FB0003", f"an array of {result.dtype}")
        return Array(known=np.array(result))
    if isinstance(result, tuple | list):
        return TupleValue([_made(tx, part) for part in result])
    return tx.wrap_new(result)


def _like(tx: Tracer, expected: Any, found: Value, what: str) -> Value:
    """Torch's result with the dtype that NumPy's has; a break where the shapes differ."""
    if isinstance(expected, tuple | list):
        parts = found.parts() if isinstance(found, SequenceValue) else []
        if len(parts) != len(expected):
            raise Break("FB0003", f"{what} has other results in torch")
        return TupleValue([_like(tx, e, f, what) for e, f in zip(expected, parts)])
    dtype = TORCH_DTYPES.get(getattr(expected, "dtype", None))
    if not isinstance(found, TensorValue) or dtype is None:
        raise Break("FB0003", f"{what} answers {type(expected).__name__}")
    if tuple(found.fake.shape) != np.shape(expected):
        raise Break("FB0003", f"{what} has another shape in torch")
    if found.fake.dtype is not dtype:
        found = _cast(tx, found, dtype)
    return Array(found, scalar=isinstance(expected, np.generic))


def _cast(tx: Tracer, tensor: TensorValue, dtype: torch.dtype) -> TensorValue:
    return tensor_call(tx, "call_method", "to", [tensor, Constant(dtype)])


# -- calls ---------------------------------------------------------------------------------------


def call(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    """A function of NumPy's. Of tensors it may give what they say (`__array_wrap__`, a method of
    its name, which may refuse): it is run on samples, and where it warns it is called."""
    given = _has_tensors([*args, *kwargs.values()])
    told = _ask(tx, fn, args, kwargs, tensors=True) if given else None
    found = _called(tx, fn, args, kwargs)
    if not given:
        return found
    if not isinstance(told, torch.Tensor) or not isinstance(found, Array):
        if found.cls is not type(told):
            raise Break("FB0003", f"{_name(fn)} of tensors, which answers {type(told).__name__}")
        return found
    tensor = found.tensor(tx)
    if tensor.fake.shape != told.shape:
        raise Break("FB0003", f"{_name(fn)} of tensors has another shape")
    return tensor if tensor.fake.dtype is told.dtype else _cast(tx, tensor, told.dtype)


def _has_tensors(values: Args) -> bool:
    def has(value: Value) -> bool:
        parts = value.parts() if isinstance(value, SequenceValue) else ()
        return isinstance(value, TensorValue) or _has_tensors(parts)

    return any(map(has, values))


def _called(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(fn, np.ufunc):
        return _by_element(tx, fn, args, kwargs)
    name = getattr(fn, "__name__", "")
    ours = getattr(np, name, None) is fn or getattr(np.linalg, name, None) is fn
    if ours and _all_known([*args, *kwargs.values()]) and (name in OTHERS or name in MADE_KNOWN):
        return _evaluated(tx, fn, args, kwargs)
    if ours and name in ("asarray", "array", "ascontiguousarray") and not kwargs:
        if len(args) == 1 and isinstance(args[0], TensorValue | Array):
            first = args[0] if isinstance(args[0], Array) else from_tensor(tx, args[0])
            assert isinstance(first, Array)
            if name == "array":
                return _copied(tx, first)
            if name == "ascontiguousarray" and first.known is None:
                held = first.tensor(tx)
                if not held.fake.is_contiguous():
                    return Array(tensor_call(tx, "call_method", "contiguous", [held]))
            return first
    if ours and name in OTHERS and args:
        return _translated(tx, fn, OTHERS[name], args, kwargs)
    raise Break("FB0003", f"{_name(fn)} on {[arg.describe() for arg in args]}")


def _evaluated(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    plain, named = _all_plain(args, kwargs)
    modes = dict.fromkeys(("divide", "over", "invalid"), "warn")
    with warnings.catch_warnings(record=True) as said, np.errstate(**modes):
        warnings.simplefilter("always")
        result = evaluate(tx, fn, *plain, **named)
    if said:
        raise Break("FB0003", f"{_name(fn)}, which warns: {said[0].message}")
    if any(_shares(result, one) for one in [*plain, *named.values()]):
        for value in args:  # a view: from here on both are in the graph
            if isinstance(value, Array):
                value.tensor(tx)
        return call(tx, fn, args, kwargs)
    return _made(tx, result)


def _shares(result: Any, given: Any) -> bool:
    both = isinstance(result, np.ndarray) and isinstance(given, np.ndarray)
    return both and bool(np.may_share_memory(result, given))


def _by_element(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    if _all_known(args) and not kwargs:
        return _evaluated(tx, fn, args, kwargs)
    computed = scalar_call(tx, fn, args) if not kwargs else None
    if computed is not None:
        return computed
    name = fn.__name__
    target = BY_ELEMENT.get(name)
    if target is None or kwargs:
        raise Break("FB0003", f"{_name(fn)} on {[arg.describe() for arg in args]}")
    assume_unwatched(tx)
    expected = _ask(tx, fn, args, kwargs)
    found = np.dtype(expected.dtype)
    if found == np.bool_ and name not in ("logical_not", "logical_and", "logical_or"):
        plain = [_plain(arg) for arg in args]  # of a list what its items come to, not a dtype
        found = np.result_type(*(np.array(p) if isinstance(p, list | tuple) else p for p in plain))
    if found not in TORCH_DTYPES or (name in NOT_FOR_INTEGERS and found.kind != "f"):
        raise Break("FB0003", f"{_name(fn)} of {found}")
    dtype = TORCH_DTYPES[found]
    given = [_element(tx, arg, dtype) for arg in args]
    result = graph_call(tx, "call_function", target, given, {})
    if name == "remainder":  # zeros too have the sign of the divisor
        result = graph_call(tx, "call_function", torch.copysign, [result, given[1]], {})
    return _like(tx, expected, result, _name(fn))


def _element(tx: Tracer, value: Value, dtype: torch.dtype) -> Value:
    if isinstance(value, Array | TensorValue):
        tensor = value.tensor(tx) if isinstance(value, Array) else value
        return tensor if tensor.fake.dtype is dtype else _cast(tx, tensor, dtype)
    number = value.as_number() if isinstance(value, NumpyScalar) else value
    if not isinstance(value, ArrayNumber):
        with needing("FB0003", lambda error: f"NumPy with {error}"):
            plain = value.as_python()
        if isinstance(plain, list | tuple):
            return _element(tx, Array(known=np.array(plain)), dtype)
    named = {"dtype": Constant(dtype)}
    return graph_call(tx, "call_function", torch.scalar_tensor, [number], named)


def _translated(tx: Tracer, fn: Any, give: Give, args: Args, kwargs: Kwargs) -> Value:
    """NumPy says too whether the result is an argument, or a view of one; of a change of shape
    torch does, which strides decide."""
    assume_unwatched(tx)
    plain, named = _all_plain(args, kwargs)
    expected = _answer(fn, plain, named)
    for value, sample in zip(args, plain):
        if isinstance(value, Array) and expected is sample:
            return value
    found = give(TorchEquivalent(tx, expected), args, kwargs)
    for value, sample in zip(args, plain):
        if give is by_shape or not isinstance(value, Array) or not _shares(expected, sample):
            continue
        if not isinstance(found, TensorValue) or not same_memory(found.fake, value.tensor(tx).fake):
            raise Break("FB0003", f"{_name(fn)} gives a view, which torch copies")
    return _like(tx, expected, found, _name(fn))


class TorchEquivalent:
    """What a row of the tables may use."""

    def __init__(self, tx: Tracer, expected: Any) -> None:
        self._tx = tx
        self.expected = expected

    def tensor(self, value: Value) -> Value:
        """An argument as torch takes it."""
        if isinstance(value, Array):
            return value.tensor(self._tx)
        if isinstance(value, SequenceValue):
            parts = [self.tensor(part) for part in value.parts()]
            if any(isinstance(part, TensorValue) for part in parts):
                return TupleValue(parts)
        if isinstance(value, NumpyScalar):
            return value.as_number()
        return value

    def operand(self, value: Value) -> TensorValue:
        """An argument that is a tensor in torch, too."""
        found = self.tensor(value)
        if not isinstance(found, TensorValue):
            raise Break("FB0003", f"NumPy on {value.describe()}")
        return found

    def common(self, values: Args) -> list[Value]:
        """Arguments of the dtype that NumPy's result has."""
        if np.dtype(self.expected.dtype) not in TORCH_DTYPES:
            raise Break("FB0003", f"an array of {self.expected.dtype}")
        return [_element(self._tx, value, self.dtype()) for value in values]

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Value:
        """A node. Arguments that are no values are constants."""
        given = [arg if isinstance(arg, Value) else Constant(arg) for arg in args]
        named = {k: v if isinstance(v, Value) else Constant(v) for k, v in kwargs.items()}
        op = "call_method" if isinstance(target, str) else "call_function"
        return graph_call(self._tx, op, target, given, named)

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        assert isinstance(value, TensorValue)
        return value if value.fake.dtype is dtype else _cast(self._tx, value, dtype)

    def rank(self, value: Value) -> int:
        assert isinstance(value, TensorValue)
        return value.fake.dim()

    def dtype(self) -> torch.dtype:
        return TORCH_DTYPES[np.dtype(self.expected.dtype)]


# -- arrays --------------------------------------------------------------------------------------


class Array(ArrayValue):
    """An array, with what NumPy answers."""

    @property
    def cls(self) -> type:
        found: type = type(self.sample()) if self.scalar else np.ndarray
        return found

    def sample(self) -> Any:
        """An array of ones with the dtype and shape of one that is in the graph."""
        if self.known is not None:
            return self.known
        assert self._tensor is not None
        fake = self._tensor.fake
        if fake.dtype not in DTYPES or not all(isinstance(size, int) for size in fake.shape):
            raise Break("FB0003", f"NumPy on {self.describe()} of {fake.dtype}")
        one = DTYPES[fake.dtype](1)
        return one if self.scalar else np.broadcast_to(one, tuple(fake.shape))

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in ("shape", "ndim", "dtype", "size", "itemsize", "nbytes"):
            return tx.wrap_new(getattr(self.sample(), name))
        if name == "__class__":
            return tx.wrap_new(self.cls)
        if name == "T":
            return call(tx, np.transpose, [self], {})
        if not hasattr(np.ndarray, name):
            self.lacks(tx, name, "numpy.ndarray")
        if callable(getattr(np.ndarray, name)):
            return BoundMethod(self, name)
        self.unknown(f"attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "copy" and not args and not kwargs:
            return _copied(tx, self)
        if name == "__len__":
            return Constant(self.length(tx))
        if name == "__getitem__":
            return self.get_item(tx, args[0])
        if name in ("item", "tolist") and self.known is not None:
            return tx.wrap_new(getattr(self.known, name)(*(arg.as_python() for arg in args)))
        if name in ("item", "tolist", "__float__", "__int__", "__bool__", "__index__"):
            raise Break("FB0002", f"{name} of {self.describe()}")
        operation = _OPERATOR_METHODS.get(name)
        if operation is not None:
            symbol, reverse = operation
            left, right = (args[0], self) if reverse else (self, args[0])
            return binary(tx, symbol, left, right)
        if name in METHODS and name not in REDUCTIONS:
            fn = getattr(np.ndarray, name)
            if self.known is not None:
                self.tensor(tx)
            return _translated(tx, fn, METHODS[name], [self, *args], kwargs)
        if name == "sort":  # the method writes, the function of the name does not
            self.set_item(tx, Constant(Ellipsis), call(tx, np.sort, [self, *args], kwargs))
            return Constant(None)
        if hasattr(np, name) and name in OTHERS:
            return call(tx, getattr(np, name), [self, *args], kwargs)
        raise Break("FB0003", f"method {name} of {self.describe()}")

    def get_item(self, tx: Tracer, key: Value) -> Value:
        if isinstance(key, Array) and key.sample().dtype == np.bool_ and self.known is None:
            raise Break("FB0004", "a subscript by an array of booleans")
        expected = _ask(tx, operator.getitem, [self, key], {})
        if self.known is not None and _all_known([key]) and not _shares(expected, self.known):
            return _made(tx, expected)
        found = graph_call(
            tx, "call_function", operator.getitem, [self.tensor(tx), _key(tx, key)], {}
        )
        return _like(tx, expected, found, "a subscript")

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        target = self.tensor(tx)
        given = value.tensor(tx) if isinstance(value, Array) else value
        if isinstance(given, SequenceValue):
            given = Array(known=np.array(_plain(given))).tensor(tx)
        if isinstance(given, NumpyScalar):
            given = given.as_number()
        graph_call(tx, "call_function", operator.setitem, [target, _key(tx, key), given], {})


def _copied(tx: Tracer, array: Array) -> Value:
    if array.known is not None:
        return Array(known=array.known.copy())
    return Array(tensor_call(tx, "call_method", "clone", [array.tensor(tx)]))


_SYMBOLS: dict[str, Any] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "//": np.floor_divide,
    "%": np.remainder, "**": np.power, "@": np.matmul, "==": np.equal, "!=": np.not_equal,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
}  # fmt: skip
_NAMES = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod",
          "**": "pow", "@": "matmul", "&": "and", "|": "or", "^": "xor", "==": "eq", "!=": "ne",
          "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}  # fmt: skip
_OPERATOR_METHODS = {f"__{word}__": (symbol, False) for symbol, word in _NAMES.items()} | {
    f"__r{word}__": (symbol, True) for symbol, word in _NAMES.items()
}


def binary(tx: Tracer, symbol: str, left: Value, right: Value) -> Value:
    """An operator with an array on one side."""
    if symbol.endswith("=") and symbol not in _SYMBOLS:
        return _in_place(tx, symbol[:-1], left, right)
    if symbol == "getitem":
        if isinstance(left, TensorValue):
            return graph_call(tx, "call_function", operator.getitem, [left, right], {})
        return left.get_item(tx, right)
    fn = _SYMBOLS.get(symbol)
    if fn is None or isinstance(left, TensorValue) or isinstance(right, TensorValue):
        raise Break("FB0003", f"{left.describe()} {symbol} {right.describe()}")
    if fn is np.matmul:
        return call(tx, np.dot if max(_rank(left), _rank(right)) < 3 else fn, [left, right], {})
    return _by_element(tx, fn, [left, right], {})


def _rank(value: Value) -> int:
    return len(value.shape()) if isinstance(value, Array) else 0


def _in_place(tx: Tracer, symbol: str, left: Value, right: Value) -> Value:
    if not isinstance(left, Array) or left.scalar:
        return binary(tx, symbol, left, right)
    mine = left.sample().dtype
    left.tensor(tx)
    result = binary(tx, symbol, left, right)
    assert isinstance(result, Array)
    if not np.can_cast(result.sample().dtype, mine, "same_kind"):
        raise Break("FB0003", f"{left.describe()} {symbol}= {right.describe()}: another dtype")
    given = [left.tensor(tx), Constant(Ellipsis), result.tensor(tx)]
    graph_call(tx, "call_function", operator.setitem, given, {})
    return left


def unary(tx: Tracer, symbol: str, value: Array) -> Value:
    fn = {"-": np.negative, "+": np.positive, "~": np.invert, "abs": np.absolute}[symbol]
    return _by_element(tx, fn, [value], {})


def _key(tx: Tracer, key: Value) -> Value:
    """A subscript as torch takes it; a break for one that means something else there."""
    if isinstance(key, TupleValue):
        return TupleValue([_key(tx, part) for part in key.parts()])
    if isinstance(key, Array):
        return key.tensor(tx)
    if isinstance(key, SliceValue):
        step = key.as_slice().step
        if step is not None and step < 0:
            raise Break("FB0003", "a subscript of NumPy that steps backwards")
    if isinstance(key, NumpyScalar):
        return key.as_number()
    return key
