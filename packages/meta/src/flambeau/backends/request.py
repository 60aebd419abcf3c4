"""What a backend is made from, and what it is.

In: the choices of one `flambeau.compile`. Out: plain types that all backends share.
Invariant: a backend keeps no state outside of its request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flambeau.backends.wrapper import Backend
from flambeau.choices import Choices
from flambeau.events.records import RecordCollector

__all__ = ["Backend", "Factory", "Request"]


@dataclass(frozen=True)
class Request:
    """The choices of one compiled callable, as its backend sees them.

    strict: a graph that cannot be compiled is an error (`fullgraph=True`). options: what the user
    gave, as given, for backends that are not ours.
    """

    choices: Choices
    recorder: RecordCollector
    strict: bool = False
    options: Mapping[str, object] = field(default_factory=dict)


Factory = Callable[[Request], Backend]
"""Makes a backend for one compiled callable."""
