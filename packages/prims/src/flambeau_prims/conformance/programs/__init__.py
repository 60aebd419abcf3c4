"""Graphs of primitives that a backend is tried on."""
