"""First steps of optimizers: state that is not there yet, gradients that may not be.

In: a call of `_init_group`, which makes what a parameter's state lacks; one of `zero_grad`. Out:
nothing; the state is there before the graph runs, and what gradients were there is not read.
Invariant: torch's own code makes the state, in the modes that the program is in; it is taken back
where the graph that would have made it raises or is not compiled, and left to the graph where the
frame knows, or has changed, what it depends on.
"""

from __future__ import annotations

import collections
import inspect
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, unpack
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.functions.call_rules import RULES, Action, CallRule
from flambeau_capture.values.tensors.tensor import TensorValue, has_place

Optimizer = torch.optim.Optimizer


class _Made:
    """The state that a call has made. Calling this takes it back, unless it was used since."""

    def __init__(self, optimizer: Optimizer, before: dict[torch.Tensor, bool]) -> None:
        self._optimizer = weakref.ref(optimizer)
        new = [each for each in optimizer.state if not before.get(each)]
        self._new = [(weakref.ref(each), each in before) for each in new]
        made = [one for each in new for one in optimizer.state[each].values()]
        self.tensors = [(weakref.ref(one), one._version) for one in made]

    def __call__(self) -> None:
        optimizer, tensors = self._optimizer(), [(made(), then) for made, then in self.tensors]
        if optimizer is None or any(x is None or x._version != then for x, then in tensors):
            return
        for reference, was_there in self._new:
            parameter = reference()
            if parameter is None:
                continue
            if was_there:
                optimizer.state[parameter].clear()
            else:
                del optimizer.state[parameter]
        self._new.clear()


def _make_state(step: CodeType, tx: Tracer, called: Any, args: Args, kwargs: Kwargs) -> None:
    """Let torch make the state of every group, where they are what they were before the frame, and
    torch's own `step` calls, which steps by every one."""
    optimizer = getattr(args[0], "real", None) if args else None
    lists = args[2:]
    whole = tx.frames[-1].code is step and not kwargs
    if not whole or not all(isinstance(each, ListValue) for each in lists):
        return
    if not isinstance(optimizer, Optimizer) or type(optimizer.state) is not collections.defaultdict:
        return
    groups, state = optimizer.param_groups, optimizer.state
    parameters = [each for group in groups for each in group["params"]]
    if all(map(state.get, parameters)) or not _is_as_before(tx, args[0], optimizer):
        return
    values = [tx.heap.find(each) for each in parameters]
    if not all(each is None or _keeps_its_data(each) for each in values):
        return
    written = [None if each is None else each.written_grad for each in values]
    gradients = dict(zip(parameters, written, strict=True))
    had, attributes = {each: bool(kept) for each, kept in state.items()}, {**vars(optimizer)}
    try:
        with _shown(gradients):
            for group in groups:
                called.real(optimizer, group, *([] for _ in lists))
    except Exception:  # it raises again where the call is interpreted, or is refused there
        whole = False
    else:
        now = vars(optimizer)
        whole = now.keys() == attributes.keys() and all(now[k] is v for k, v in attributes.items())
    made = _Made(optimizer, had)
    if whole and made.tensors:
        tx.graph.made_before.append(made)
    else:
        vars(optimizer).clear()
        vars(optimizer).update(attributes)
        made()


def _is_as_before(tx: Tracer, own: Any, optimizer: Optimizer) -> bool:
    """Whether nothing is known of an optimizer's state, and no choice of its groups has changed."""
    groups, heap = optimizer.param_groups, tx.heap
    choices = [one for group in groups for name, one in group.items() if name != "params"]
    known = [heap.find(one) for one in choices if isinstance(one, torch.Tensor)]
    read = [each for each in known if each is not None and each.in_graph()]
    parts = [groups, *groups, *(group["params"] for group in groups)]
    return (
        tx.graph is tx.graph.outermost
        and all(heap.find(x) is None for x in (optimizer.state, *optimizer.state.values()))
        and own.written.keys().isdisjoint({"state", "param_groups", "defaults"})
        and not any(heap.is_changed(heap.find(each)) for each in parts)
        and not tx.graph.effects.writes_to([each.fake for each in read])
    )


def _keeps_its_data(value: Any) -> bool:
    if not isinstance(value, TensorValue) or value.calls or value.written_data is not None:
        return False
    gradient = value.written_grad
    return not isinstance(gradient, TensorValue) or compat.has_form(gradient.fake)


@contextmanager
def _shown(gradients: dict[torch.Tensor, Any]) -> Iterator[None]:
    """Parameters with the gradients that they have by now in the frame, of whatever values."""
    before = {each: each.grad for each in gradients}
    try:
        for parameter, written in gradients.items():
            if written is not None:
                parameter.grad = None if is_none(written) else compat.like_fake(written.fake)
        yield
    finally:
        for parameter, kept in before.items():
            parameter.grad = kept


_ZERO_GRAD = inspect.signature(Optimizer.zero_grad)


def _end_gradients(tx: Tracer, called: Any, args: Args, kwargs: Kwargs) -> None:
    """Gradients that are set to nothing, whatever they are: none of them is read."""
    try:
        given = _ZERO_GRAD.bind(*args, **kwargs).arguments
    except TypeError:  # that it raises is the program's
        return
    flag = given.get("set_to_none", Constant(True))
    if tx.graph is tx.graph.outermost and isinstance(flag, Constant) and flag.value is True:
        for each in _parameters(tx, given["self"]):
            if isinstance(each, TensorValue) and has_place(tx, each) and each.fake.is_leaf:
                each.set_attr(tx, "grad", Constant(None))


def _parameters(tx: Tracer, own: Value) -> Iterator[Value]:
    if issubclass(own.cls, torch.nn.Module):
        listed = ("parameters", "named_parameters", "named_modules")
        if all(getattr(own.cls, name) is getattr(torch.nn.Module, name) for name in listed):
            yield from unpack(tx, tx.call(tx.get_attr(own, "parameters"), [], {}))
        return
    for group in unpack(tx, tx.get_attr(own, "param_groups")):
        yield from unpack(tx, group.get_item(tx, Constant("params")))


for _called in (Optimizer.zero_grad, torch.nn.Module.zero_grad):
    RULES[inspect.unwrap(_called)] = CallRule(Action.INLINE, handler=_end_gradients, of_called=True)
for _kind in vars(torch.optim).values():
    _method = getattr(_kind, "_init_group", None) if isinstance(_kind, type) else None
    if _method is not None:
        _make = partial(_make_state, inspect.unwrap(_kind.step).__code__)
        RULES[_method] = CallRule(Action.INLINE, handler=_make, of_called=True)
