"""A folder per compile with every stage's product, for reading."""

from flambeau_inductor.debug.folder import DebugFolder, open_debug_folder

__all__ = ["DebugFolder", "open_debug_folder"]
