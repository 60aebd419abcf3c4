"""Operators that call eager's own kernels at run time."""
