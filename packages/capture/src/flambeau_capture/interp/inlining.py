"""What happens to a call of a Python function before its code is interpreted.

In: a function value and arguments. Out: a value if the call is answered otherwise (a handler, a
node of the graph), or None: interpret it. Invariant: functions that must not be looked into break
the graph by name.
"""

from __future__ import annotations

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.builtins.stdlib import dispatch, without_repr_guard
from flambeau_capture.builtins.tensors.packed_sequences import refuse_packed
from flambeau_capture.frame.markers import BREAK, DISABLED, IN_GRAPH, MARK
from flambeau_capture.interp.binding import bind
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.functions.assume_constant_result import call_at_capture
from flambeau_capture.values.functions.callables import (
    BREAKS,
    HANDLERS,
    describe_call,
    evaluate_call,
    is_graph_function,
)
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.higher_order.grad import transformed
from flambeau_capture.values.numpy.arrays import rules
from flambeau_capture.values.tensors.graph_calls import graph_call

# Modules of Python code that capture does not interpret, by prefix, with the reason to give.
NOT_INTERPRETED: dict[str, str] = {
    "logging": "FB0023",
    "warnings": "FB0023",
    "threading": "FB0017",
    "multiprocessing": "FB0017",
    "asyncio": "FB0017",
    "subprocess": "FB0017",
    "importlib": "FB0017",
    "random": "FB0017",
    "unittest": "FB0017",
    "numpy": "FB0017",
    "scipy": "FB0017",
    "pandas": "FB0017",
    "sklearn": "FB0017",
    "matplotlib": "FB0017",
    "tqdm": "FB0023",
    "triton": "FB0017",
    "sympy": "FB0017",
    "torch._dynamo": "FB0017",
    "torch._inductor": "FB0017",
    "torch._functorch": "FB0017",
    "torch._tensor_str": "FB0003",
    "torch.autograd.function": "FB0007",
    "torch.distributed": "FB0017",
    "torch.multiprocessing": "FB0017",
    "torch.utils.checkpoint": "FB0017",
    "torch.utils.data": "FB0017",
    "torch.serialization": "FB0017",
    "torch.random": "FB0024",
    "torch.jit": "FB0017",
    "torch.fx": "FB0017",
    "torch.cuda": "FB0017",
    "torch.profiler": "FB0017",
    "torch._subclasses": "FB0017",
    "flambeau_capture.api": "FB0017",
}


def before_inlining(tx: Tracer, fn: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    real = fn.real
    if real is None:
        return None
    dispatched = without_repr_guard(tx, fn, args, kwargs) or dispatch(tx, fn, args, kwargs)
    if dispatched is not None:
        return dispatched
    handler = HANDLERS.get(real)
    if handler is not None:
        bind(tx, fn, args, kwargs)  # raises what Python does for arguments that do not fit
        return handler(tx, args, kwargs)
    if compat.marked_constant(real):
        return call_at_capture(tx, real, args, kwargs)
    refuse_packed(fn, args, kwargs)
    reason = BREAKS.get(real)
    mark = real.__dict__.get(MARK)
    if mark in (DISABLED, BREAK):
        reason = "FB0006"
    if reason is not None:
        raise Break(reason, f"call_function {describe_call(real, args)}")
    if mark == IN_GRAPH or is_graph_function(real):
        return graph_call(tx, "call_function", real, args, kwargs)
    foreign = compat.is_foreign_break(real, tx.frame_code().co_filename)
    if foreign or compat.is_foreign_mark(real):
        return Constant(None)
    hidden = compat.hidden_from_others(real)
    if hidden is not None:
        return tx.call(tx.wrap(hidden, ConstantSource(hidden, hidden.__name__)), args, kwargs)
    if compat.is_disabled(real):
        raise Break("FB0006", f"call_function {describe_call(real, args)}")
    made = transformed(tx, fn)
    if made is not None:
        return tx.call(made, args, kwargs)
    module = real.__module__ or ""
    if module == "importlib.metadata" and real.__name__ in ("version", "packages_distributions"):
        return evaluate_call(tx, real, args, kwargs)  # what is installed stays for a process
    if real.__name__ == "is_in_onnx_export" and module == "torch.onnx":
        return Constant(False)  # known by name: torch imports its exporter when it is asked for
    if real.__name__ == "expect_true" and module == compat.SYMBOLIC_SHAPES:
        return Constant(args[0].truth(tx))
    if module == "numpy":
        found: Value = rules().call(tx, real, args, kwargs)
        return found
    while module:
        reason = NOT_INTERPRETED.get(module)
        if reason is not None:
            raise Break(reason, f"call_function {describe_call(real, args)}")
        module = module.rpartition(".")[0]
    return None
