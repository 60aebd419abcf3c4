"""The registry of this package's backends.

In: names and functions. Out: `lookup`. Invariant: a backend is `backend(gm, example_inputs) ->
callable`; an unknown name is an error that lists the known ones. An attribute `supports_symbols`
that is False says that it takes graphs with constant sizes only; without one, a graph with symbols
on which the backend raises is captured again without them. One `writes_last` that is true says that
a call of a graph that raises has written to none of its inputs, so that the frame can run eagerly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from flambeau_capture.errors import UnknownBackend

Backend = Callable[[fx.GraphModule, list[torch.Tensor]], Callable[..., Any]]

_BACKENDS: dict[str, Backend] = {}


def register_backend(backend: Backend | None = None, *, name: str | None = None) -> Any:
    """Give a backend a name; usable as a decorator, with or without arguments."""

    def register(fn: Backend) -> Backend:
        _BACKENDS[name or str(getattr(fn, "__name__", type(fn).__name__))] = fn
        return fn

    return register if backend is None else register(backend)


def list_backends() -> list[str]:
    """Names that `compile` takes."""
    return sorted(_BACKENDS)


def lookup(backend: str | Backend) -> tuple[str, Backend]:
    """A backend and its name."""
    if callable(backend):
        return getattr(backend, "__name__", type(backend).__name__), backend
    found = _BACKENDS.get(backend)
    if found is None:
        raise UnknownBackend(f"no backend {backend!r}; known: {', '.join(list_backends())}")
    return backend, found


@register_backend(name="eager")
def eager(module: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Run the graph with torch as it is: shows what capture alone does."""
    return module.forward


eager.__dict__["supports_symbols"] = True
