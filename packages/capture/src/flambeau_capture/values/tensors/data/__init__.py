"""Data of tensors: constant, assigned, decided by sizes or deciding them."""
