"""Symbolic sizes and numbers, and the environment that they are of."""
