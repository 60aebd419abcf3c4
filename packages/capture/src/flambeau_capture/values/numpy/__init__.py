"""NumPy arrays and scalars, as tensors."""
