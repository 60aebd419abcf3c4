"""Materialisation: which values get memory, in which layout."""
