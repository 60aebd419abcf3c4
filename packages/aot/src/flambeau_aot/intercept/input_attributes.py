"""Answers that the stand-in of an input would give otherwise than the input.

In: what a program reads of an input, or does to it, but for its values: hooks, `grad`, `is_leaf`,
`detach_`, `requires_grad_`. Out: eager's answer, a note for every later call, or a refusal.
Invariant: a hook on an input is never traced: it sees the whole gradient of the input, of which the
program may give only a part, and runs when the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch

from flambeau_aot._torch_compat import FakeTensor, is_functional
from flambeau_aot.intercept.registry import Call, Interception, getter, intercept, refuses
from flambeau_aot.refusals import refusal

Hook = Callable[[torch.Tensor], Any]

_DEPTH = 6


class Handle:
    """What stands for the handle of a hook while the program is traced."""

    def remove(self) -> None:
        """Refused: the hook is put on the input after the program has run."""
        raise refusal("AO0070")


class InputHooks:
    """The hooks of one trace, by stand-in, in order."""

    def __init__(self, histories: Mapping[int, Any]) -> None:
        """histories: by stand-in, the gradient function that it had before the program ran."""
        self.histories = histories
        self.found: list[tuple[int, Hook]] = []

    def put(self, target: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle:
        """Note a hook; raises where it is not the input's, or holds a value of the trace."""
        (hook,) = (*args[1:], *kwargs.values())
        if id(target) not in self.histories:
            raise refusal("AO0071")
        if target.grad_fn is not self.histories[id(target)]:
            raise refusal("AO0072")
        if _holds_traced(hook, _DEPTH, set()):
            raise refusal("AO0073")
        self.found.append((id(target), hook))
        return Handle()


def _holds_traced(value: Any, depth: int, seen: set[int]) -> bool:
    """Whether a callable reaches, by what it closes over, a tensor that stands for another."""
    if isinstance(value, torch.Tensor):
        return isinstance(value, FakeTensor) or is_functional(value)
    if id(value) in seen or isinstance(value, (str, bytes, int, float, complex, type(None))):
        return False
    seen.add(id(value))
    parts = _parts(value)
    if parts and not depth:
        return True  # too deep to know
    return any(_holds_traced(part, depth - 1, seen) for part in parts)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, FunctionType):
        cells = [_content(cell) for cell in value.__closure__ or ()]
        return [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if isinstance(value, (MethodType, BuiltinFunctionType)):
        return [value.__self__]
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, type) or type(value).__module__ == "builtins":
        return []
    parts = [getattr(value, name, None) for name in ("func", "args", "keywords")]
    return [*parts, *getattr(value, "__dict__", {}).values()]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


@intercept(torch.Tensor.register_hook)
def register_hook(trace: Interception, call: Call) -> Any:
    """On an input, a hook for every call; on another tensor, part of the trace."""
    if id(call.target) in trace.facts and call.target.requires_grad:
        return trace.tracer.input_hooks.put(call.target, call.args, call.kwargs)
    trace.tracer.hooked.append(call.target)
    return NotImplemented


_GRAD = getter("grad")
_UNANSWERED = {
    torch.Tensor.register_post_accumulate_grad_hook: "AO0067",
    _GRAD: "AO0068",
    getter("grad_fn"): "AO0069",
}
"""What the stand-in of an input that requires grad cannot answer, and the refusal."""


@intercept(*_UNANSWERED)
def unanswered(trace: Interception, call: Call) -> Any:
    """Refused for an input that requires grad, or did before it was detached."""
    key = id(call.target)
    required = call.target.requires_grad or (key in trace.tracer.detached and call.func == _GRAD)
    if key in trace.facts and required:
        raise refusal(_UNANSWERED[call.func])
    return NotImplemented


refuses("AO0063", torch.Tensor.retain_grad)


@intercept(getter("is_leaf"))
def is_leaf(trace: Interception, call: Call) -> Any:
    """True of a leaf that requires grad, whose stand-in has a history."""
    known = trace.facts.get(id(call.target))
    return True if known is not None and known.leaf else NotImplemented


@intercept(torch.Tensor.requires_grad_, torch.Tensor.requires_grad.__set__)  # type: ignore[attr-defined]
def begin_grad(trace: Interception, call: Call) -> Any:
    """Refused for an input that was detached, or is part of a synthetic base."""
    known = trace.facts.get(id(call.target))
    if known is not None and known.part and not known.requires_grad:
        if True in (call.args[1:] or (True,)):
            raise refusal("AO0064")
    if id(call.target) in trace.tracer.detached:
        raise refusal("AO0065")
    return NotImplemented


@intercept(torch.Tensor.detach_)
def detach_(trace: Interception, call: Call) -> Any:
    """Noted for an input; whether it is a view, which eager checks, its stand-in cannot say."""
    if (known := trace.facts.get(id(call.target))) is not None:
        if known.part or known.has_views:
            raise refusal("AO0066")
        if known.is_view:
            raise RuntimeError("Can't detach views in-place. Use detach() instead.")
        trace.tracer.detached.add(id(call.target))
    return NotImplemented
