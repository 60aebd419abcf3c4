"""Debugging: every stage's product in a folder, kernels alone, pictures."""

from flambeau_inductor.debug.folder import DebugFolder, open_debug_folder

__all__ = ["DebugFolder", "open_debug_folder"]
