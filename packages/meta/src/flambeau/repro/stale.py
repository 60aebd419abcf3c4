"""Call sequences that stale code answers.

In: a function, calls. Out: a `Difference`, or None. Invariant: a call counts as answered by stale
code only where the same call is right when it is the first one: a guard is missing, nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import flambeau_capture
import torch
from flambeau_capture import CaptureWarning

from flambeau.repro.function_text import FunctionText, is_constant
from flambeau.testing.comparison import Difference, Observed, difference
from flambeau.testing.isolated_run import copied, observe

Function = Callable[..., Any]
State = Mapping[str, Any]


@dataclass(frozen=True)
class RecordedCall:
    """One call. state: plain values that the function finds around it at that moment, by place:
    `NAME`, or `NAME.attribute.attribute` of a module that it reads or is given (`0` is the first
    argument)."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    state: State = field(default_factory=dict)

    def copy(self) -> RecordedCall:
        """With copies of its tensors; modules stay the same objects."""
        args, kwargs = copied((self.args, dict(self.kwargs)))
        return replace(self, args=args, kwargs=kwargs)


def state_of(text: FunctionText, args: Sequence[Any]) -> dict[str, Any]:
    """The plain values that a function finds now, by place."""
    found = dict(text.constants)
    for name, module in _modules(text.held, args).items():
        for path, inner in module.named_modules():
            for key, value in vars(inner).items():
                if is_constant(value) and not key.startswith("_"):
                    found[".".join(filter(None, (name, path, key)))] = value
    return found


def set_state(function: Function, args: Sequence[Any], state: State) -> None:
    """Put plain values where the function finds them."""
    scope = function.__globals__  # type: ignore[attr-defined]
    modules = _modules(scope, args)
    for place, value in state.items():
        name, dot, path = place.partition(".")
        if not dot:
            scope[name] = value
            continue
        inner, _, key = path.rpartition(".")
        owner = modules[name].get_submodule(inner)
        if key not in vars(owner) or vars(owner)[key] != value:
            setattr(owner, key, value)


def _modules(held: Mapping[str, Any], args: Sequence[Any]) -> dict[str, torch.nn.Module]:
    named = {**held, **{str(place): value for place, value in enumerate(args)}}
    return {name: each for name, each in named.items() if isinstance(each, torch.nn.Module)}


def stale(function: Function, calls: Sequence[RecordedCall]) -> Difference | None:
    """How the last call differs after the others; None where it does not, or does so alone too."""
    last = calls[-1]
    set_state(function, last.args, last.state)
    expected = _observed(function, last)
    if expected.error is not None:
        return None
    found = difference(expected, _after(function, calls))
    if found is None or difference(expected, _after(function, calls[-1:])) is not None:
        return None
    return found


def _after(function: Function, calls: Sequence[RecordedCall]) -> Observed:
    """What the last of some calls gives, compiled from nothing."""
    compiled = flambeau_capture.optimize("eager")(function)
    got = Observed()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        for call in calls:
            set_state(function, call.args, call.state)
            got = _observed(compiled, call)
    return got


def _observed(function: Function, call: RecordedCall) -> Observed:
    return observe(function, call.args, dict(call.kwargs), backward=False)


def two_calls(
    function: Function, calls: Sequence[RecordedCall]
) -> tuple[RecordedCall, RecordedCall] | None:
    """Of some calls, one that compiles and the last, which it misleads."""
    for call in reversed(calls[:-1]):
        if stale(function, [call, calls[-1]]) is not None:
            return call, calls[-1]
    return None
