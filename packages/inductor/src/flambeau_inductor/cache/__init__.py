"""Built kernels kept on the disk from one process to the next."""

from flambeau_inductor.cache.folder import cache_folder, objection
from flambeau_inductor.cache.store import Entry, Store, intact, key_of, open_store

__all__ = ["Entry", "Store", "cache_folder", "intact", "key_of", "objection", "open_store"]
