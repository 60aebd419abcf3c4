"""Registry of interception rules, by the torch callable that a program calls.

In: rules, by decorator. Out: the tables that the tracing mode looks up.
Invariant: a rule answers a call as eager does, refuses it by id, or lets it go on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.nn import functional

from flambeau_aot._torch_compat import storage_key

if TYPE_CHECKING:
    from flambeau_aot.inputs.functional_inputs import InputFacts
    from flambeau_aot.intercept.autocast_cache import AutocastCache
    from flambeau_aot.intercept.sparse_embeddings import Use
    from flambeau_aot.joint.dispatch_mode import JointTracer


@dataclass
class Call:
    """One call of the program; a rule may change it and let it go on."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def target(self) -> Any:
        """The first argument; None where there is none by position."""
        return self.args[0] if self.args else None

    @property
    def name(self) -> str:
        """The function's name, for an overload with that of the overload."""
        return getattr(self.func, "__name__", "")

    def __call__(self) -> Any:
        return self.func(*self.args, **self.kwargs)


@dataclass
class Interception:
    """What the rules of one trace know.

    tracer: what records the program. facts: of each input, by `id` of what the program is handed
    for it. gaps: inputs, then other values, with memory between their elements; what they were;
    where they begin in memory of their own. sparse: embeddings with sparse gradients, None where
    there may be none. starts: by the storage of a stand-in of memory that several inputs share, how
    many elements of the caller's come before it. stays_without_grad: whether the program must not
    enable grad. reshaped: tensors with grad that it has reshaped in place.
    """

    tracer: JointTracer
    facts: Mapping[int, InputFacts]
    gaps: list[tuple[torch.Tensor, torch.Tensor, Any]]
    sparse: list[Use] | None
    starts: Mapping[int, int]
    casts: AutocastCache
    stays_without_grad: bool
    reshaped: list[torch.Tensor] = field(default_factory=list)

    def start(self, target: torch.Tensor) -> int:
        """How many elements of the caller's storage come before what the graph takes."""
        return self.starts.get(storage_key(target), 0)


Rule = Callable[[Interception, Call], Any]
"""The answer to a call, or NotImplemented: the call, changed or not, goes on."""

Replacement = TypeVar("Replacement", bound=Callable[..., Any])

ARGUMENTS: dict[Any, list[Rule]] = defaultdict(list)
"""By callable, rules that change arguments; they run first, before `out=` is looked at."""
ANSWERS: dict[Any, list[Rule]] = defaultdict(list)
"""By callable, rules that answer; in the order in which they are declared."""


def intercept(*callables: Any, arguments: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for these torch callables; `arguments`: it changes arguments only."""

    def register(rule: Rule) -> Rule:
        for each in callables:
            (ARGUMENTS if arguments else ANSWERS)[each].append(rule)
        return rule

    return register


def replaces(*callables: Any) -> Callable[[Replacement], Replacement]:
    """Register a function that is called, with the same arguments, in place of these."""

    def register(function: Replacement) -> Replacement:
        @wraps(function)
        def rule(trace: Interception, call: Call) -> Any:
            return function(*call.args, **call.kwargs)

        intercept(*callables)(rule)
        return function

    return register


def refuses(id: str, *callables: Any) -> None:
    """Register a refusal, by its id, of every call of these."""
    from flambeau_aot.refusals import refusal

    @intercept(*callables)
    def rule(trace: Interception, call: Call) -> Any:
        raise refusal(id)


def answered(rules: Sequence[Rule], trace: Interception, call: Call) -> Any:
    """The first answer that rules give to a call; NotImplemented where none does."""
    for rule in rules:
        answer = rule(trace, call)
        if answer is not NotImplemented:
            return answer
    return NotImplemented


def forms(*names: str) -> tuple[Any, ...]:
    """All that torch has under these names: functions, methods, operators and their overloads."""
    found: list[Any] = []
    for name in names:
        for owner in (torch, torch.Tensor, functional):
            found += [getattr(owner, name)] if hasattr(owner, name) else []
        if (packet := getattr(torch.ops.aten, name, None)) is not None:
            found += [packet, *(getattr(packet, overload) for overload in packet.overloads())]
    return tuple(found)


def getter(name: str) -> Any:
    """What a torch-function mode is handed when an attribute of a tensor is read."""
    return getattr(torch.Tensor, name).__get__
