"""Kinds of values of the symbolic interpreter, one per file."""
