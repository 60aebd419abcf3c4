"""A backend's request and description, as data.

In: the choices of one `flambeau.compile`. Out: plain types that all backends share.
Invariant: a backend keeps no state outside of its request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import fx

from flambeau.choices import Choices
from flambeau.events.records import RecordCollector

if TYPE_CHECKING:
    from flambeau.repro.hook import Settings  # of a tool, which most programs do without

Compiled = Callable[..., Any]

Backend = Callable[[fx.GraphModule, Sequence[Any]], Compiled]
"""`backend(gm, example_inputs)`: a callable that takes the inputs and returns a tuple."""


@dataclass(frozen=True)
class Traits:
    """What the layers need to know of a built-in backend.

    symbols: what may be open in the graphs that it takes; None: it says so itself. stage: whose
    failure it is that it cannot compile a graph; "" if it has no fallback. divided: by the buckets
    of gradients. kernels: it generates some, from a graph that is prepared, and that may be in the
    cache.
    """

    symbols: bool | frozenset[str] | None = False
    stage: str = ""
    divided: bool = True
    kernels: bool = False


FOREIGN = Traits(symbols=None, divided=False)


@dataclass(frozen=True)
class Request:
    """The choices of one compiled callable, as its backend and the layers around it see them.

    strict: a graph that cannot be compiled is an error (`fullgraph=True`). options: what the user
    gave, as given, for backends that are not ours. by: the backend as the user named or gave it.
    traits: what the layers need to know of it. never_slower: eager serves until the backend was
    seen to be faster. repro: what fails leaves a script. verify: calls of each graph that are
    checked.
    """

    choices: Choices
    recorder: RecordCollector
    strict: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    by: str | Callable[..., Any] = ""
    traits: Traits = FOREIGN
    never_slower: bool = False
    repro: Settings | None = None
    verify: int = 0


Factory = Callable[[Request], Backend]
"""Makes a backend for one compiled callable."""


def named(backend: str | Callable[..., Any]) -> str:
    """The name of a backend that is named or given."""
    return (
        backend
        if isinstance(backend, str)
        else getattr(backend, "__name__", type(backend).__name__)
    )


@runtime_checkable
class ByRequest(Protocol):
    """A backend of ours that is another for each request."""

    def for_request(self, request: Request) -> Backend: ...
