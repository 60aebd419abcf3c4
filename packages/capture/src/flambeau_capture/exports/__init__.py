"""Exports: a frame as one graph with its guards, constraints and buffers."""
