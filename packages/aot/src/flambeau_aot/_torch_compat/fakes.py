"""Fake tensors, and symbolic sizes and numbers.

In: a fake mode, symbolic numbers, sympy expressions. Out: fake tensors, operators run on them, the
errors of those that cannot be; numbers for expressions and the other way round.
Invariant: no memory is touched, and nothing is assumed of a size by reading its value.

Functional tensors: in-place writes and views as pure operations. In: tensors, and what is done to
them. Out: the pure value that each stands for, and whether its storage or its shape was changed.
Invariant: `functionalization` leaves the thread as it was.

Fakes of torch's fused optimizer steps, where torch has none. In: nothing. Out: fakes of
`aten::_fused_*`. Invariant: an operator that has a kernel for such tensors keeps it.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

DATA_DEPENDENT_ERRORS: tuple[type[Exception], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
)


def expression_of(number: Any) -> Any:
    """The sympy expression of a symbolic number, with what its environment has learnt since."""
    return number.node.expr


def environment_of(number: Any) -> Any:
    """The shape environment that a symbolic number belongs to."""
    return number.node.shape_env


def data_symbols(numbers: Iterable[Any], known: bool = False) -> set[Any]:
    """The unbacked symbols of symbolic numbers: those that depend on the data of tensors. known:
    also those of which a value is known by now, which the graph checks."""
    found: set[Any] = set()
    for number in numbers:
        expression = number.node._expr if known else expression_of(number)
        if expression.free_symbols:
            from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

            found |= free_unbacked_symbols(expression)
    return found


def assume(condition: Any) -> None:
    """Take a condition on sizes that depend on data for true: it is checked in the graph."""
    from torch.fx.experimental.symbolic_shapes import expect_true

    expect_true(condition)


def symbolic_integer(expression: Any, like: torch.SymInt) -> Any:
    """A symbolic integer for an expression over the symbols of `like`'s environment."""
    environment = environment_of(like)
    known = expression.xreplace(values_of(environment))
    hint = int(known) if known.is_Integer else None
    return environment.create_symintnode(expression, hint=hint)


def symbolic_number(expression: Any, like: Any) -> Any:
    """A symbolic number, an integer where the expression is one, of `like`'s environment."""
    if expression.is_integer:
        return symbolic_integer(expression, like)
    environment = environment_of(like)
    known = expression.xreplace(values_of(environment))
    hint = float(known) if known.is_number else None
    return environment.create_symfloatnode(expression, hint=hint)


def hint(number: Any) -> int:
    """The value of a size in this compile, for estimates: nothing is assumed by asking."""
    if isinstance(number, torch.SymInt):
        known = number.node.hint
        return 0 if known is None else int(known)
    return int(number)


def in_general(number: Any) -> int:
    """A number for an estimate, in which sizes that depend on data are large."""
    if not isinstance(number, torch.SymInt):
        return int(number)
    known = values_of(environment_of(number))
    expression = expression_of(number)
    large = {symbol: known.get(symbol, _LARGE) for symbol in expression.free_symbols}
    return int(expression.xreplace(large))


_LARGE = 1 << 16


def values_of(environment: Any) -> Any:
    """The values of symbols in this compile; 2.13 has another name for them than 2.11."""
    name = "backed_var_to_val" if hasattr(environment, "backed_var_to_val") else "var_to_val"
    return getattr(environment, name)


@contextmanager
def unlogged() -> Iterator[None]:
    """Torch does not log, traceback and all, what operators refuse here: it is handled."""
    thread = threading.get_ident()

    def is_shown(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger = logging.getLogger(FakeTensorMode.__module__)
    logger.addFilter(is_shown)
    try:
        yield
    finally:
        logger.removeFilter(is_shown)


@contextmanager
def functionalization() -> Iterator[None]:
    """Mutations and views on functional tensors become pure operations inside this block."""
    torch._enable_functionalization(reapply_views=True)
    try:
        yield
    finally:
        torch._disable_functionalization()


@contextmanager
def outside_tracing() -> Iterator[None]:
    """Neither the dispatch modes nor the functionalization of a trace inside this block."""
    key = torch._C.DispatchKey.Functionalize
    with torch.utils._python_dispatch._disable_current_modes():
        included = torch._C._dispatch_tls_local_include_set().remove(key)
        excluded = torch._C._dispatch_tls_local_exclude_set()
        # the guard puts back what was there: inside an operator functionalization is off already
        with torch._C._ForceDispatchKeyGuard(included, excluded):
            yield


@contextmanager
def functionalized_again() -> Iterator[None]:
    """Functionalization inside an operator that functionalization has handed on."""
    key = torch._C.DispatchKey.Functionalize
    included = torch._C._dispatch_tls_local_include_set() | torch._C.DispatchKeySet(key)
    excluded = torch._C._dispatch_tls_local_exclude_set().remove(key)
    with torch._C._ForceDispatchKeyGuard(included, excluded):
        yield


def functional_tensor(value: torch.Tensor) -> torch.Tensor:
    """Wrap a value in a functional tensor with a storage of its own."""
    return torch._to_functional_tensor(value)


def is_functional(value: object) -> bool:
    """Whether `value` is a functional tensor."""
    return isinstance(value, torch.Tensor) and bool(torch._is_functional_tensor(value))


def current_value(wrapper: torch.Tensor) -> torch.Tensor:
    """The pure value a functional tensor stands for now, pending mutations applied."""
    torch._functionalize_sync(wrapper)  # type: ignore[no-untyped-call]
    return torch._from_functional_tensor(wrapper)


def replace_value(wrapper: torch.Tensor, value: torch.Tensor) -> None:
    """Let a functional tensor, and all that share its memory, stand for another value."""
    torch._functionalize_replace(wrapper, value)
    torch._functionalize_commit_update(wrapper)
    torch._functionalize_sync(wrapper)  # type: ignore[no-untyped-call]


def keep_value(wrapper: torch.Tensor, value: torch.Tensor) -> None:
    """Let a functional tensor take its metadata from the value that it stands for."""
    torch._functionalize_replace(wrapper, value)


def storage_was_replaced(wrapper: torch.Tensor) -> bool:
    """Whether `set_` or `resize_` gave a functional tensor another storage."""
    return bool(torch._functionalize_was_storage_changed(wrapper))


def has_metadata_mutation(wrapper: torch.Tensor) -> bool:
    """Whether an in-place operator changed a functional tensor's shape or strides."""
    return bool(torch._functionalize_has_metadata_mutation(wrapper))


_OUT = "_out"


@functools.cache
def fake_fused_steps() -> torch.library.Library:
    """Register them, once a process; they hold while the library lives."""
    library = torch.library.Library("aten", "IMPL")
    for operator in _steps():
        name = operator.name()
        if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta"):
            torch.library.register_fake(name, _fake_of(operator._schema), lib=library)
    return library


def _steps() -> Iterator[torch._ops.OpOverload]:
    """Those that write to their lists, and their forms that return new ones."""
    for name in dir(torch):
        if name.startswith("_fused_") and name.endswith("_"):
            for packet in (getattr(torch.ops.aten, name), getattr(torch.ops.aten, name[:-1])):
                for overload in packet.overloads():
                    operator = getattr(packet, overload)
                    if all(each.name.endswith(_OUT) for each in operator._schema.returns):
                        yield operator


def _fake_of(schema: torch._C.FunctionSchema) -> Callable[..., Any]:
    """New lists like the arguments that the results are named after."""

    def fake(*args: Any, **kwargs: Any) -> Any:
        given = {each.name: value for each, value in zip(schema.arguments, args, strict=False)}
        made = [
            [torch.empty_like(tensor) for tensor in given[each.name.removesuffix(_OUT)]]
            for each in schema.returns
        ]
        return tuple(made) if made else None

    return fake
