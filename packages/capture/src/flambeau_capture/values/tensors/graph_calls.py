"""Recording of tensor operations in the graph.

In: an operator or the name of a method, and values. Out: `graph_call`, which records one operation
and answers its result. Invariant: an operation whose result is one of its arguments answers that
argument's value, so in-place operators keep the identity that the program sees.
"""

from __future__ import annotations

import functools
import operator
import re
import warnings
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break, SkipFrame
from flambeau_capture.graph.builder import Warned
from flambeau_capture.graph.functions import require_all
from flambeau_capture.guards import Inexpressible
from flambeau_capture.identity import is_heap_type
from flambeau_capture.values.base import Args, Kwargs, Tracer, UserError, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.containers.unread import needs_lengths
from flambeau_capture.values.tensors.argument_names import without_odd_names
from flambeau_capture.values.tensors.numbers.ranges import is_certain, limits
from flambeau_capture.values.tensors.refused_calls import hear, operator_name, refusal
from flambeau_capture.values.tensors.registrations import guard_registrations
from flambeau_capture.values.tensors.spreads import SPREADS, is_of_too_few, spread_of
from flambeau_capture.values.tensors.symbolic_numbers import (
    SymbolValue,
    are_within,
    needs_constant,
    note_constants,
    open_floats,
    open_numbers,
    symbol_value,
)
from flambeau_capture.values.tensors.tensor import TensorValue

# What depends on how many values a sparse tensor holds, and in which order: fake ones do not know,
# and give themselves as what they are coalesced.
COUNTED_BY_DATA = frozenset(
    {
        "values", "indices", "_values", "_indices", "_nnz", "coalesce", "is_coalesced",
        "crow_indices", "col_indices", "ccol_indices", "row_indices",
    }
)  # fmt: skip
# What makes quantized tensors, which fake ones take for plain.
QUANTIZING = frozenset(
    {"quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic"}
)


def graph_call(tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs) -> Value:
    """Record one operation; answer its result."""
    rules, name = tx.tensor_rules, operator_name(target)
    needs_lengths(tx, name, args)
    overridden = rules.override(tx, op, target, args, kwargs)
    if overridden is not None:
        return overridden
    for rewrite in rules.rewrites.get(name, ()):
        instead = rewrite(tx, name, args, kwargs)
        if instead is not None:
            return instead
    plain_name = name.partition(".")[0]
    args, kwargs = without_odd_names(op, plain_name, args, kwargs)
    values: dict[int, TensorValue] = {}
    for value in [*args, *kwargs.values()]:
        _collect(value, values)
    if plain_name in QUANTIZING and _is_of_torch(target):
        raise Break("FB0012", f"{plain_name} makes a quantized tensor")
    if plain_name in COUNTED_BY_DATA:
        for value in values.values():
            if value.fake.layout is not torch.strided:
                raise Break("FB0004", f"{plain_name} of a {value.fake.layout} tensor")
    guard_registrations(tx, target)
    if not all(compat.ignores_torch_function(value.python_class) for value in values.values()):
        if any(compat.flattens(value.fake) for value in values.values()):  # who has answered by now
            op, target = "call_function", compat.without_torch_function(target)
    numbers = open_numbers([*args, *kwargs.values()])
    needs_constant(tx, plain_name, numbers)
    fixed_before = tx.shapes.constants() if numbers else frozenset()
    localize = tx.graph.localize
    node_args = fx.node.map_arg(tuple(arg.graph_argument() for arg in args), localize)
    node_kwargs = fx.node.map_arg(
        {key: arg.graph_argument() for key, arg in kwargs.items()}, localize
    )
    device = tx.graph.outermost.device
    if device is not None and target in compat.device_constructors():
        if node_kwargs.get("device") is None:
            node_kwargs = {**node_kwargs, "device": device}
    by_fake = {id(value.fake): value for value in values.values()}
    fakes = [value.fake for value in values.values()]
    versions = [*map(version_of, fakes)]
    shapes = [(fake.shape, fake.stride()) for fake in fakes]
    hear(tx, target, node_args, node_kwargs)
    try:
        result = _tried(tx, target, node_args, node_kwargs)
    except Warned:
        raise
    except Exception:  # with numbers in place of symbols the operator may do
        node_args, node_kwargs = (fixed_numbers(tx, part) for part in (node_args, node_kwargs))
        try:
            result = run_call(tx, target, node_args, node_kwargs)
        except UserError:
            what = f"call_function {operator_name(target)}, which"
            if not all(map(_named_as_in_graphs, (*args, *kwargs.values()))):
                raise Break("FB0011", f"{what} names a class of the program's") from None
            if shapes == [(fake.shape, fake.stride()) for fake in fakes]:
                raise
            raise Break("FB0011", f"{what} resizes before it refuses") from None
        except Break as error:
            if error.reason.id not in _OF_DATA:
                raise
            call = tx, op, target, args, kwargs
            symbols = tx.graph is tx.graph.outermost and tx.data_sizes()
            instead = rules.by_data(*call, not symbols)
            if instead is not None:
                return instead
            if not symbols:
                raise
            tx.graph.by_data = True
            try:
                result = run_call(tx, target, node_args, node_kwargs)
            except Break:
                instead = rules.by_data(*call, True)
                if instead is None:
                    raise error from None
                return instead
            finally:
                tx.graph.by_data = False
    if numbers:
        note_constants(tx, plain_name, numbers, fixed_before)
    if tx.shapes and not _numbers_fit(tx, [*args, *kwargs.values()], values, result):
        node_args, node_kwargs = (fixed_numbers(tx, part) for part in (node_args, node_kwargs))
        result = run_call(tx, target, node_args, node_kwargs)
    if result is NotImplemented:
        return Constant(NotImplemented)
    if isinstance(result, str):
        raise Break("FB0003", f"text that {operator_name(target)} makes of a tensor")
    if isinstance(result, _PLAIN) and not compat.own_data_symbols(result):
        if _says_it_writes(target):  # no node would hold the call
            raise Break("FB0019", f"{operator_name(target)} writes and returns a number")
        return tx.wrap_new(result)
    if [(fake.shape, fake.stride()) for fake in fakes] != shapes:
        tx.heap.changed()  # so that capture starts again, with fake tensors as they were
        raise Break("FB0016", f"{operator_name(target)} changed the metadata of its argument")
    same = by_fake.get(id(result))
    outs: dict[int, TensorValue] = {}
    if "out" in kwargs:  # a write by contract: what runs on fake tensors may leave it out
        _collect(kwargs["out"], outs)
        tx.graph.effects.see_write([value.fake for value in outs.values()])
    # below autograd, no version counts a write
    unwritten = not outs and not _says_it_writes(target)
    if unwritten and same is not None and min(versions) >= 0:
        if versions == [*map(version_of, fakes)]:
            return same  # nothing happened: `x.contiguous()` of a contiguous tensor
    if tx.shapes.by_data:  # what it rests on is checked first
        _check_special_sizes(tx, target, (node_args, node_kwargs), result)
        record_assumptions(tx, operator_name(target), False)
    node = tx.graph.record(op, target, node_args, node_kwargs, result, tx.stack_trace())
    made = same if same is not None else _result(tx, node, result, by_fake)
    if tx.shapes.by_data:
        record_assumptions(tx, operator_name(target))
    return made


def record_assumptions(tx: Tracer, name: str, made: bool = True) -> None:
    """Check in the graph what has been assumed of sizes that depend on data; made: of those, too,
    that the last operator has made."""
    try:
        for condition in tx.shapes.assumptions(made):
            record_assertion(tx, condition, f"{name}: {condition.meta['val']} was assumed")
    except Inexpressible as missing:
        raise Break("FB0004", f"{name}, which rests on {missing}") from None


#: what raises of no elements, which fake tensors do not
_REFUSE_NOTHING = frozenset({"max", "min", "aminmax", "quantile", "nanquantile", "mode"})


def _refuses_nothing(name: str, given: Any) -> bool:
    """Whether a call raises where there is nothing: not one of two tensors, element by element."""
    args, kwargs = given
    two = any(isinstance(x, torch.Tensor) for x in (*args[1:], kwargs.get("other")))
    return name in _REFUSE_NOTHING and not (two and name in ("max", "min"))


def _check_special_sizes(tx: Tracer, target: Any, nodes: Any, result: Any) -> None:
    """Check in the graph that a size that depends on data is not 0, or not 1, where an operator
    gives something else then: there is another graph for such a size where it is known, and such a
    call runs eagerly."""
    given = fx.node.map_arg(nodes, lambda node: node.meta["val"])
    mode = tx.graph.fake_mode
    if operator_name(target) in SPREADS:
        _check_spread(tx, operator_name(target), nodes, result)
    for symbol in sorted(compat.symbols_among(given), key=str):
        for value in (0, 1):
            differs = compat.differs(mode, symbol, value)
            if compat.known_condition(differs) is True:
                continue
            refused = value == 0 and _refuses_nothing(operator_name(target), given)
            if refused or not compat.holds_at(mode, target, given, result, symbol, value):
                said = f"{operator_name(target)} means something else where {symbol} is {value}"
                if not require_number(tx, symbol_value(tx, differs), said):
                    raise Break("FB0004", said)


def require_number(tx: Tracer, condition: Value, message: str, certain: bool = False) -> bool:
    """Check in the graph a condition of the program on numbers that depend on data. certain: it
    holds by the way they are made, and is said to who reads the graph. False: it is no such
    condition, or no node can say it."""
    if not isinstance(condition, SymbolValue) or condition.cls is not bool:
        return False
    if tx.graph is not tx.graph.outermost:
        return False
    try:
        nodes = tx.shapes.checked(condition.number)
    except Inexpressible:
        return False
    for node in nodes:
        record_assertion(tx, node, message).meta["certain"] = certain
    record_assumptions(tx, "a check")
    return True


def in_general(tx: Tracer, condition: Value) -> bool | None:
    """A condition of Python's on how many elements there are, as it is in general: not none, and
    not one. The graph checks it, and a call in which it is not so runs eagerly. None: it is no such
    condition."""
    if not isinstance(condition, SymbolValue) or not tx.data_sizes():
        return None
    number = condition.number if condition.cls is bool else condition.number != 0
    answer = compat.condition_in_general(number)
    if answer is None or not tx.answers_in_general():
        return None
    holds = number if answer else number.__sym_not__()
    said = f"{number} is {not answer}, and not as in general"
    return answer if require_number(tx, symbol_value(tx, holds), said) else None


def record_assertion(tx: Tracer, condition: fx.Node, message: str) -> fx.Node:
    """Raise in the graph, with this message, where a condition on numbers does not hold."""
    args, fn = (condition, message), compat.assert_operator()
    return tx.graph.record("call_function", fn, args, {}, None, tx.stack_trace())


def check_all(tx: Tracer, cond: Value, error: type[Exception], words: tuple[str, ...]) -> None:
    """Raise in the graph an error with these arguments where not all elements are true."""
    rest = [Constant(error.__name__), *map(Constant, words or ("",))]
    graph_call(tx, "call_function", require_all(), [cond, *rest], {})


def tensor_call(tx: Tracer, op: str, target: Any, args: Args) -> TensorValue:
    """Record one operation whose result is a tensor."""
    made = graph_call(tx, op, target, args, {})
    assert isinstance(made, TensorValue)
    return made


def _is_of_torch(target: Any) -> bool:
    """Whether a name is that of a function of torch's own, and not of a library's operator."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        return str(target._qualified_op_name).startswith("aten::")
    return not isinstance(target, torch._ops.OpOverload) or target.namespace == "aten"


def _says_it_writes(target: Any) -> bool:
    if isinstance(target, torch._ops.OpOverloadPacket):
        return any(getattr(target, name)._schema.is_mutable for name in target.overloads())
    return isinstance(target, torch._ops.OpOverload) and bool(target._schema.is_mutable)


_OF_DATA = ("FB0002", "FB0003", "FB0004")  # breaks that are none where the data is known
_PLAIN = (
    bool, int, float, torch.dtype, torch.device, torch.Size,
    torch.SymInt, torch.SymFloat, torch.SymBool,
)  # fmt: skip


def record_call(tx: Tracer, target: Any, head: tuple[Any, ...], tensors: list[fx.Node]) -> Value:
    """Record a call whose arguments are nodes already."""
    args = fx.node.map_arg((*head, *tensors), tx.graph.localize)
    return record_result(tx, target, args, run_call(tx, target, args, {}))


def record_result(tx: Tracer, target: Any, args: tuple[Any, ...], result: Any) -> Value:
    """Record a call whose result on fake tensors is known."""
    local = fx.node.map_arg(args, tx.graph.localize)
    node = tx.graph.record("call_function", target, local, {}, result, tx.stack_trace())
    return _result(tx, node, result, {})


def record_derivative(
    tx: Tracer, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], known: list[TensorValue]
) -> Value:
    """Record `torch.autograd.grad`; `known`: tensors that it may return as they are."""
    result = run_call(tx, torch.autograd.grad, args, kwargs)
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


def _named_as_in_graphs(value: Value) -> bool:
    """Whether an argument is of the class that a graph holds in its place, which messages name."""
    return isinstance(value, TensorValue) or not is_heap_type(value.cls)


def run_call(tx: Tracer, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return _tried(tx, target, args, kwargs)
    except Break:
        raise
    except Exception as error:
        if tx.shapes.by_data and _of_data_sizes((args, kwargs)):
            if tx.graph.by_data and tx.answers_in_general():
                run = functools.partial(_tried, tx, target, args, kwargs)
                result = compat.supposing(tx.graph.fake_mode, error, run)
                if result is not None:
                    return result
            text = str(error).partition("\n")[0][:200]
            raise Break("FB0004", f"{operator_name(target)} of a size by data: {text}") from error
        if tx.shapes and _ABOUT_SYMBOLS.search(str(error)):
            raise SkipFrame(f"{operator_name(target)} takes no symbols: {error}") from error
        raise refusal(tx, target, args, kwargs, error) from error


def _tried(tx: Tracer, target: Any, args: Any, kwargs: Any) -> Any:
    """The result on fake tensors. What C++ says once in a process has been said then, and is given
    to the program here; what it says each time is left to the operator as eager runs it."""
    graph, frame = tx.graph, tx.caller(1)
    result = graph.run(target, args, kwargs)
    said = graph.warned
    if operator_name(target) in SPREADS and is_of_too_few(args, kwargs, result):
        if not tx.options.nopython:  # eager's kernel warns, which fake tensors do not run
            raise Warned("FB0023", f"call_function {operator_name(target)} of too few elements")
    if not said:
        return result
    result = graph.run(target, args, kwargs)
    if graph.warned and not tx.options.nopython:
        raise Warned("FB0023", f"call_function {operator_name(target)}, which warns at each call")
    for text, category in said:
        if frame is not None and (text, category) not in graph.warned:
            warn_at(text, category, frame.filename, frame.lineno, frame.namespace)
    return result


def _check_spread(tx: Tracer, name: str, nodes: Any, result: Any) -> None:
    """Check in the graph that data gives a spread enough elements: eager warns where there are too
    few, and its derivative divides by none as C++ does, not as Python."""
    args, kwargs = nodes
    count, results, correction = spread_of(args, kwargs, result)
    if not isinstance(count, torch.SymInt) or not isinstance(correction, int | float):
        return
    enough = count // results > correction if type(results) is not int or results else True
    if compat.own_data_symbols(enough) and compat.known_condition(enough) is not True:
        if not require_number(tx, symbol_value(tx, enough), f"{name} of too few elements"):
            raise Break("FB0004", f"{name} of a size by data")


def warn_at(
    text: str, category: type[Warning], filename: str, lineno: int, namespace: dict[str, Any]
) -> None:
    """Warn at a line of the program, as it does itself."""
    registry = namespace.setdefault("__warningregistry__", {})
    name = namespace.get("__name__") or "<string>"
    warnings.warn_explicit(text, category, filename, lineno, name, registry)


def _of_data_sizes(arguments: Any) -> bool:
    """Whether a size or a number among the arguments of a node depends on data."""
    found: list[Any] = []
    fx.node.map_arg(arguments, lambda node: found.append(node.meta["val"]))
    return any(map(compat.own_data_symbols, compat.sizes_among(found)))


_ABOUT_SYMBOLS = re.compile(r"[Ss]ym(Int|Float|Bool|bolic)")


def _numbers_fit(
    tx: Tracer, given: list[Value], values: dict[int, TensorValue], result: Any
) -> bool:
    """Whether open floats fit the dtypes that an operator computes with, which a guard fixes."""
    numbers = open_floats(given)
    if not numbers:
        return True
    results = result if isinstance(result, tuple | list) else (result,)
    dtypes = {value.fake.dtype for value in values.values() if value.fake.is_floating_point()}
    dtypes |= {each.dtype for each in results if isinstance(each, torch.Tensor)}
    by_data = [number for number in numbers if number.by_data]
    others = [number for number in numbers if not number.by_data]
    return all(
        are_within(tx, others, *limits)
        and all(_is_checked_within(tx, number, *limits) for number in by_data)
        for limits in filter(None, map(limits, dtypes))
    )


def _is_checked_within(tx: Tracer, number: SymbolValue, least: float, most: float) -> bool:
    """Whether a float that depends on data is in a range, as what it is computed of says, or as
    the graph checks. No dtype refuses what is infinite, or no number."""
    if is_certain(tx, number, lambda low, high: least <= low and high <= most):
        return True
    return all(
        compat.known_condition(condition) is True
        or require_number(tx, symbol_value(tx, condition), "a number that its dtype does not hold")
        for condition in (number.number >= least, number.number <= most)
    )


def fixed_numbers(tx: Tracer, arguments: Any) -> Any:
    """Arguments of a node with numbers where symbols were, which a guard then fixes."""

    def fix(node: fx.Node) -> Any:
        number = node.meta["val"]
        is_number = isinstance(number, torch.SymInt | torch.SymFloat)
        return tx.shapes.value(number) if is_number else node

    return fx.node.map_arg(arguments, fix)


def _result(tx: Tracer, node: fx.Node, result: Any, by_fake: dict[int, TensorValue]) -> Value:
    if isinstance(result, torch.Tensor):
        known = by_fake.get(id(result))
        if known is not None:
            return known
        if compat.flattens(result):
            return tx.tensor_rules.made_wrapper(tx, node, type(result))
        if result.layout in _WITHOUT_STRIDES:
            raise Break("FB0012", f"{operator_name(node.target)} answers one of {result.layout}")
        is_parameter = isinstance(result, torch.nn.Parameter)
        made = TensorValue(node, python_class=torch.nn.Parameter if is_parameter else torch.Tensor)
        if node.kwargs.get("requires_grad") is True and result.is_leaf:
            tx.tensor_rules.new_leaf(tx, made)
        _bind(tx, node, result)
        return made
    if compat.own_data_symbols(result):
        _bind(tx, node, result)
        return symbol_value(tx, result, node)
    if isinstance(result, tuple | list):
        items = [project(tx, node, at, item, by_fake) for at, item in enumerate(result)]
        return ListValue(items) if isinstance(result, list) else TupleValue(items, type(result))
    if type(result) is dict:
        named = {key: project(tx, node, key, item, by_fake) for key, item in result.items()}
        return DictValue([(tx.wrap_new(key), item) for key, item in named.items()], tx=tx)
    if isinstance(result, bool | int | float | str | torch.dtype | torch.device | None):
        return tx.wrap_new(result)
    raise Break("FB0011", f"{operator_name(node.target)} answers a {type(result).__name__}")


_WITHOUT_STRIDES = {torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}


def _bind(tx: Tracer, node: fx.Node, result: Any) -> None:
    try:
        tx.shapes.bind(node, result)
    except Inexpressible as missing:
        raise Break("FB0004", f"{operator_name(node.target)}: {missing}") from None


def project(
    tx: Tracer, node: fx.Node, key: Any, item: Any, by_fake: dict[int, TensorValue]
) -> Value:
    """One item of a result that is a container."""
    by_data = bool(compat.own_data_symbols(item))
    if not by_data and not isinstance(item, torch.Tensor | tuple | list | dict):
        return tx.wrap_new(item)
    part = tx.graph.graph.call_function(operator.getitem, (node, key))
    part.meta.update(val=item, projection=True)
    part.meta["stack_trace"] = node.meta.get("stack_trace", "")
    return _result(tx, part, item, by_fake)
