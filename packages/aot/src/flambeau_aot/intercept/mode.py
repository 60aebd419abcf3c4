"""Torch-function mode that looks up each call of a program among the interception rules.

In: every torch function the program calls while it is traced. Out: the answer of the first rule
that gives one, or that of the call itself, its writes made as eager makes them.
Invariant: a rule is found by the callable, in the tables of `registry`; open sets of callables are
known by kind: operators that take functions, `out=`, users' operators, writes in place.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from flambeau_aot._torch_compat import FakeTensor, functional_tensor, is_higher_order, left_alone
from flambeau_aot.intercept import (  # noqa: F401 - they register their rules
    autocast_cache,
    input_attributes,
    replaced_calls,
    sparse_embeddings,
)
from flambeau_aot.intercept.registry import ANSWERS, ARGUMENTS, Call, Interception, answered
from flambeau_aot.intercept.replaced_calls import in_the_class
from flambeau_aot.intercept.strides import lay_out_again
from flambeau_aot.intercept.writes import running_statistics  # noqa: F401 - the same
from flambeau_aot.intercept.writes.custom_operators import call_user_operator, user_operator
from flambeau_aot.intercept.writes.inplace import (
    WRITE_TO_LISTS,
    WRITE_TO_SEVERAL_LISTS,
    keeping_size,
    keeping_strides,
    read_by_value,
    refuse_lists_as_eager,
    write,
    write_to_list,
    write_to_several_lists,
)
from flambeau_aot.refusals import refusal


class InterceptMode(TorchFunctionMode):
    """Applies the rules to every call the program makes."""

    def __init__(self, trace: Interception) -> None:
        super().__init__()
        self.trace = trace
        self._of_inputs = len(trace.gaps)

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        if raised[0] is None:
            lay_out_again(self.trace.gaps[self._of_inputs :])

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        trace = self.trace
        trace.tracer.regions.look()
        trace.tracer.views.refuse_stale((*args, *(kwargs or {}).values()))
        result = self._called(func, args, kwargs or {})
        trace.tracer.views.made(result)
        trace.tracer.regions.called(func, args, result)
        if trace.stays_without_grad and torch.is_grad_enabled():
            raise refusal("AO0058")
        return result

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return in_the_class(partial(self._call, func, args, kwargs), (args, kwargs))

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trace, call = self.trace, Call(func, args, kwargs)
        if trace.gaps:
            lay_out_again(trace.gaps)
        if func in ARGUMENTS:
            answer = answered(ARGUMENTS[func], trace, call)
            if answer is not NotImplemented:
                return answer
        read_by_value(call)
        if is_higher_order(func):
            kept = trace.tracer.attempt.higher_order.get(func.name())
            if kept is None:
                raise refusal("AO0060", func=func)
            return left_alone(partial(kept, trace.tracer))(*args, **kwargs)
        out = kwargs.get("out")
        if isinstance(out, torch.Tensor):
            return keeping_size(out, call, trace.tracer.layouts)
        if isinstance(out, tuple) and all(isinstance(each, torch.Tensor) for each in out):
            return keeping_strides(out, call, trace.tracer.layouts)
        answer = answered(ANSWERS[func], trace, call) if func in ANSWERS else NotImplemented
        if answer is not NotImplemented:
            return answer
        if not isinstance(call.target, torch.Tensor):
            return self._without_target(call)
        if user_operator(func) is not None:
            return self._user_operator(call)
        return write(trace, call)

    def _without_target(self, call: Call) -> Any:
        """A call of numbers, or of lists that it may write to."""
        if call.name in WRITE_TO_LISTS:
            refuse_lists_as_eager(self.trace, call)
            return write_to_list(call, self._call)
        if call.name in WRITE_TO_SEVERAL_LISTS:
            call.func = write_to_several_lists(call) or call.func
        result = self._user_operator(call)
        # With numbers of Python's alone no argument brings a call to functionalization.
        return functional_tensor(result) if isinstance(result, FakeTensor) else result

    def _user_operator(self, call: Call) -> Any:
        if (func := user_operator(call.func)) is not None:
            return call_user_operator(func, call, self.trace.tracer.layouts)
        return call()
