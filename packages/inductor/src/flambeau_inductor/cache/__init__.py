"""What was built or measured, kept on the disk from one process to the next."""

from flambeau_inductor.cache import bound
from flambeau_inductor.cache.folder import cache_folder, objection
from flambeau_inductor.cache.keys import Key, differences, key, key_from
from flambeau_inductor.cache.sources import code
from flambeau_inductor.cache.store import OWN, Entry, Lease, Store, intact, open_store
from flambeau_inductor.cache.surroundings import processor, surroundings, versions
from flambeau_inductor.cache.values import Values, open_values

__all__ = [
    "OWN",
    "Entry",
    "Key",
    "Lease",
    "Store",
    "Values",
    "bound",
    "cache_folder",
    "code",
    "differences",
    "intact",
    "key",
    "key_from",
    "objection",
    "open_store",
    "open_values",
    "processor",
    "surroundings",
    "versions",
]
