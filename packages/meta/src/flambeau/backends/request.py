"""What a backend is made from, and what it is.

In: the choices of one `flambeau.compile`. Out: plain types that all backends share.
Invariant: a backend keeps no state outside of its request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from flambeau.choices import Choices
from flambeau.records import Recorder

Backend = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
"""`backend(gm, example_inputs)`: a callable that takes the inputs and returns a tuple."""


#: what capture asks a backend for, which a class may have as well as an instance
ASKED = ("observe", "supports_symbols")


def in_place_of(original: Backend, backend: Backend) -> Backend:
    """A backend that stands around another one: it goes by its name, with its attributes."""
    made: Any = backend
    made.__name__ = getattr(original, "__name__", type(original).__name__)
    made.__dict__.update(getattr(original, "__dict__", {}))
    made.__dict__.update({k: getattr(original, k) for k in ASKED if hasattr(original, k)})
    return backend


@dataclass(frozen=True)
class Request:
    """The choices of one compiled callable, as its backend sees them.

    strict: a graph that cannot be compiled is an error (`fullgraph=True`). options: what the user
    gave, as given, for backends that are not ours.
    """

    choices: Choices
    recorder: Recorder
    strict: bool = False
    options: Mapping[str, object] = field(default_factory=dict)


Factory = Callable[[Request], Backend]
"""Makes a backend for one compiled callable."""
