"""Kernels: generation, binaries, loading."""
