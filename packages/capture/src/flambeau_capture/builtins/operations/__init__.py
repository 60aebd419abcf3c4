"""Operators, and the functions that stand for them."""
