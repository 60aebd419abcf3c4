"""The disk cache: contents, clearing, transfer to another machine.

In: nothing, folders, files, keys. Out: facts and texts. Invariant: what is read from a file is
checked before it becomes part of a cache, and nothing here compiles.
"""

from flambeau.cache.disk import Info, clear, info, keys, load, prune, save, verify, why_miss

__all__ = ["Info", "clear", "info", "keys", "load", "prune", "save", "verify", "why_miss"]
