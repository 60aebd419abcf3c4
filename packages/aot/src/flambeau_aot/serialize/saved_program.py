"""Saved program: plain data, and a callable again without tracing.

In: a `Compiled`. Out: data of JSON's kinds and tensors; from these, static tensors and the compiled
halves, a `Compiled` again.
Invariant: only the classes of `CLASSES` and values with a spelling of their own are written; what
has none raises `CannotSave` with its name, and nothing that is read is run.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch

import flambeau_aot.eager_kernels.ctc  # (saved programs call its operators, and the next one's)
import flambeau_aot.eager_kernels.recurrent  # noqa: F401
from flambeau_aot import runtime_plan as plans
from flambeau_aot._torch_compat import is_operator, operator_named, pytree
from flambeau_aot.errors import AotError
from flambeau_aot.interface import Boxed, Report
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.call import Compiled, Uncompiled, direct, inference_call, training_call
from flambeau_aot.runtime.check import Checked, Contract
from flambeau_aot.runtime.differentiation import Differentiation
from flambeau_aot.runtime.prologue import BoundPlan
from flambeau_aot.runtime.saved_values import Crossing, HigherCall, HigherOrder
from flambeau_aot.sizes import Sized, TensorLayout, only_arithmetic


class CannotSave(AotError):
    """A program that holds what has no spelling as data, with its name."""


@dataclass(frozen=True)
class Stored:
    """A compiled program but for its static tensors and its compiled halves.

    arguments: how many a call has. constants: tensors that the trace found in the program, bound
    after its own static ones. shield: whether a call without derivatives runs with grad disabled.
    backward, crossing: None without a backward part. around: what is around a program whose tensors
    are distributed, as data (`saved_subclasses`). unsaved: why that has no such form.
    """

    plan: plans.RuntimePlan
    arguments: int
    constants: tuple[torch.Tensor, ...]
    grad_mode: bool
    shield: bool
    forward: Contract
    report: Report
    backward: Contract | None = None
    crossing: Crossing | None = None
    higher: HigherOrder | None = None
    around: dict[str, Any] | None = None
    unsaved: str = ""

    def data(self) -> dict[str, Any]:
        """All but the constants, of JSON's kinds. Raises CannotSave."""
        if self.unsaved:
            raise CannotSave(self.unsaved)
        return {
            field.name: encoded(getattr(self, field.name))
            for field in fields(self)
            if field.name != "constants"
        }


def stored_from(data: Mapping[str, Any], constants: Sequence[torch.Tensor]) -> Stored:
    """What `Stored.data` was given. Raises AotError for data of another form."""
    try:
        known = {name: decoded(value) for name, value in data.items()}
        return Stored(constants=tuple(constants), **known)
    except (KeyError, TypeError, ValueError, LookupError) as error:
        raise AotError(f"not a stored program: {type(error).__name__}: {error}") from error


def restore(
    stored: Stored,
    static: Sequence[torch.Tensor],
    forward: Boxed,
    backward: Boxed | None = None,
    higher: HigherCall | None = None,
    again: Callable[[Sequence[Any]], Compiled] | None = None,
) -> Compiled:
    """The program around its compiled halves.

    static: the program's own static tensors, in the order in which it was compiled. higher: its
    derivatives; without it a derivative of second order is refused. again: compiles it for
    arguments that share memory in another way.
    """
    count = stored.plan.inputs.static - len(stored.constants)
    if stored.around is not None or stored.unsaved:
        raise AotError("a program of distributed tensors is restored with the graph it is of")
    if len(static) != count:
        raise AotError(f"the program has {count} parameters and buffers, given are {len(static)}")
    bound = BoundPlan(stored.plan, [*static, *stored.constants], stored.arguments)
    report = replace(stored.report, seconds={})
    first, uncompiled = Checked(forward, stored.forward), Uncompiled(None)
    if stored.backward is None or stored.crossing is None:
        run = inference_call(bound, first, stored.grad_mode, stored.shield, uncompiled)
    else:
        if backward is None:
            raise AotError(f"{stored.report.name} has a backward part, and none is given")
        order = _higher(stored.higher, higher)
        own = Differentiation(stored.plan, stored.crossing, order)
        run = training_call(bound, own, first, Checked(backward, stored.backward), uncompiled)
    compiled = direct(Compiled(run, report, None, None, None, None, again, stored))
    uncompiled.of = weakref.ref(compiled)
    return compiled


def _higher(known: HigherOrder | None, call: HigherCall | None) -> HigherOrder | None:
    if known is None or call is not None:
        return known and replace(known, call=call)
    why = known.refusal or refusal("AO0160").message
    return replace(known, read=(), kept=(), refusal=why, unrepeatable=why)


CLASSES: Mapping[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        *(each for each in vars(plans).values() if is_dataclass(each) and isinstance(each, type)),
        Crossing,
        TensorLayout,
        Contract,
        HigherOrder,
        Report,
        Sized,
    )
}

_GIVEN_BY_SIZES: Mapping[str, Mapping[str, Any]] = {
    "TensorLayout": {"shape": (), "stride": ()},
    "ViewStep": {"args": (), "kwargs": {}},
}
"""What is left out of an object whose `sized` computes it at each call, and what stands there."""

_NAMED: Mapping[str, type[Any]] = {
    "dtype": torch.dtype,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}


def encoded(value: Any) -> Any:
    """A value of JSON's kinds that `decoded` gives `value` for. Raises CannotSave."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is complex:
        return {"complex": [encoded(value.real), encoded(value.imag)]}
    if kind is list:
        return [encoded(item) for item in value]
    if kind in (tuple, torch.Size):
        return {"tuple": [encoded(item) for item in value]}
    if kind is frozenset:
        return {"frozenset": [encoded(item) for item in sorted(value)]}
    if isinstance(value, Mapping):
        return {"dict": [[encoded(key), encoded(item)] for key, item in value.items()]}
    if kind is slice:
        return {"slice": [encoded(part) for part in (value.start, value.stop, value.step)]}
    if kind is torch.device:
        return {"device": str(value)}
    for name, cls in _NAMED.items():
        if kind is cls:
            return {name: str(value).removeprefix("torch.")}
    if is_operator(value):
        return {"operator": str(value)}
    if isinstance(value, pytree.TreeSpec):
        return {"tree": _tree(value)}
    if CLASSES.get(kind.__name__) is kind:
        own = {
            each.name: getattr(value, each.name)
            for each in fields(value)
            if each.init and each.compare
        }
        if own.get("sized") is not None:
            own |= _GIVEN_BY_SIZES[kind.__name__]
        return {"class": kind.__name__, "fields": {n: encoded(item) for n, item in own.items()}}
    raise CannotSave(f"a {kind.__module__}.{kind.__qualname__} has no form as data: {value!r}")


def _tree(spec: Any) -> str:
    try:
        return pytree.treespec_dumps(spec)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise CannotSave(f"the structure {spec} has no form as data: {error}") from error


def decoded(value: Any) -> Any:
    """What `encoded` was given."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value:
        cls = CLASSES[value["class"]]
        given = {name: decoded(item) for name, item in value["fields"].items()}
        if cls is Sized and not only_arithmetic(given["text"]):
            raise ValueError(f"{given['text']!r} is more than arithmetic on sizes")
        return cls(**given)
    ((kind, content),) = value.items()
    return _DECODE[kind](content)


_DECODE: Mapping[str, Callable[[Any], Any]] = {
    "float": float,
    "complex": lambda parts: complex(*map(decoded, parts)),
    "tuple": lambda items: tuple(map(decoded, items)),
    "frozenset": lambda items: frozenset(map(decoded, items)),
    "dict": lambda items: {decoded(key): decoded(item) for key, item in items},
    "slice": lambda parts: slice(*map(decoded, parts)),
    "device": torch.device,
    "dtype": lambda name: _attribute(name, torch.dtype),
    "layout": lambda name: _attribute(name, torch.layout),
    "memory_format": lambda name: _attribute(name, torch.memory_format),
    "operator": operator_named,
    "tree": pytree.treespec_loads,
}


def _attribute(name: str, cls: type[Any]) -> Any:
    found = getattr(torch, name, None)
    if not isinstance(found, cls):
        raise LookupError(f"torch has no {cls.__name__} {name}")
    return found
