"""Subclasses that wrap tensors, as values."""
