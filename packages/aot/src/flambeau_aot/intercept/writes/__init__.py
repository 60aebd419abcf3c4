"""Writes to tensors: in-place and custom operators, masked writes, running statistics."""
