"""Compiled graphs, kernels and measurements on the disk."""
