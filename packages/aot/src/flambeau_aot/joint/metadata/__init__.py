"""Metadata of results without computation, and where the kernels differ from it."""
