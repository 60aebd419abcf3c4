"""Primitives that a library computes."""
