"""Other compilers' wrappers, marks and breaks, which capture looks through.

In: a function that the program calls. Out: what it stands for. Invariant: these are known by their
names; nothing of another compiler is loaded or called. Tried on torch 2.11, 2.13 and 2.14.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch


def scripted_from(fn: Any) -> Any:
    """The Python function that torch.jit.script has made a function from, where it is known."""
    return getattr(fn, "_torchdynamo_inline", None)


def hidden_from_others(fn: Any) -> Any:
    """What torch keeps another compiler from looking into, by a wrapper; None if it is none."""
    if fn.__code__.co_filename == _COMPILE_FILE:
        return getattr(fn, "__wrapped__", None)
    region = fn.__dict__.get(_REGION)
    if region is not None:  # to be compiled once, which is a wish about time
        return region
    if fn.__qualname__ in _BOOKKEEPING and fn.__module__ == "torch._dynamo.mutation_guard":
        return fn.__closure__[0].cell_contents  # of nn.Module, once that compiler has run
    if fn.__qualname__ == _WITHIN and _of_that_compiler(fn):
        parts = _variables(fn)
        if type(parts["self"]).__name__ == _SETTINGS:
            return parts["func"]
    if getattr(fn, UNSEEN, False):
        # what torch hides of its own code, once that compiler has run, is no word of the program
        inner = getattr(fn, "__wrapped__", None)
        if isinstance(inner, FunctionType) and inner.__code__.co_filename.startswith(TORCH_FOLDER):
            return inner
    return None


#: on a function: `torch.compiler.nested_compile_region` has made it of this one
_REGION = "__marked_compile_region_fn__"
#: a function within a context, and the context that sets options of that compiler alone
_WITHIN, _SETTINGS = "wrap_dunder_call_ctx_manager.<locals>.inner", "DynamoConfigPatchProxy"
_BOOKKEEPING = frozenset(
    f"install_generation_tagging_init.<locals>.{name}"
    for name in ("patched_init", "patched_setstate")
)


TORCH_FOLDER = str(Path(torch.__file__).parent) + os.sep
_COMPILE_FILE = TORCH_FOLDER + "_compile.py"
_THAT_COMPILER = os.path.join(TORCH_FOLDER, "_dynamo", "")


def _variables(fn: Any) -> dict[str, Any]:
    """What a function has of those around it."""
    cells = zip(fn.__code__.co_freevars, fn.__closure__, strict=True)
    return {name: cell.cell_contents for name, cell in cells}


def _of_that_compiler(fn: Any) -> bool:
    """Whether a function is of torch's own compiler, by the name of its module."""
    return (fn.__module__ or "").startswith("torch._dynamo")


FOREIGN_MARKS = frozenset(
    {"mark_static_address", "mark_static", "mark_dynamic", "maybe_mark_dynamic", "mark_unbacked"}
)


def is_foreign_mark(fn: Any) -> bool:
    """Whether a function only gives another compiler a hint about a tensor."""
    return fn.__name__ in FOREIGN_MARKS and _of_that_compiler(fn)


Bounds = tuple[int | None, int | None]


def foreign_dims(tensor: Any) -> tuple[dict[int, Bounds], frozenset[int]]:
    """The dimensions that `torch._dynamo`'s marks leave open, with their bounds, and those that
    they keep fixed. As there, a mark to leave one open counts for more; one that no value is known
    of (`mark_unbacked`) is open here, for a graph sees no sizes of a call."""
    found: dict[int, Bounds] = {}
    for name in _OPEN_MARKS:
        found |= dict.fromkeys(getattr(tensor, name, ()), (None, None))
    found |= dict(getattr(tensor, "_dynamo_unbacked_bounds", ()))
    for one in getattr(tensor, "_dynamo_dynamic_range", ()):
        found[one.dim] = (one.min, one.max)
    return found, frozenset(getattr(tensor, "_dynamo_static_indices", ())) - found.keys()


_OPEN_MARKS = tuple(
    f"_dynamo_{kind}_indices" for kind in ("dynamic", "weak_dynamic", "unbacked", "strict_unbacked")
)


def required_dims(tensor: Any) -> frozenset[int]:
    """The dimensions that `torch._dynamo.mark_dynamic` leaves open: no constants, or an error."""
    return frozenset(getattr(tensor, "_dynamo_dynamic_indices", ()))


def is_foreign_question(fn: Any) -> bool:
    """Whether a function is another compiler's `is_compiling`."""
    return fn.__name__ == "is_compiling" and _of_that_compiler(fn)


def compiled_by_torch(fn: Any) -> bool:
    """Whether a function is what torch's own compiler made of another, or calls a module's."""
    if fn.__qualname__ == "OptimizedModule.__call__":
        return _of_that_compiler(fn)
    made = "_torchdynamo_orig_callable" in fn.__dict__ and not fn.__dict__.get(UNSEEN)
    return made and fn.__code__.co_filename.startswith(_THAT_COMPILER)  # wrappers copy attributes


def marked_constant(fn: Any) -> bool:
    """Whether the program vouches that a function's result never changes
    (`torch.compiler.assume_constant_result`)."""
    return getattr(fn, "_dynamo_marked_constant", False) is True


def errs_on_breaks() -> tuple[dict[str, Any], str] | None:
    """The namespace and the name of what `torch._dynamo.error_on_graph_break` sets; None where
    the program cannot have called it."""
    module = sys.modules.get("torch._dynamo.utils")
    return None if module is None else (vars(module), _ERRS)


def switches_errors(fn: Any) -> bool:
    """Whether a function is part of `torch._dynamo.error_on_graph_break`, or has its context."""
    if fn.__qualname__ == _WITHIN and _of_that_compiler(fn):
        return type(_variables(fn)["self"]).__name__ == _SWITCH
    return fn.__qualname__.partition(".")[0] in _SWITCHES and _of_that_compiler(fn)


_ERRS, _SWITCH = "_error_on_graph_break", "ErrorOnGraphBreakDecoratorContextManager"
_SWITCHES = frozenset({_SWITCH, "error_on_graph_break", f"_get{_ERRS}", f"_set{_ERRS}"})
"""Names with which the qualified names of its parts begin."""


def callback_setter() -> Callable[[Any], Any] | None:
    """What sets the callback of torch's own frame hook on this thread and answers the one before:
    with None in its place that hook looks at nothing. It is part of torch's C module, loaded or
    not; None where a torch has none."""
    hook = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    return getattr(hook, "set_eval_frame", None)


#: on a function: torch's own compiler does not look into it (as `torch.compiler.disable` marks one)
UNSEEN = "_torchdynamo_disable"
_CALL = "__call__"


def is_foreign_break(fn: Any, caller: str) -> bool:
    """Whether a call requests a break that only another compiler needs here."""
    return requests_break(fn) and caller.startswith(TORCH_FOLDER)


def requests_break(fn: Any) -> bool:
    """Whether a function is another compiler's `graph_break`."""
    return fn.__name__ == "graph_break" and _of_that_compiler(fn)


def is_disabled(fn: FunctionType) -> bool:
    """Whether a function is not to be compiled: what `torch.compiler.disable` answers, or one that
    carries its mark. Our own functions carry it for torch's compiler."""
    return fn.__dict__.get(UNSEEN) is True and not (fn.__module__ or "").startswith("flambeau")


def mark_disabled_alone(fn: Any) -> None:
    """Mark a wrapper as `torch.compiler.disable(recursive=False)` marks its own."""
    fn.__dict__[UNSEEN] = True
    fn.__dict__["_torchdynamo_disable_recursive"] = False


def disabled_alone(fn: FunctionType) -> CodeType | None:
    """The code that `torch.compiler.disable(recursive=False)` keeps from being compiled, where
    what it calls is; None where all below runs as it is."""
    if fn.__dict__.get("_torchdynamo_disable_recursive", True):
        return None
    inner = fn.__dict__.get("__wrapped__")
    if not isinstance(inner, FunctionType | MethodType):
        inner = getattr(
            type(inner), "forward" if isinstance(inner, torch.nn.Module) else _CALL, None
        )
    code = getattr(inner, "__code__", None)
    return code if isinstance(code, CodeType) else fn.__code__
