"""Lowering rules, a family of primitives a module."""
