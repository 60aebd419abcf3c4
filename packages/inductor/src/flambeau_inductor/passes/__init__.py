"""Rewrites of a graph of primitives before it is lowered."""
