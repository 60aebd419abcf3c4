"""Cache of small results that took long to find.

In: a text that names the question, a value of JSON's kinds. Out: the value, or None. Invariant: a
value is found only under the same versions and processor it was put under, and only whole; a disk
that fails is counted, never raised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flambeau_inductor.cache.environment_key import processor, versions
from flambeau_inductor.cache.keys import Key
from flambeau_inductor.cache.keys import key as key_of
from flambeau_inductor.cache.store import CacheStore, open_store

VALUE = "value.json"


@dataclass(slots=True)
class KeptValues:
    """Values of one kind (`autotune`, `backends`). `faults`: why some could not be
    kept, or were not used."""

    store: CacheStore
    kind: str
    hits: int = 0
    misses: int = 0
    faults: list[str] = field(default_factory=list)

    def get(self, key: str) -> dict[str, Any] | None:
        """What was put under `key`; None where nothing was, or where it is broken."""
        wanted = self._key(key)
        place = self.store.find(wanted)
        try:
            found = None if place is None else json.loads((place / VALUE).read_text())
        except (OSError, ValueError):  # swept away, or put there by somebody else
            found = None
        if not isinstance(found, dict):
            if self.store.place(wanted).exists():
                self.faults.append(f"a value of {self.kind} that was broken; it is found anew")
            self.misses += 1
            return None
        self.hits += 1
        return found

    def put(self, key: str, value: Mapping[str, Any]) -> bool:
        """Keep `value`, in place of what was kept before; whether that went well."""
        place = self._key(key)
        self.store.drop(place)
        fault = self.store.put(place, {VALUE: json.dumps(dict(value)).encode()})
        if fault:
            self.faults.append(fault)
        return not fault

    def _key(self, text: str) -> Key:
        return key_of(self.kind, asked=text, versions=versions(), processor=processor())


def open_values(cache_dir: str | None, kind: str) -> KeptValues:
    """The values of `kind` in the cache folder (see `cache_folder`).

    The device that was measured, and whatever else decides, belongs into the keys.
    """
    if not kind.isidentifier():
        raise ValueError(f"a kind of values is a word, not {kind!r}")
    return KeptValues(open_store(cache_dir), kind)
