"""Dispatch and torch-function modes.

In: nothing. Out: contexts in which fewer, or others, see them. Invariant: each context leaves the
thread as it was.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch

enter_inference = torch.autograd.grad_mode._enter_inference_mode
exit_inference = torch.autograd.grad_mode._exit_inference_mode
set_grad_enabled = torch._C._set_grad_enabled


def without_modes() -> Any:
    """Context in which no dispatch mode sees an operator."""
    return torch.utils._python_dispatch._disable_current_modes()


def without_autocast() -> Any:
    """Context in which autocast sees no operator, unless it is entered inside."""
    return torch._C._DisableAutocast()


def outside_autocast(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The callable, no operator of which is seen by autocast."""

    def run(args: Any) -> Any:
        if torch._C._is_any_autocast_enabled():
            with without_autocast():
                return call(args)
        return call(args)

    return run


def left_alone(call: Callable[..., Any]) -> Callable[..., Any]:
    """The callable, which torch's own capture does not look into where the program has started it:
    `torch.cond` does so when it is called by Python code."""
    if "torch._dynamo" not in sys.modules:
        return call
    return cast(Callable[..., Any], torch.compiler.disable(call))


@contextmanager
def compiling() -> Iterator[None]:
    """`torch.compiler.is_compiling()` inside this block: optimizers then keep their count of steps
    in tensors on any device. Torch has one flag for the process; it is set for the time of a trace,
    and what another thread's optimizer does meanwhile is the same by tensors.
    """
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


_FORMS = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
_withheld: dict[Any, dict[Any, Any]] = {}
_uses: Counter[Any] = Counter()
_holding = threading.Lock()


@contextmanager
def python_dispatcher() -> Iterator[None]:
    """Context in which composite operators on symbolic sizes run their Python forms. Those of
    operators with kernels of their own are not run: each is another formula, whose values and
    gradients are not eager's; and so is that of an overload that takes factors in place of sizes,
    which calls the operator here, as in eager.

    The forms are torch's, one table for the process: those are put aside while any thread is
    inside, and put back by the last one.
    """
    apart, resizing = operators_with_python_forms(), resizing_operators()
    with _holding:
        for operator in (*apart, *resizing):
            _uses[operator] += 1
            if _uses[operator] == 1:
                own = operator.py_kernels
                _withheld[operator] = {key: own.pop(key) for key in _FORMS if key in own}
                if operator in resizing:
                    own.update(dict.fromkeys(_FORMS, _resizing(resizing[operator])))
                operator._dispatch_cache.clear()
    try:
        with torch._C._EnablePythonDispatcher():
            yield
    finally:
        with _holding:
            for operator in (*apart, *resizing):
                _uses[operator] -= 1
                if not _uses[operator]:
                    for key in _FORMS:
                        operator.py_kernels.pop(key, None)
                    operator.py_kernels.update(_withheld.pop(operator))
                    operator._dispatch_cache.clear()


def _is_composite(operator: Any) -> bool:
    """Whether an operator is nothing but calls of others, for torch's dispatcher."""
    key = "CompositeImplicitAutograd"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key))


@functools.cache
def _with_forms() -> tuple[Any, ...]:
    """ATen's operators that have a Python form."""
    found = []
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for kind in packet.overloads() if hasattr(packet, "overloads") else ():
            operator = getattr(packet, kind)
            if any(key in operator.py_kernels for key in _FORMS):
                found.append(operator)
    return tuple(found)


def operators_with_python_forms() -> tuple[Any, ...]:
    """Those with kernels of their own."""
    return tuple(each for each in _with_forms() if not _is_composite(each))


@functools.cache
def resizing_operators() -> Mapping[Any, Any]:
    """Overloads that resample an image to sizes or by factors, with what each calls: the operator
    that takes sizes."""
    packets = {each.overloadpacket for each in _with_forms() if each._overloadname == "vec"}
    return {each.vec: each.default for each in packets}


def _times(size: Any, factor: float) -> Any:
    """A size times a factor, rounded down; in whole numbers where the product is exact."""
    times, parts = float(factor).as_integer_ratio()
    return size * times // parts if parts < 2**20 else torch.sym_int(size * factor)


def _resizing(operator: Any) -> Callable[..., Any]:
    """What eager computes of the overload by factors: the sizes, for the operator."""

    def form(x: torch.Tensor, size: Sequence[Any] | None, *flags_and_factors: Any) -> Any:
        *flags, factors = flags_and_factors
        if (size is None) == (factors is None):
            raise RuntimeError("Must specify exactly one of output_size and scale_factors")
        spatial = x.shape[2:]
        if size is None:
            size = [_times(n, by) for n, by in zip(spatial, factors, strict=True)]
        return operator(x, size, *flags, *(factors or [None] * len(spatial)))

    return form
