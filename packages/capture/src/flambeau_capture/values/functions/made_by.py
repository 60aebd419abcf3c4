"""Objects that interpreted polyfills made in a library's place.

In: the function and the arguments of the call. Out: the call, written again. Invariant: it stands
for a value that has not been used since.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from flambeau_capture.values.base import Unreconstructible, Value


@dataclass(frozen=True, eq=False)
class MadeBy:
    original: Any
    args: tuple[Value, ...]
    kwargs: dict[str, Value]

    def kind(self, otherwise: type) -> type:
        """The class of what was made."""
        return self.original if isinstance(self.original, type) else otherwise

    def write(self, value: Value, writer: Any) -> None:
        with writer.building(value):
            writer.call(self.original, self.args, self.kwargs)


#: the class of what `itertools.tee` makes
TEE: type = type(itertools.tee(())[0])


class SharedItems(MadeBy):
    """One of several that read the same items: none is made again by itself."""

    def write(self, value: Value, writer: Any) -> None:
        raise Unreconstructible(value, "one of several iterators over the same items")
