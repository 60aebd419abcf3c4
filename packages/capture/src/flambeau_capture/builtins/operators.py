"""Operators: `a + b`, `a < b`, `-a`, `a is b`, and the functions of the module `operator`.

In: a symbol and values. Out: `binary`, `unary`, `identical`. Invariant: an operator on a tensor is
a node of the graph; on constants it is computed; on objects it is the program's own method.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.values import arrays
from flambeau_capture.values.arrays import ArrayValue
from flambeau_capture.values.attributes import find_in_class
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, UserError, Value
from flambeau_capture.values.callables import HANDLERS, BuiltinValue, call_callable, handles, pure
from flambeau_capture.values.classes import ClassValue
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.dicts import DictValue, DictView
from flambeau_capture.values.graph_calls import graph_call
from flambeau_capture.values.lists import ListValue
from flambeau_capture.values.methods import BoundMethod, MethodValue
from flambeau_capture.values.objects import ObjectValue
from flambeau_capture.values.opaque import OpaqueValue
from flambeau_capture.values.sequences import SequenceValue, index_of, tx_equal
from flambeau_capture.values.sets import SetValue
from flambeau_capture.values.subclasses import SubclassTensor
from flambeau_capture.values.symbols import SymbolValue, symbol_operator
from flambeau_capture.values.tensor import TensorValue
from flambeau_capture.values.tuples import TupleValue
from flambeau_capture.values.wrap import PartialValue

# symbol -> (function, special method, reflected special method)
OPERATORS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "+": (operator.add, "__add__", "__radd__"),
    "-": (operator.sub, "__sub__", "__rsub__"),
    "*": (operator.mul, "__mul__", "__rmul__"),
    "/": (operator.truediv, "__truediv__", "__rtruediv__"),
    "//": (operator.floordiv, "__floordiv__", "__rfloordiv__"),
    "%": (operator.mod, "__mod__", "__rmod__"),
    "**": (operator.pow, "__pow__", "__rpow__"),
    "@": (operator.matmul, "__matmul__", "__rmatmul__"),
    "<<": (operator.lshift, "__lshift__", "__rlshift__"),
    ">>": (operator.rshift, "__rshift__", "__rrshift__"),
    "&": (operator.and_, "__and__", "__rand__"),
    "|": (operator.or_, "__or__", "__ror__"),
    "^": (operator.xor, "__xor__", "__rxor__"),
    "==": (operator.eq, "__eq__", "__eq__"),
    "!=": (operator.ne, "__ne__", "__ne__"),
    "<": (operator.lt, "__lt__", "__gt__"),
    "<=": (operator.le, "__le__", "__ge__"),
    ">": (operator.gt, "__gt__", "__lt__"),
    ">=": (operator.ge, "__ge__", "__le__"),
    "getitem": (operator.getitem, "__getitem__", ""),
}
IN_PLACE: dict[str, tuple[Callable[..., Any], str]] = {
    "+=": (operator.iadd, "__iadd__"),
    "-=": (operator.isub, "__isub__"),
    "*=": (operator.imul, "__imul__"),
    "/=": (operator.itruediv, "__itruediv__"),
    "//=": (operator.ifloordiv, "__ifloordiv__"),
    "%=": (operator.imod, "__imod__"),
    "**=": (operator.ipow, "__ipow__"),
    "@=": (operator.imatmul, "__imatmul__"),
    "<<=": (operator.ilshift, "__ilshift__"),
    ">>=": (operator.irshift, "__irshift__"),
    "&=": (operator.iand, "__iand__"),
    "|=": (operator.ior, "__ior__"),
    "^=": (operator.ixor, "__ixor__"),
}
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
UNARY: dict[str, tuple[Callable[..., Any], str]] = {
    "-": (operator.neg, "__neg__"),
    "+": (operator.pos, "__pos__"),
    "~": (operator.invert, "__invert__"),
    "abs": (abs, "__abs__"),
}


def binary(tx: Tracer, symbol: str, left: Value, right: Value) -> Value:
    """`left symbol right`, in place if the symbol ends in `=` and is no comparison."""
    if isinstance(left, ArrayValue) or isinstance(right, ArrayValue):
        made: Value = arrays.rules().binary(tx, symbol, left, right)
        return made
    if symbol in IN_PLACE:
        return _in_place(tx, symbol, left, right)
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        if symbol == "getitem" and not isinstance(left, TensorValue):
            return left.get_item(tx, right)
        if symbol == "getitem" and tx.indexing and _by_tensors(right):
            keys = right if isinstance(right, TupleValue) else TupleValue([right])
            return graph_call(tx, "call_function", compat.index_operator(), [left, keys], {})
        return _tensor_operator(tx, OPERATORS[symbol][0], left, right)
    if symbol == "getitem":
        return left.get_item(tx, right)
    if symbol in ("==", "!=") and _by_identity(left) and _by_identity(right):
        return Constant(identical(tx, left, right) == (symbol == "=="))
    if isinstance(left, SymbolValue) or isinstance(right, SymbolValue):
        computed = symbol_operator(tx, symbol, left, right)
        if computed is not None:
            return computed
    if isinstance(left, Constant) and isinstance(right, Constant):
        return tx.wrap_new(evaluate(tx, OPERATORS[symbol][0], left.value, right.value))
    for attempt in (_objects, _sequences, _tables, _known):
        found = attempt(tx, symbol, left, right)
        if found is not None:
            return found
    if symbol in ("==", "!="):
        if isinstance(left, MethodValue | BoundMethod):
            return Constant(_same_method(tx, left, right) == (symbol == "=="))
        if not (_compares_by_identity(left) and _compares_by_identity(right)):
            raise Break("FB0009", f"{left.describe()} {symbol} {right.describe()}")
        return Constant(identical(tx, left, right) == (symbol == "=="))
    by_text = symbol in ("%", "*") and (_is_text(left) or _is_text(right))
    if _is_plain(left) and _is_plain(right) and not by_text:
        _refuse(tx, symbol, left, right)
    raise Break("FB0009", f"{left.describe()} {symbol} {right.describe()}")


def _is_plain(value: Value) -> bool:
    return isinstance(value, ObjectValue | Constant)


def _is_text(value: Value) -> bool:
    """Text is formatted by `%` with anything, and repeated by what has an `__index__`."""
    return isinstance(value, Constant) and isinstance(value.value, str | bytes)


def _compares_by_identity(value: Value) -> bool:
    """Whether `==` on a value that capture does not look into asks whether it is the object."""
    if not isinstance(value, OpaqueValue):
        return True
    found = find_in_class(type(value.real), "__eq__")
    return found is not None and found[0] is object


def _refuse(tx: Tracer, symbol: str, left: Value, right: Value) -> NoReturn:
    """Neither side knows the operator: Python's own words."""
    one, other = left.cls.__name__, right.cls.__name__
    if symbol in COMPARISONS:
        text = f"'{symbol}' not supported between instances of '{one}' and '{other}'"
    else:
        shown = "** or pow()" if symbol == "**" else symbol
        text = f"unsupported operand type(s) for {shown}: '{one}' and '{other}'"
    tx.raise_error(TypeError, text)


def _by_tensors(key: Value) -> bool:
    parts = key.parts() if isinstance(key, TupleValue) else [key]
    return all(isinstance(part, TensorValue) for part in parts)


def _by_identity(value: Value) -> bool:
    return isinstance(value, ClassValue | PartialValue | BuiltinValue) or (
        type(value).__name__ == "FunctionValue"
    )


def _tensor_operator(tx: Tracer, fn: Callable[..., Any], left: Value, right: Value) -> Value:
    other = right if isinstance(left, TensorValue) else left
    own = _own_operator(tx, fn, left, right)
    if own is not None:
        return own
    if (
        fn in (operator.eq, operator.ne)
        and isinstance(other, Constant)
        and (other.is_none or issubclass(other.cls, str))
    ):
        return Constant(fn is operator.ne)
    if isinstance(other, ObjectValue) and isinstance(right, ObjectValue):
        name = next(row[2] for row in OPERATORS.values() if row[0] is fn)
        if right.special(name):
            return right.call_method(tx, name, [left], {})
    if isinstance(other, ObjectValue) and isinstance(left, ObjectValue):
        name = next(row[1] for row in OPERATORS.values() if row[0] is fn)
        if left.special(name):
            return left.call_method(tx, name, [right], {})
    found = graph_call(tx, "call_function", fn, [left, right], {})
    if isinstance(left, TensorValue) and isinstance(right, Constant) and fn in _ORDER:
        if isinstance(found, TensorValue) and found.fake.numel() == 1:
            found.truth_known = _certain(fn, left, right.value)
    return found


_ORDER = (operator.lt, operator.le, operator.gt, operator.ge)


def _certain(fn: Callable[..., Any], left: TensorValue, bound: Any) -> bool | None:
    """What a comparison of a number from [0, 1) comes to, where it is always the same."""
    if left.node.target is not torch.rand or type(bound) not in (int, float):
        return None
    if bound <= 0 and fn in (operator.lt, operator.ge):
        return fn is operator.ge
    if bound < 0 and fn in (operator.le, operator.gt):
        return fn is operator.gt
    if bound >= 1:
        return fn in (operator.lt, operator.le)
    return None


def _own_operator(tx: Tracer, fn: Callable[..., Any], left: Value, right: Value) -> Value | None:
    """An operator that a tensor's subclass defines in Python."""
    row = next(row for row in OPERATORS.values() if row[0] is fn)
    for receiver, name, argument in ((left, row[1], right), (right, row[2], left)):
        if isinstance(receiver, SubclassTensor) and name and receiver.defines(name):
            found = tx.call(tx.get_attr(receiver, name), [argument], {})
            if not (isinstance(found, Constant) and found.value is NotImplemented):
                return found
    return None


def _in_place(tx: Tracer, symbol: str, left: Value, right: Value) -> Value:
    fn, name = IN_PLACE[symbol]
    if isinstance(left, TensorValue):
        return graph_call(tx, "call_function", fn, [left, right], {})
    if isinstance(left, ObjectValue) and find_in_class(left.cls, name) is not None:
        return (
            left.call_method(tx, name, [right], {})
            if not left.special(name)
            else tx.call(tx.get_attr(left, name), [right], {})
        )
    if isinstance(left, ListValue) and symbol == "+=":
        return left.call_method(tx, "__iadd__", [right], {})
    if isinstance(left, DictValue) and symbol == "|=":
        return left.call_method(tx, "__ior__", [right], {})
    if isinstance(left, SetValue) and left.cls is set and symbol in _SET_IN_PLACE:
        if symbol == "|=":
            left.call_method(tx, "update", [right], {})
            return left
        result = left.call_method(tx, _SET_IN_PLACE[symbol], [right], {})
        left.call_method(tx, "clear", [], {})
        left.call_method(tx, "update", [result], {})
        return left
    if isinstance(left, ListValue) and symbol == "*=":
        copies = binary(tx, "*", left, right)
        assert isinstance(copies, ListValue)
        left.replace(tx, copies.parts())
        return left
    return binary(tx, symbol[:-1], left, right)


_SET_IN_PLACE = {"|=": "union", "&=": "intersection", "-=": "difference",
                 "^=": "symmetric_difference"}  # fmt: skip


def _namespaces(left: Value, right: Value, method: str) -> bool:
    """Whether two values are compared as SimpleNamespace does, by their attributes."""
    kind = types.SimpleNamespace
    own = isinstance(left, ObjectValue) and left.special(method)
    return issubclass(left.cls, kind) and issubclass(right.cls, kind) and not own


def _objects(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    """The program's own special methods, the reflected one first if the class is a subclass."""
    _, name, reflected = OPERATORS[symbol]
    if symbol in ("==", "!=") and _namespaces(left, right, name):
        tables = [tx.get_attr(value, "__dict__") for value in (left, right)]
        contents = [DictValue(table.entries(tx), tx=tx) for table in tables]  # type: ignore[attr-defined]
        return binary(tx, symbol, contents[0], contents[1])
    attempts = [(left, name, right), (right, reflected, left)]
    if left.cls is not right.cls and issubclass(right.cls, left.cls):
        attempts.reverse()
    for receiver, method, argument in attempts:
        if not isinstance(receiver, ObjectValue) and not _has_python_method(receiver, method):
            continue
        if symbol == "!=" and _only_equality(receiver):
            found = tx.call(tx.get_attr(receiver, "__eq__"), [argument], {})
            if not (isinstance(found, Constant) and found.value is NotImplemented):
                return Constant(not found.truth(tx))  # as object.__ne__ does
            continue
        if isinstance(receiver, ObjectValue) and not receiver.special(method):
            if receiver.payload is None:
                continue
            other = getattr(argument, "payload", None) or argument
            found = (
                binary(tx, symbol, receiver.payload, other)
                if receiver is left
                else binary(tx, symbol, other, receiver.payload)
            )
        else:
            found = tx.call(tx.get_attr(receiver, method), [argument], {})
        if not (isinstance(found, Constant) and found.value is NotImplemented):
            return found
    return None


def _only_equality(value: Value) -> bool:
    """Whether a class says, in Python, what is equal, and leaves to `object` what is not."""
    equal, unequal = (find_in_class(value.cls, name) for name in ("__eq__", "__ne__"))
    own = equal is not None and isinstance(equal[1], types.FunctionType)
    return own and unequal is not None and unequal[0] is object


def _has_python_method(value: Value, name: str) -> bool:
    found = find_in_class(value.cls, name)
    return (
        found is not None
        and isinstance(found[1], types.FunctionType)
        and not isinstance(value, Constant)
    )


def _sequences(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    if isinstance(left, SequenceValue) and isinstance(right, SequenceValue):
        same_kind = isinstance(left, TupleValue) == isinstance(right, TupleValue)
        if symbol == "+" and same_kind:
            return left.like([*left.parts(), *right.parts()])
        if symbol in COMPARISONS and same_kind:
            return _compare(tx, symbol, left.parts(), right.parts())
        if symbol in ("==", "!="):
            return Constant(symbol == "!=")
        if symbol == "+":
            tx.raise_error(
                TypeError,
                f"can only concatenate {left.cls.__name__} (not "
                f'"{right.cls.__name__}") to {left.cls.__name__}',
            )
    for one, other in ((left, right), (right, left)):
        if symbol == "*" and isinstance(one, SequenceValue):
            if isinstance(other, Constant) or find_in_class(other.cls, "__index__") is not None:
                return one.like(one.parts() * index_of(tx, other))
    return None


def _compare(tx: Tracer, symbol: str, left: list[Value], right: list[Value]) -> Value:
    if symbol in ("==", "!="):
        equal = len(left) == len(right) and all(
            tx_equal(tx, one, other) for one, other in zip(left, right)
        )
        return Constant(equal == (symbol == "=="))
    for one, other in zip(left, right):
        if not tx_equal(tx, one, other):
            return binary(tx, symbol, one, other)
    return Constant(OPERATORS[symbol][0](len(left), len(right)))


def _tables(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    kinds = (DictValue, SetValue, DictView)
    if not isinstance(left, kinds):
        if symbol in ("==", "!=") and isinstance(right, kinds):
            return Constant(symbol == "!=")
        return None
    name = OPERATORS[symbol][1]
    if isinstance(left, DictValue) and symbol == "!=":
        equal = left.call_method(tx, "__eq__", [right], {})
        known = isinstance(equal, Constant) and isinstance(equal.value, bool)
        return Constant(not equal.truth(tx)) if known else Constant(True)
    found = left.call_method(tx, name, [right], {})
    if isinstance(found, Constant) and found.value is NotImplemented:
        if symbol in ("==", "!="):
            return Constant(symbol == "!=")
        _refuse(tx, symbol, left, right)
    return found


def _known(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    """Objects that are fully known, formatting with `%` included."""
    try:
        one, other = left.as_python(), right.as_python()
    except NotConcrete:
        return None
    return tx.wrap_new(evaluate(tx, OPERATORS[symbol][0], one, other))


def unary(tx: Tracer, symbol: str, value: Value) -> Value:
    fn, name = UNARY[symbol]
    if isinstance(value, ArrayValue):
        computed: Value = arrays.rules().unary(tx, symbol, value)
        return computed
    if isinstance(value, TensorValue):
        return graph_call(tx, "call_function", fn, [value], {})
    if isinstance(value, SymbolValue) and symbol == "-":
        return binary(tx, "*", value, Constant(-1))
    if isinstance(value, SymbolValue) and symbol == "abs" and value.cls is int:
        positive = binary(tx, ">=", value, Constant(0)).truth(tx)
        return value if positive else binary(tx, "*", value, Constant(-1))
    if isinstance(value, Constant):
        return tx.wrap_new(evaluate(tx, fn, value.value))
    if isinstance(value, ObjectValue) and find_in_class(value.cls, name) is not None:
        return (
            value.call_method(tx, name, [], {})
            if not value.special(name)
            else tx.call(tx.get_attr(value, name), [], {})
        )
    try:
        return tx.wrap_new(evaluate(tx, fn, value.as_python()))
    except NotConcrete:
        raise Break("FB0009", f"{symbol}{value.describe()}") from None


def _same_method(tx: Tracer, left: Value, right: Value) -> bool:
    if isinstance(left, MethodValue) and isinstance(right, MethodValue):
        return identical(tx, left.receiver, right.receiver) and identical(
            tx, left.function, right.function
        )
    if isinstance(left, BoundMethod) and isinstance(right, BoundMethod):
        return left.name == right.name and identical(tx, left.receiver, right.receiver)
    return False


def identical(tx: Tracer, left: Value, right: Value) -> bool:
    """`left is right`."""
    if left is right:
        return True
    if isinstance(left, Constant) and isinstance(right, Constant):
        one, other = left.value, right.value
        return one is other or (type(one) is type(other) and one == other)
    if isinstance(left, ClassValue) and isinstance(right, ClassValue):
        return left.python_class is right.python_class
    if isinstance(left, BuiltinValue) and isinstance(right, BuiltinValue):
        return left.fn is right.fn
    if isinstance(left, OpaqueValue) and isinstance(right, OpaqueValue):
        return left.real is right.real
    for value in (left, right):
        _ = value.cls  # the answer rests on what they are
    if not isinstance(left, Constant) and not isinstance(right, Constant):
        tx.guard_distinct(left, right)
    return False


def _register() -> None:
    for symbol, (fn, _, _) in OPERATORS.items():
        HANDLERS[fn] = _binary_handler(symbol)
    for symbol, (fn, _) in IN_PLACE.items():
        HANDLERS[fn] = _binary_handler(symbol)
    for symbol, (fn, _) in UNARY.items():
        HANDLERS[fn] = _unary_handler(symbol)


def _binary_handler(symbol: str) -> Callable[[Tracer, Args, Kwargs], Value]:
    def handler(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return binary(tx, symbol, args[0], args[1])

    return handler


def _unary_handler(symbol: str) -> Callable[[Tracer, Args, Kwargs], Value]:
    def handler(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return unary(tx, symbol, args[0])

    return handler


_register()


@handles(operator.not_)
def _not(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(not args[0].truth(tx))


@handles(operator.is_)
def _is(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(identical(tx, args[0], args[1]))


@handles(operator.is_not)
def _is_not(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(not identical(tx, args[0], args[1]))


@handles(operator.contains)
def _contains(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(args[0].contains(tx, args[1]))


@handles(operator.setitem)
def _setitem(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].set_item(tx, args[1], args[2])
    return Constant(None)


@handles(operator.delitem)
def _delitem(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].del_item(tx, args[1])
    return Constant(None)


@handles(operator.truth)
def _truth(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(args[0].truth(tx))


@handles(divmod)
def _divmod(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    for receiver, name, other in (
        (args[0], "__divmod__", args[1]),
        (args[1], "__rdivmod__", args[0]),
    ):
        if isinstance(receiver, ObjectValue) and receiver.special(name):
            found = tx.call(tx.get_attr(receiver, name), [other], {})
            if not (isinstance(found, Constant) and found.value is NotImplemented):
                return found
    return TupleValue([binary(tx, "//", args[0], args[1]), binary(tx, "%", args[0], args[1])])


@handles(pow)
def _pow(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 2:
        return binary(tx, "**", args[0], args[1])
    return tx.wrap_new(evaluate(tx, pow, *(arg.as_python() for arg in args)))


@handles(operator.index)
def _index(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(index_of(tx, args[0]))


pure(operator.length_hint)
__all__ = ["OPERATORS", "UserError", "binary", "call_callable", "identical", "unary"]
