"""Fusion: which computations share a loop, and the loop they make."""
