"""Functional tensors: in-place writes and views as pure operations.

In: tensors, and what is done to them. Out: the pure value that each stands for, and whether its
storage or its shape was changed. Invariant: `functionalization` leaves the thread as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
