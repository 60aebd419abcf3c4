"""Tensors, their constant data, and the calls recorded in the graph."""
