"""Writes to tensors: in-place operators, masked writes, running statistics."""
