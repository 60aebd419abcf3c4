"""Torch functions that are not one call of the graph.

In: calls of functions of torch about modes, types, sizes and packed sequences. Out: plain Python,
calls of the graph, or breaks. Invariant: what an answer rests on is guarded.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Mapping
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch.nn.utils import rnn

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.builtins.tensors.nested_lists import tensor_of_open
from flambeau_capture.frame.function_marks import is_compiling
from flambeau_capture.graph.functions import ERRORS, NotInGeneral, require
from flambeau_capture.observe.unguarded import name_of, of_arguments, unguarded
from flambeau_capture.polyfills import scanning
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, refuse
from flambeau_capture.values.containers.sequences import SequenceValue
from flambeau_capture.values.containers.unread import needs_lengths
from flambeau_capture.values.functions.call_rules import (
    RULES,
    Action,
    CallRule,
    answers,
    breaks,
    constant,
    describe_call,
    evaluate_call,
    handles,
    pure,
)
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.higher_order.context_managers import answered_outside
from flambeau_capture.values.numpy.arrays import ArrayValue
from flambeau_capture.values.numpy.wrapping import rules
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.registry import trusted_name
from flambeau_capture.values.tensors.graph_calls import check_all, graph_call, require_number
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue
from flambeau_capture.values.tensors.tensor import TensorValue

_REASON = "FB0004"
LAYERS = frozenset(kind.forward for kind in (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU))


def _refuse_packing(tx: Tracer, fn: FunctionValue, args: Args, kwargs: Kwargs) -> None:
    if not tx.data_sizes():
        raise Break(_REASON, f"call_function {describe_call(fn.real, args)}")


def _refuse_packed(tx: Tracer, fn: FunctionValue, args: Args, kwargs: Kwargs) -> None:
    for given in (*args[1:2], *kwargs.values()):
        if issubclass(given.cls, rnn.PackedSequence) and not tx.data_sizes():
            raise Break(_REASON, f"{fn.qualname} of a packed sequence")


for _layer in LAYERS:
    RULES[_layer] = CallRule(Action.INLINE, handler=_refuse_packed, of_called=True)
for _fn in (
    rnn.pack_padded_sequence, rnn.pack_sequence, rnn.pad_packed_sequence, rnn.unpad_sequence,
):  # fmt: skip
    RULES[_fn] = CallRule(Action.INLINE, handler=_refuse_packing, of_called=True)


def is_packed_call(fn: FunctionType, arguments: Mapping[str, object]) -> bool:
    """Whether a frame is a recurrent layer's on a packed sequence, which Python runs as it is."""
    if fn.__module__ != torch.nn.RNNBase.__module__:
        return False
    if fn.__name__ != "forward":
        return True  # what a layer that runs in Python calls
    return isinstance(arguments.get("input"), rnn.PackedSequence)


#: what the state check guards, so that no guard of their own is wanted
STATE_QUESTIONS: dict[Any, None] = {}


def _state(*fns: Any) -> None:
    """Questions about the state of this thread: answered now, guarded by the state check."""
    STATE_QUESTIONS.update(dict.fromkeys(fns))
    for fn in fns:
        handles(fn, action=Action.EVALUATE)(partial(_answer_now, fn))


def _answer_now(fn: Any, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    asked_by = tx.frames[-1].scope.namespace.get("__name__")
    if tx.run_later and not trusted_name(str(asked_by)):
        tx.heap.changed()
        raise Break("FB0025", f"{tx.run_later} asks {name_of(fn)}, which is known when that is run")
    return evaluate_call(tx, fn, args, kwargs)


_state(
    torch.is_grad_enabled, torch.is_inference_mode_enabled, torch.get_default_dtype,
    torch.is_autocast_enabled, torch.get_autocast_dtype, torch.is_autocast_cache_enabled,
    torch.are_deterministic_algorithms_enabled, torch.is_deterministic_algorithms_warn_only_enabled,
    torch.get_deterministic_debug_mode,
)  # fmt: skip


def _modes_in_force(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if tx.graph.outermost.device is not None:  # the frame has entered one or several
        raise Break("FB0024", "the modes in force are asked for where the frame has set a device")
    return Constant(bool(compat.torch_function_modes()))


for _fn in compat.mode_questions():
    STATE_QUESTIONS[_fn] = None
    handles(_fn)(_modes_in_force)


def _older_query(fn: Any) -> None:
    """A query of that state which warns at each call that it is deprecated."""
    STATE_QUESTIONS[fn] = None

    @handles(fn)
    def handler(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = _answer_now(fn, tx, args, kwargs)
        for each in said:
            text, category = Constant(str(each.message)), tx.wrap_new(each.category)
            tx.call(tx.wrap_new(warnings.warn), [text, category], {})
        return found


for _fn in compat.older_autocast_queries():
    _older_query(_fn)


def _facts(*fns: Any) -> None:
    """Questions whose answer is the same for the life of the process."""
    pure(*fns)
    for fn in fns:
        unguarded(name_of(fn), "a fact of torch's build and of the machine")


_facts(
    torch.cuda.is_available, torch.cuda.device_count, torch.cuda.get_device_capability,
    torch.cuda.get_device_name, torch.cuda.get_arch_list, torch.cuda.get_gencode_flags,
    torch.cuda.can_device_access_peer, torch.backends.cuda.is_built,
    torch.backends.cudnn.version, torch.backends.cudnn.is_available,
    torch.backends.mkldnn.is_available,
    torch.backends.mps.is_available, torch.distributed.is_available,
    *compat.build_questions(),
)  # fmt: skip


def _guard_by_query(*fns: Any) -> None:
    """Questions without arguments about what the state check does not know: guarded by asking."""
    for fn in fns:

        def handler(tx: Tracer, args: Args, kwargs: Kwargs, _fn: Any = fn) -> Value:
            found = evaluate_call(tx, _fn, args, kwargs)
            before = answered_outside(tx, _fn, found.as_python())
            tx.guard(ConstantSource(_fn, _fn.__name__), "ANSWER", before)
            return found

        handles(fn)(handler)


_guard_by_query(
    sys.getrecursionlimit, sys.getswitchinterval, sys.getdefaultencoding,
    torch.get_float32_matmul_precision, torch.is_anomaly_enabled, torch.get_num_threads,
    torch.get_num_interop_threads, torch.is_anomaly_check_nan_enabled,
    torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.mem_efficient_sdp_enabled,
    torch.backends.cuda.math_sdp_enabled, torch.cuda.is_current_stream_capturing,
    torch.backends.cuda.cudnn_sdp_enabled, torch.cuda.is_initialized,
    torch.utils.data.get_worker_info, *compat.switch_questions(),
)  # fmt: skip


def _answer(value: Any, *fns: Any) -> None:
    """Callables whose answer under capture is always the same."""
    for fn in fns:
        unguarded(
            name_of(fn),
            f"{value} in whatever is captured: a frame where it is not, is not captured",
        )
        RULES[fn] = constant(value)


_answer(True, torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, is_compiling)


@handles(torch.compiler.is_compiling)
def _is_compiling(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """False inside a module's call with `always_call` hooks, which eager runs as they are, and in
    the collectives that torch refuses to other compilers."""
    frame = tx.caller(1)
    if frame is not None and frame.filename.endswith(compat.REFUSED_TO_OTHERS):
        return Constant(False)
    call = compat.MODULE_CALLS[-1].__code__
    if frame is None or (frame.name, frame.filename) != (call.co_name, call.co_filename):
        return Constant(True)
    of_all = compat.calls_always()
    tx.guard(ConstantSource(of_all, "global hooks"), "LENGTH", len(of_all))
    own = tx.get_attr(tx.variables()["self"], compat.ALWAYS_CALLED)
    return Constant(not of_all and not own.length(tx))


@handles(compat.READS_STATE)
def _read_state(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The number where numbers are read early; else a tensor of double precision, in which eager
    computes with the number, and which none has to be read of."""
    (state,) = [*args, *kwargs.values()]
    if not isinstance(state, TensorValue):
        return state
    floats = state.fake.is_floating_point() and not state.fake.requires_grad
    return state.call_method(tx, "item" if tx.reads_early() or not floats else "double", [], {})


_answer(
    False, *compat.SCRIPTING_QUESTIONS, *compat.never_under_capture(),
)  # fmt: skip
_answer(None, *compat.nothing_under_capture())
_answer(0, *compat.zero_under_capture())


unguarded(name_of(compat.TRANSFORMED), "no in whatever is captured, but for a break in a body")


@handles(compat.TRANSFORMED)
def _transformed(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """No: a frame where one is at work is not captured, and of a body that torch runs it is not
    known here what runs it."""
    if tx.graph.outer is not None:
        raise Break("FB0005", f"{name_of(compat.TRANSFORMED)} in a function that torch runs")
    return Constant(False)


pure(torch.broadcast_shapes)
_STORAGES = (torch.TypedStorage, torch.UntypedStorage)

answers(
    {
        torch.is_tensor: lambda tx, args, kwargs: Constant(issubclass(args[0].cls, torch.Tensor)),
        torch.is_storage: lambda tx, args, kwargs: Constant(issubclass(args[0].cls, _STORAGES)),
        torch.overrides.is_tensor_like: lambda tx, args, kwargs: Constant(
            hasattr(args[0].cls, "__torch_function__")
        ),
        torch.jit.annotate: lambda tx, args, kwargs: args[1],
        torch.jit.isinstance: lambda tx, args, kwargs: tx.call_python(
            compat.SCRIPTED_ISINSTANCE, args, kwargs
        ),
        torch.numel: lambda tx, args, kwargs: args[0].call_method(tx, "numel", [], {}),
        torch._check_is_size: lambda tx, args, kwargs: tx.call_python(
            scanning.check_is_size, args, kwargs
        ),
        compat.CHECK_ALL: lambda tx, args, kwargs: _check_elements(
            tx, compat.CHECK_ALL, [], args, kwargs
        ),
    }
)


@handles(compat.set_grad_enabled)
def _set_grad_enabled(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args[0].cls is not bool:
        refuse(tx, compat.set_grad_enabled, args[0])
    mode = args[0].truth(tx)
    if mode != torch.is_grad_enabled():
        tx.heap.changed()
        tx.graph.record_mode(compat.set_grad_enabled, (mode,), tx.stack_trace())
        compat.set_grad_enabled(mode)  # capture restores the mode when it is done
        tx.grad_mode_applies()
    return Constant(None)


@handles(torch._check)
def _check(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("cond", "message"), args)) | dict(kwargs)
    cond, message = given["cond"], given.get("message", Constant(None))
    if isinstance(cond, SymbolValue) and cond.by_data:
        said = message if isinstance(message, Constant) else tx.call(message, [], {})
        text = said.as_python() if isinstance(said, Constant) else _UNSAID
        try:  # what torch says of a check that fails
            torch._check(False, None if isinstance(message, Constant) else lambda: text)
        except RuntimeError as error:
            if require_number(tx, cond, str(error)):
                return Constant(None)
    if not cond.truth(tx):
        raise Break("FB0010", "torch._check fails")
    return Constant(None)


#: the words are made of numbers that depend on data: the program, run again, says them
_UNSAID = "a check of the program fails"


@handles(compat.CHECK_ALL_WITH)
def _check_all_with(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("error_type", "cond", "message"), args)) | dict(kwargs)
    kind = given.pop("error_type").as_python()
    return _check_elements(tx, compat.CHECK_ALL_WITH, [kind], [], given)


def _check_elements(tx: Tracer, fn: Any, head: list[Any], args: Args, kwargs: Kwargs) -> Value:
    """A check of a tensor's elements is made by the graph, which raises what torch would."""
    given = dict(zip(("cond", "message"), args)) | dict(kwargs)
    cond, message = given["cond"], given.get("message", Constant(None))
    valid = isinstance(cond, TensorValue) and cond.fake.dtype == torch.bool
    said = message if isinstance(message, Constant) else tx.call(message, [], {})
    text = said.as_python()
    words = None if isinstance(message, Constant) else lambda: text
    try:  # what torch says of a check that fails
        fn(*head, torch.tensor(False) if valid else None, words)
    except Exception as error:
        known = (NotInGeneral, ERRORS.get(type(error).__name__))  # the former: of our own forms
        if not valid or type(error) not in known:
            raise Break("FB0010", f"a check that raises {type(error).__name__}") from None
        check_all(tx, cond, type(error), (str(error),))
    return Constant(None)


@handles(compat.is_all_true)
def _is_all_true(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """A distribution's check of its arguments is made by the graph, and raises when it runs."""
    frame = tx.caller(1)
    variables = tx.variables()
    value = variables.get("value")
    asks = frame is not None and frame.filename.endswith(compat.CHECKED_BY_GRAPH)
    if not asks or not isinstance(value, TensorValue) or not isinstance(args[0], TensorValue):
        return graph_call(tx, "call_function", compat.is_all_true, args, kwargs)
    size = tuple(value.fake.shape)
    given, owner = f"({value.cls.__name__} of shape {size})", _shown(tx, variables["self"])
    name = variables.get("param")
    if isinstance(name, Constant):
        kind = _constraint(variables["constraint"])
        text = f"Expected parameter {name.value} {given} of distribution {owner} "
        text += f"to satisfy the constraint {kind}, but found invalid values:\n"
    else:
        text = f"Expected value argument {given} to be within the support "
        text += f"({_constraint(variables['support'])}) of the distribution {owner}, "
        text += "but found invalid values:\n"
    graph_call(tx, "call_function", require(), [args[0], value, Constant(text)], {})
    return Constant(True)


def _constraint(value: Value) -> str:
    real = getattr(value, "real", None)
    return value.cls.__name__ if real is None else repr(real)


def _shown(tx: Tracer, owner: Value) -> str:
    """A distribution as its `repr`; the number of a parameter of one element is left open."""
    constraints = getattr(owner.cls, "arg_constraints", None)
    shown = []
    if isinstance(owner, ObjectValue) and isinstance(constraints, dict):
        for name in constraints:
            value = owner.instance_get(tx, name)
            if isinstance(value, TensorValue):
                size = value.fake.size()
                shown.append(f"{name}: {'...' if value.fake.numel() == 1 else size}")
    return f"{owner.cls.__name__}({', '.join(shown)})"


@handles(torch.from_numpy, torch.as_tensor, torch.asarray)
def _from_numpy(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    needs_lengths(tx, "as_tensor", args)
    if isinstance(value, ArrayValue):
        shared: Value = rules().to_tensor(tx, value)
        rest = [*args[1:], *kwargs.values()]
        return shared.call_method(tx, "to", args[1:], kwargs) if rest else shared
    opened = tensor_of_open(tx, value, kwargs) if len(args) == 1 else None
    if opened is not None:
        return opened
    if isinstance(value, TensorValue) or hasattr(value, "parts") or isinstance(value, Constant):
        return graph_call(tx, "call_function", torch.as_tensor, args, kwargs)
    raise Break("FB0003", f"{describe_call(torch.from_numpy, args)}")


@handles(torch.tensor)
def _tensor(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    needs_lengths(tx, "tensor", args)
    if isinstance(args[0], ArrayValue) and set(kwargs) <= {"dtype"}:
        copied = rules().to_tensor(tx, args[0]).call_method(tx, "clone", [], {})
        found: Value = copied.call_method(tx, "to", list(kwargs.values()), {}) if kwargs else copied
        return found
    if _of_tensors(args[0]) and not kwargs:
        stacked = graph_call(tx, "call_function", torch.stack, [args[0]], {})
        return stacked.call_method(tx, "detach", [], {})
    opened = tensor_of_open(tx, args[0], kwargs) if args else None
    if opened is not None:
        return opened
    return graph_call(tx, "call_function", torch.tensor, args, kwargs)


def _of_tensors(value: Value) -> bool:
    """Whether it is a list of tensors of no dimension, all of one dtype and device."""
    parts = value.parts() if isinstance(value, SequenceValue) else []
    fakes = [part.fake for part in parts if isinstance(part, TensorValue)]
    same = {(fake.dtype, fake.device, fake.dim()) for fake in fakes}
    return len(parts) == len(fakes) > 0 and len(same) == 1 and fakes[0].dim() == 0


for _name in dir(torch.Tensor):
    _member = getattr(torch.Tensor, _name, None)
    if isinstance(_member, types.FunctionType) and _member not in RULES:

        def _tensor_function(tx: Tracer, args: Args, kwargs: Kwargs, _name: str = _name) -> Value:
            return args[0].call_method(tx, _name, args[1:], kwargs)

        handles(_member)(_tensor_function)

breaks(
    "FB0024", torch.manual_seed, torch.seed, torch.set_default_dtype, torch.set_default_device,
    torch.use_deterministic_algorithms, torch.set_num_threads, torch.set_rng_state,
    torch.get_rng_state, torch.set_float32_matmul_precision, torch.cuda.synchronize,
    torch.cuda.manual_seed, torch.cuda.manual_seed_all, torch.cuda.empty_cache,
    torch.set_default_tensor_type, torch.set_deterministic_debug_mode, torch.set_anomaly_enabled,
    torch.set_autocast_enabled, torch.set_autocast_dtype, torch.set_autocast_cache_enabled,
    torch.set_flush_denormal, torch.set_warn_always,
)  # fmt: skip
breaks("FB0016", torch.utils.swap_tensors)


def _of_unknown_size(**fns: Any) -> None:
    """Functions whose result's size depends on data, recorded where that is known."""
    for name, fn in fns.items():

        def handler(
            tx: Tracer, args: Args, kwargs: Kwargs, _fn: Any = fn, _name: str = name
        ) -> Value:
            if tx.data_sizes():
                return graph_call(tx, "call_function", _fn, args, kwargs)
            found = tx.tensor_rules.by_data(tx, "call_method", _name, args, kwargs, True)
            if found is None:
                raise Break("FB0004", f"call_function {describe_call(_fn, args)}")
            return found

        handles(fn)(handler)


_of_unknown_size(
    nonzero=torch.nonzero, unique=torch.unique, masked_select=torch.masked_select,
    argwhere=torch.argwhere,
)  # fmt: skip
breaks("FB0003", torch.save, torch.load)
_HOOK = torch.utils.hooks.BackwardHook  # looks for its own node in the graph of autograd
breaks("FB0007", _HOOK.setup_input_hook, _HOOK.setup_output_hook)
of_arguments(
    torch.promote_types, torch.can_cast, torch.is_tensor, torch.is_storage, torch.numel,
    torch.overrides.is_tensor_like, torch.overrides.is_tensor_method_or_property, torch.sym_float,
    torch.broadcast_shapes, torch.jit.annotate, torch.jit.isinstance, torch._check_is_size,
    compat.GROUP_TENSORS, compat.READS_STATE,
)  # fmt: skip
STATE_QUESTIONS[torch.get_default_device] = None
