"""Functions of graphs that hold derivatives of the program: autograd functions, hooks of modules.

In: bodies captured as graphs of their own, and tensors. Out: results whose derivatives the bodies
compute. Invariant: autograd sees one node a call, as where the program itself runs.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import BackwardHook

from flambeau_capture import _torch_compat as compat
from flambeau_capture._native import disabled
from flambeau_capture.graph.functions import Body, UndefinedCase, apply_function


def hooked_inputs_call(count: int, places: tuple[int, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors among a module's arguments, which are `count` and have them at these places,
    where backward hooks of the module get their derivatives."""
    hook = BackwardHook(None, [], [])
    arguments = _spread(count, places, tensors)
    given = hook.setup_input_hook(arguments)
    found = tuple(given[place] for place in places)
    compat.keep_in_history(found, MODULE_HOOK, hook)
    return found


def hooked_outputs_call(
    before: Body | None,
    after: Body | None,
    spec: tuple[int, tuple[int, ...], tuple[int, int]],
    *tensors: Tensor,
) -> Tensor:
    """A module's result, of hooks that are bodies: one `before` the module's derivative, one
    `after` it. spec: how many arguments the module has, and which of them get a derivative; where
    the first body's own tensors begin and end, after the arguments and the result."""
    count, wanted, (first, last) = spec
    hook = compat.kept_in_history(tensors[: first - 1], MODULE_HOOK)

    def run_before(_: None, outer: tuple[Any, ...]) -> Any:
        return _run(before, outer, tensors[first:last])

    def run_after(_: None, inner: tuple[Any, ...], outer: tuple[Any, ...]) -> Any:
        given = *(inner[place] for place in wanted), *outer
        found = _run(after, given, tensors[last:])
        return None if found is None else _spread(count, wanted, found)

    hook.user_pre_hooks += [run_before] * (before is not None)
    hook.user_hooks += [run_after] * (after is not None)
    found: Tensor = hook.setup_output_hook(tensors[first - 1])
    return found


def _run(body: Body | None, derivatives: tuple[Any, ...], others: tuple[Tensor, ...]) -> Any:
    if any(derivative is None for derivative in derivatives):
        raise RuntimeError(_UNDEFINED)
    assert body is not None
    return disabled(body)(*derivatives, *others)


_UNDEFINED = (
    "an undefined derivative comes to a backward hook of a module that was compiled for derivatives"
    " that are there (FB0007); run the module uncompiled"
)


MODULE_HOOK = "backward hook of a module"


def _spread(count: int, places: Sequence[int], values: Sequence[Any]) -> tuple[Any, ...]:
    """So many values, these at their places, None elsewhere."""
    found = dict(zip(places, values, strict=True))
    return tuple(found.get(place) for place in range(count))


def autograd_call(
    forward: Body,
    backward: Body,
    cases: tuple[UndefinedCase, ...],
    spec: tuple[int, int, int, tuple[bool, ...], tuple[int, ...], tuple[int, ...]],
    once: bool,
    name: str,
    *tensors: Tensor,
) -> Any:
    """A `torch.autograd.Function` of its bodies, whose errors have this name. cases: with
    `set_materialize_grads(False)`, the backward for derivatives of which some are undefined. spec:
    how many of the tensors are its arguments, how many results it has, where what is kept for the
    backward body ends (after that it is kept for the cases, or unread), which of the values that it
    keeps autograd is to watch for writes, which results have no derivative, and which are arguments
    written to. once: whether it is marked with `once_differentiable`."""
    return apply_function(_kind(name, once, bool(cases)), forward, backward, cases, spec, *tensors)


class _Function(torch.autograd.Function):
    """The forward body answers the results, then what the backward bodies take after the
    derivatives of the results; these answer a derivative, or None, for every argument."""

    @staticmethod
    def forward(
        ctx: Any, forward: Body, backward: Body, cases: Any, spec: Any, *tensors: Tensor
    ) -> Any:
        arguments, results, end, checked, without, dirty = spec
        found = forward(*tensors)
        kept = found[results:]
        ctx.save_for_backward(*(x if own else None for x, own in zip(kept, checked)))
        ctx.kept = [None if own else x for x, own in zip(kept, checked)]
        ctx.watches = any(checked)
        ctx.mark_non_differentiable(*(found[place] for place in without))
        ctx.mark_dirty(*(found[place] for place in dirty))
        ctx.body, ctx.end, ctx.cases = backward, end, cases
        ctx.missing = len(tensors) - arguments
        return tuple(found[:results])

    @staticmethod
    def backward(ctx: Any, *derivatives: Tensor) -> Any:
        # reading what is saved is an error once it is freed; eager's backward reads nothing of it
        saved = ctx.saved_tensors if ctx.watches else ctx.kept
        kept = [b if a is None else a for a, b in zip(saved, ctx.kept)]
        defined = tuple(derivative is not None for derivative in derivatives)
        body, given, first, last = ctx.body, derivatives, 0, ctx.end
        for pattern, other, ends in ctx.cases:
            if pattern == defined:
                body, given = other, tuple(x for x in derivatives if x is not None)
                first, last = ends
        if isinstance(body, tuple):
            raise getattr(builtins, body[0], RuntimeError)(body[1])
        found = disabled(body)(*given, *kept[first:last])  # it is captured already
        return (None, None, None, None, *found, *(None,) * ctx.missing)


class _OnceFunction(_Function):
    """One whose backward is no part of the graph of a second derivative."""

    backward: Any = staticmethod(torch.autograd.function.once_differentiable(_Function.backward))


class _BareFunction(_Function):
    """One that gets which derivatives are undefined, as its forward's names say."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        ctx.set_materialize_grads(False)
        return _Function.forward(ctx, *arguments)


class _BareOnceFunction(_BareFunction):
    """Both."""

    backward: Any = staticmethod(_OnceFunction.backward)


_KINDS: dict[tuple[bool, bool], type[torch.autograd.Function]] = {
    (False, False): _Function,
    (False, True): _BareFunction,
    (True, False): _OnceFunction,
    (True, True): _BareOnceFunction,
}


@functools.lru_cache
def _kind(name: str, once: bool, bare: bool) -> type[torch.autograd.Function]:
    """A class that autograd's errors name as the program's."""
    return type(name, (_KINDS[once, bare],), {})
