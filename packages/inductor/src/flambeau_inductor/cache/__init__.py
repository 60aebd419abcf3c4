"""Disk cache of built kernels and measurements."""

from flambeau_inductor.cache import size_limit
from flambeau_inductor.cache.environment_key import (
    Key,
    code,
    differences,
    key,
    key_from,
    processor,
    surroundings,
    versions,
)
from flambeau_inductor.cache.store import (
    OWN,
    CacheEntry,
    CacheStore,
    KeptValues,
    Lease,
    cache_folder,
    intact,
    objection,
    open_store,
    open_values,
)

__all__ = [
    "OWN", "CacheEntry", "Key", "Lease", "CacheStore", "KeptValues", "cache_folder", "code",
    "differences", "intact", "key", "key_from", "objection", "open_store", "open_values",
    "processor", "surroundings", "versions",
]  # fmt: skip
