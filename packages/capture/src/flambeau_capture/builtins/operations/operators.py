"""Unary, binary and comparison operators, and identity.

In: a symbol and values. Out: `binary`, `unary`, `identical`. Invariant: an operator on a tensor is
a node of the graph; on constants it is computed; on objects it is the program's own method; that
two objects are not the same one is guarded.
"""

from __future__ import annotations

import collections
import math
import operator
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.builtins.introspection import python_method
from flambeau_capture.builtins.operations.operator_dispatch import arithmetic
from flambeau_capture.builtins.operations.operator_tables import (
    COMPARISONS,
    IN_PLACE,
    OPERATORS,
    UNARY,
    declined,
    refuse,
)
from flambeau_capture.builtins.operations.percent import percent
from flambeau_capture.builtins.operations.sameness import (
    MAYBE_METHODS,
    METHODS,
    by_identity,
    compares_by_identity,
    equals_as_object,
    identical,
    same_method,
)
from flambeau_capture.builtins.tensors.operators import indexed, refuses_tensors, tensor_operator
from flambeau_capture.identity import known_in
from flambeau_capture.values.base import NotConcrete, Tracer, UserError, Value, needing
from flambeau_capture.values.constant import Constant, evaluate, nameless
from flambeau_capture.values.containers.dict_views import DictView
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.lists import DequeValue, ListValue
from flambeau_capture.values.containers.sequences import (
    SequenceValue,
    TupleValue,
    index_of,
    tx_equal,
)
from flambeau_capture.values.containers.sets import SetValue, algebra
from flambeau_capture.values.functions.builtin_functions import BuiltinValue
from flambeau_capture.values.numpy.arrays import (
    ArrayNumber,
    ArrayValue,
    scalar_call,
    scalar_operator,
)
from flambeau_capture.values.numpy.wrapping import rules
from flambeau_capture.values.objects.attribute_dicts import unwrap_proxy
from flambeau_capture.values.objects.attributes import call_special, find_in_class
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.container_subclasses import METHODS as CONTAINER_METHODS
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.made.made_objects import MadeObject, act
from flambeau_capture.values.objects.opaque import FrozenValue, OpaqueValue
from flambeau_capture.values.readings import Reading, reading_operator
from flambeau_capture.values.registry import answers_for_itself
from flambeau_capture.values.stand_ins import name_in_errors
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.numbers.data_numbers import (
    float_call,
    float_operator,
    selected,
)
from flambeau_capture.values.tensors.numbers.open_choices import compared
from flambeau_capture.values.tensors.numbers.open_text import joined_text
from flambeau_capture.values.tensors.symbolic_numbers import (
    SymbolValue,
    is_known,
    symbol_call,
    symbol_operator,
)
from flambeau_capture.values.tensors.tensor import TensorValue


def binary(tx: Tracer, symbol: str, left: Value, right: Value, asked: str | None = None) -> Value:
    """`left symbol right`; `asked`: the symbol as the program has it."""
    if isinstance(left, ArrayValue) or isinstance(right, ArrayValue):
        made: Value = rules().binary(tx, symbol, left, right)
        return made
    if symbol in ("==", "!=", "|"):
        left, right = unwrap_proxy(tx, left), unwrap_proxy(tx, right)
    if symbol in IN_PLACE:
        return _in_place(tx, symbol, left, right)
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        if symbol == "getitem" and not isinstance(left, TensorValue):
            return left.get_item(tx, right)
        found = indexed(tx, left, right) if symbol == "getitem" and tx.indexing else None
        if found is not None:
            return found
        return tensor_operator(tx, symbol, left, right, asked or symbol)
    if symbol == "getitem":
        return left.get_item(tx, right)
    if symbol in ("==", "!="):
        if by_identity(tx, left) and by_identity(tx, right):
            if isinstance(left, BuiltinValue) and isinstance(right, BuiltinValue):
                # two accesses give two wrappers of one method, which are equal
                return Constant((left.fn == right.fn) == (symbol == "=="))
            return Constant(identical(tx, left, right) == (symbol == "=="))
        bound = isinstance(left, METHODS) or isinstance(right, METHODS)
        if bound and all(isinstance(each, MAYBE_METHODS) for each in (left, right)):
            return Constant(same_method(tx, left, right) == (symbol == "=="))
    computed = None
    if isinstance(left, ArrayNumber) or isinstance(right, ArrayNumber):
        computed = scalar_operator(tx, symbol, left, right)
    elif isinstance(left, SymbolValue) or isinstance(right, SymbolValue):
        computed = float_operator(tx, symbol, left, right) or compared(tx, symbol, left, right)
        if computed is None:
            computed = symbol_operator(tx, symbol, left, right)
    elif isinstance(left, Reading) or isinstance(right, Reading):
        computed = reading_operator(tx, symbol, left, right)
    elif symbol == "+":
        computed = joined_text(tx, [left, right])
    if computed is not None:
        return computed
    if isinstance(left, Constant) and isinstance(right, Constant):
        fn = OPERATORS[symbol][0] if asked is None else IN_PLACE[asked][0]
        return tx.wrap_new(evaluate(tx, fn, left.value, right.value))
    for attempt in (arithmetic, _objects, _made, _sequences, _tables, _known):
        found = attempt(tx, symbol, left, right, asked or symbol)
        if found is not None:
            return found
    if symbol in ("==", "!="):
        if isinstance(left, METHODS):
            return Constant(same_method(tx, left, right) == (symbol == "=="))
        if not (compares_by_identity(left) and compares_by_identity(right)):
            raise Break("FB0009", f"{left.describe()} {symbol} {right.describe()}")
        return Constant(identical(tx, left, right) == (symbol == "=="))
    if symbol == "%" and type(left) is Constant and left.cls is str:
        return percent(tx, left, right)
    by_text = symbol in ("%", "*") and (_is_text(left) or _is_text(right))
    sides = zip((left, right), OPERATORS[symbol][1:])
    if not by_text and all(_is_plain(side) or _lacks(side, method) for side, method in sides):
        refuse(tx, asked or symbol, left, right)
    raise Break("FB0009", f"{left.describe()} {symbol} {right.describe()}")


def _lacks(value: Value, method: str) -> bool:
    """Whether no class of a value has a method, but `object`, which answers nothing."""
    found = find_in_class(value.cls, method)
    return found is None or found[0] is object


_PLAIN = (ObjectValue, Constant, DictValue)  # which decline what is of another kind


def _is_plain(value: Value) -> bool:
    return isinstance(value, _PLAIN)


def _is_text(value: Value) -> bool:
    """Text is formatted by `%` with anything, and repeated by what has an `__index__`."""
    return isinstance(value, Constant) and isinstance(value.value, str | bytes)


def _in_place(tx: Tracer, symbol: str, left: Value, right: Value) -> Value:
    fn, name = IN_PLACE[symbol]
    # a tensor has no `@=`: the result is another one (and a number is refused in these words)
    made = isinstance(right, TensorValue) and not hasattr(left.cls, name)
    if isinstance(left, TensorValue) and not made and not refuses_tensors(right):
        return graph_call(tx, "call_function", fn, [left, right], {})
    own = left.special(tx, name) or _has_python_method(left, name)
    by_class = isinstance(
        left, ObjectValue | OpaqueValue | MadeObject
    )  # which changes in place, in C
    if own or (by_class and find_in_class(left.cls, name) is not None):
        by = call_special(tx, left, name, [right]) if own else None
        found = _by_method(tx, fn, name, left, right) if by is None else by
        if not declined(found):
            return found
    reflected = OPERATORS[symbol[:-1]][2]
    in_list = isinstance(left, ListValue) and symbol in ("+=", "*=")
    if in_list and isinstance(right, ObjectValue) and right.special(tx, reflected):
        found_there = _objects(tx, symbol[:-1], left, right, symbol)  # numbers before sequences
        if found_there is not None:
            return found_there
    if (isinstance(left, ListValue) and symbol == "+=") or (
        isinstance(left, DictValue) and symbol == "|="
    ):
        return left.call_method(tx, name, [right], {})
    if isinstance(left, SetValue) and left.cls is set and hasattr(set, name):
        changed = left.call_method(tx, name, [right], {})
        if not declined(changed):
            return changed
    if isinstance(left, ListValue) and symbol == "*=":
        copies = _sequences(tx, "*", left, right, symbol)
        if copies is None:
            words = f"can't multiply sequence by non-int of type '{name_in_errors(right.cls)}'"
            tx.raise_error(TypeError, words)
        assert isinstance(copies, ListValue)
        left.replace(tx, copies.parts())
        return left
    return binary(tx, symbol[:-1], left, right, symbol)


def _by_method(tx: Tracer, fn: Callable[..., Any], name: str, left: Value, right: Value) -> Value:
    """The result of a method in C; it refuses in the words of the operator `fn`."""
    try:
        return left.call_method(tx, name, [right], {})
    except UserError as error:
        if isinstance(left, MadeObject) and issubclass(error.value.cls, TypeError):
            evaluate(tx, fn, left.copied(), nameless(right))
        raise


def _namespaces(tx: Tracer, left: Value, right: Value, method: str) -> bool:
    kind = types.SimpleNamespace
    own = left.special(tx, method)
    return issubclass(left.cls, kind) and issubclass(right.cls, kind) and not own


#: of which operators make another one by the class of the operand
_MADE_BY_CLASS = (DequeValue, SetValue)


def _answers_all(tx: Tracer, symbol: str, left: Value, right: Value) -> bool:
    """Whether an operand in C takes whatever it is given: text formats it, a view iterates it."""
    if symbol == "%" and not isinstance(left, ObjectValue):
        found = find_in_class(left.cls, "__mod__")
        return found is not None and known_in(found[0], (str, bytes, bytearray))
    if isinstance(left, DictView) and left.kind != "values" and symbol in ("|", "&", "-", "^"):
        return right.special(tx, OPERATORS[symbol][2])
    return False


def _objects(tx: Tracer, symbol: str, left: Value, right: Value, asked: str) -> Value | None:
    """The program's own special methods, the reflected one first if the class is a subclass."""
    _, name, reflected = OPERATORS[symbol]
    foreign = not (issubclass(right.cls, left.cls) and right.special(tx, reflected))
    if foreign and _answers_all(tx, symbol, left, right):
        return None
    if symbol in ("==", "!=") and _namespaces(tx, left, right, name):
        tables = [tx.get_attr(value, "__dict__") for value in (left, right)]
        contents = [DictValue(table.entries(tx), tx=tx) for table in tables]  # type: ignore[attr-defined]
        return binary(tx, symbol, contents[0], contents[1])
    if symbol in ("==", "!=") and isinstance(left, FrozenValue) and isinstance(right, FrozenValue):
        return Constant(bool(evaluate(tx, OPERATORS[symbol][0], left.real, right.real)))
    attempts = [(left, name, right), (right, reflected, left)]
    if left.cls is right.cls and reflected.startswith("__r"):
        attempts.pop()  # arithmetic of two objects of one class calls one method
    elif left.cls is not right.cls and issubclass(right.cls, left.cls):
        attempts.reverse()
    for receiver, method, argument in attempts:
        answer = _by_built_in(tx, symbol, receiver, method, argument)
        if answer is not None:
            return answer
        own = receiver.special(tx, method) or _has_python_method(receiver, method)
        if not isinstance(receiver, ObjectValue) and not own:
            if symbol == "|" and isinstance(receiver, DictValue):
                merged = receiver.call_method(tx, method, [argument], {})
                if not declined(merged):
                    return merged
            continue
        if symbol == "!=" and _only_equality(tx, receiver):
            found = call_special(tx, receiver, "__eq__", [argument])
            if not declined(found):
                return Constant(not found.truth(tx))  # as object.__ne__ does
            continue
        payload = getattr(receiver, "payload", None)
        if own:
            found = call_special(tx, receiver, method, [argument])
        elif payload is None or find_in_class(receiver.cls, method) is None:
            continue
        elif (payload.cls, method) in CONTAINER_METHODS:
            found = receiver.call_method(tx, method, [argument], {})
        elif symbol == "%" and receiver is left and _is_text(payload):
            found = _formatted(tx, left, payload, right, asked)
        else:
            if symbol == "*" and receiver.special(tx, "__index__"):
                continue  # it is no sequence that is repeated, but may be how often
            if isinstance(payload, DictValue) and symbol in ("<", "<=", ">", ">="):
                continue  # dicts have no order
            other = getattr(argument, "payload", None) or argument
            sides = (payload, other) if receiver is left else (other, payload)
            try:
                found = binary(tx, symbol, *sides)
            except UserError as error:
                if issubclass(error.value.cls, TypeError):
                    refuse(tx, asked, left, right)  # of the objects, not of what they are made of
                raise
            if found.cls is not receiver.cls and isinstance(found, _MADE_BY_CLASS):
                raise Break("FB0009", f"{left.describe()} {symbol} {right.describe()}")
        if not declined(found):
            return found
    return None


def _formatted(tx: Tracer, left: Value, text: Constant, right: Value, asked: str) -> Value:
    """An instance of text with `%`: the class of what it is given is not looked at first."""
    found = _known(tx, "%", text, right, asked)
    if found is None and text.cls is str:
        found = percent(tx, text, right)
    if found is None:
        raise Break("FB0009", f"{left.describe()} % {right.describe()}")
    mark: Any = "%" if isinstance(text.value, str) else b"%"
    as_it_is = isinstance(text.value, str) and text.value and mark not in text.value
    return left if as_it_is else found


def _by_built_in(
    tx: Tracer, symbol: str, receiver: Value, method: str, argument: Value
) -> Value | None:
    """What a built-in class makes of an instance whose class left an operator to the other side."""
    inner: Value | None = getattr(argument, "payload", None)
    if inner is None or isinstance(receiver, ObjectValue):
        return None
    if type(receiver) is Constant and isinstance(inner, Constant):
        way = getattr(receiver.value, method, None)
        answer = NotImplemented if way is None else evaluate(tx, way, inner.value)
        return None if answer is NotImplemented else tx.wrap_new(answer)
    if isinstance(receiver, MadeObject) and isinstance(inner, Constant):
        if find_in_class(receiver.cls, method) is None:
            return None
        try:
            found = act(tx, getattr(receiver.cls, method), [receiver, inner])
        except UserError as error:
            if issubclass(error.value.cls, TypeError):  # of a sequence, whose turn is later
                raise Break("FB0009", f"{receiver.describe()} {symbol}") from None
            raise
        return None if declined(found) else found
    if not isinstance(receiver, DictValue | SequenceValue | SetValue) or symbol not in COMPARISONS:
        return None
    try:
        found = receiver.call_method(tx, method, [inner], {})
    except Break:
        return None
    return None if declined(found) else found


def _only_equality(tx: Tracer, value: Value) -> bool:
    """Whether a class says, in Python, what is equal, and leaves to `object` what is not."""
    unequal = find_in_class(value.cls, "__ne__")
    own = value.special(tx, "__eq__") or _has_python_method(value, "__eq__")
    return own and unequal is not None and unequal[0] is object


def _has_python_method(value: Value, name: str) -> bool:
    """Of members of enumerations, exceptions and the like, which are no `ObjectValue`."""
    return not isinstance(value, Constant) and python_method(value.cls, name) is not None


def _sequences(tx: Tracer, symbol: str, left: Value, right: Value, asked: str) -> Value | None:
    fn = (OPERATORS if asked == symbol else IN_PLACE)[asked][0]
    if isinstance(left, SequenceValue) and isinstance(right, SequenceValue):
        same_kind = _kind_of(left) is _kind_of(right)
        if symbol == "+" and same_kind:
            reflected = issubclass(right.cls, left.cls) and not _lacks(right, "__radd__")
            maker, parts = right if reflected else left, [*left.parts(), *right.parts()]
            if maker.cls is torch.Size:  # which refuses what is no number
                return tx.call(tx.wrap_new(torch.Size), [TupleValue(parts)], {})
            return maker.like(parts)
        if symbol in COMPARISONS and same_kind:
            return _compare(tx, symbol, left.parts(), right.parts())
        if symbol in ("==", "!="):
            return Constant(symbol == "!=")
        if symbol == "+":
            evaluate(tx, fn, _empty(left), _empty(right))
    for one, other in ((left, right), (right, left)):
        if symbol == "*" and isinstance(one, SequenceValue):
            if isinstance(other, Constant) and not isinstance(other.value, int):
                evaluate(tx, fn, _empty(left), _empty(right))
            if isinstance(other, Constant) or find_in_class(other.cls, "__index__") is not None:
                times = index_of(tx, other, partial(operator.mul, one.empty()))
                return one.like(evaluate(tx, operator.mul, one.parts(), times))
    return None


def _empty(value: Value) -> Any:
    """What refuses other classes as a sequence does; a constant is itself."""
    if isinstance(value, Constant):
        return value.value
    kind: Any = _kind_of(value)
    return kind() if value.cls is kind else type(name_in_errors(value.cls), (kind,), {})()


def _kind_of(value: Value) -> type:
    return next(k for k in (list, tuple, collections.deque) if issubclass(value.cls, k))


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


def _tables(tx: Tracer, symbol: str, left: Value, right: Value, asked: str) -> Value | None:
    kinds = (DictValue, SetValue, DictView)
    of_values = isinstance(left, DictView) and left.kind == "values"
    if isinstance(right, DictView) and (of_values or not isinstance(left, SetValue | DictView)):
        if symbol in ("|", "&", "-", "^") and right.kind != "values":
            return algebra(tx, left, OPERATORS[symbol][1], [right])
    if not isinstance(left, kinds):
        if symbol in ("==", "!=") and isinstance(right, kinds) and compares_by_identity(left):
            return Constant(symbol == "!=")
        return None
    name = OPERATORS[symbol][1]
    if symbol == "|" and isinstance(right, DictValue) and isinstance(left, DictValue):
        if left.cls is dict and right.cls is not dict:
            left, right, name = right, left, "__ror__"
    if isinstance(left, DictValue) and symbol == "!=":
        equal = left.call_method(tx, "__eq__", [right], {})
        known = isinstance(equal, Constant) and isinstance(equal.value, bool)
        return Constant(not equal.truth(tx)) if known else Constant(True)
    refused = find_in_class(left.cls, name) is None
    refused |= isinstance(left, DictValue) and symbol in ("<", "<=", ">", ">=")
    known = isinstance(right, (*kinds, SequenceValue, *_PLAIN))
    refused &= known or _lacks(right, OPERATORS[symbol][2])
    found = Constant(NotImplemented) if refused else left.call_method(tx, name, [right], {})
    if declined(found):
        if symbol in ("==", "!="):
            return Constant(symbol == "!=")
        refuse(tx, asked, left, right)
    return found


def _made(tx: Tracer, symbol: str, left: Value, right: Value, asked: str) -> Value | None:
    """An operand of a class in C whose state is known, and another that is known."""
    if not isinstance(left, MadeObject) and not isinstance(right, MadeObject):
        return None
    if any(isinstance(each, ObjectValue | OpaqueValue) for each in (left, right)):
        return None
    return act(tx, (OPERATORS if asked == symbol else IN_PLACE)[asked][0], [left, right])


def _known(tx: Tracer, symbol: str, left: Value, right: Value, asked: str) -> Value | None:
    """Objects that are fully known, formatting with `%` included."""
    _, name, reflected = OPERATORS[symbol]
    if left.special(tx, name) or right.special(tx, reflected):
        return None  # they have been called
    if symbol in ("==", "!=") and equals_as_object(left) and equals_as_object(right):
        return None
    if isinstance(right, ClassValue) and answers_for_itself(right.cls):
        return None
    try:
        one = left.as_python()
        other = one if right is left else right.as_python()  # an exception is made by asking
    except NotConcrete:
        return None
    fn = OPERATORS[symbol][0]
    if asked != symbol and not hasattr(type(one), IN_PLACE[asked][1]):
        fn = IN_PLACE[asked][0]  # the same answer, and its own words where there is none
    try:
        return tx.wrap_new(evaluate(tx, fn, one, other))
    except UserError as error:
        if (
            asked != symbol
            and fn is OPERATORS[symbol][0]
            and issubclass(error.value.cls, TypeError)
        ):
            refuse(tx, asked, left, right)
        raise


def unary(tx: Tracer, symbol: str, value: Value) -> Value:
    fn, name = UNARY[symbol]
    if isinstance(value, ArrayValue):
        computed: Value = rules().unary(tx, symbol, value)
        return computed
    if isinstance(value, TensorValue):
        return graph_call(tx, "call_function", fn, [value], {})
    of_numpy = isinstance(value, ArrayNumber)
    if value.is_open and symbol == "-":
        return binary(tx, "*", value, Constant(-1))
    if value.is_open and symbol == "abs":
        if (value.number if isinstance(value, ArrayNumber) else value).cls is int:
            is_positive = binary(tx, ">=", value, Constant(0))
            if not (of_numpy or is_known(is_positive)):
                negative = binary(tx, "*", value, Constant(-1))
                either = selected(tx, is_positive, value, negative)
                if either is not None:
                    return either
            positive = is_positive.truth(tx)
            return value if positive else binary(tx, "*", value, Constant(-1))
        if of_numpy:
            found = scalar_call(tx, fn, [value])
        else:
            found = float_call(tx, math.fabs, value) or symbol_call(tx, math.fabs, [value])
        if found is not None:
            return found
    if isinstance(value, Constant):
        return tx.wrap_new(evaluate(tx, fn, value.value))
    if value.special(tx, name):
        return call_special(tx, value, name, [])
    if isinstance(value, ObjectValue) and find_in_class(value.cls, name) is not None:
        return value.call_method(tx, name, [], {})
    if isinstance(value, MadeObject):
        return act(tx, fn, [value])
    with needing("FB0009", lambda _: f"{symbol}{value.describe()}"):
        return tx.wrap_new(evaluate(tx, fn, value.as_python()))
