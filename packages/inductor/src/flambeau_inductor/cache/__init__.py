"""Disk cache of built kernels and measurements."""

from flambeau_inductor.cache import size_limit
from flambeau_inductor.cache.environment_key import code, processor, surroundings, versions
from flambeau_inductor.cache.kept_values import KeptValues, open_values
from flambeau_inductor.cache.keys import Key, differences, key, key_from
from flambeau_inductor.cache.store import (
    OWN,
    CacheEntry,
    CacheStore,
    Lease,
    cache_folder,
    intact,
    objection,
    open_store,
)

__all__ = [
    "OWN", "CacheEntry", "Key", "Lease", "CacheStore", "KeptValues", "cache_folder", "code",
    "differences", "intact", "key", "key_from", "objection", "open_store", "open_values",
    "processor", "surroundings", "versions",
]  # fmt: skip
