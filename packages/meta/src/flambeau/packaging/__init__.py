"""Compiled functions in files: written, loaded, exported, copied."""
