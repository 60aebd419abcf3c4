"""Pure-Python equivalents of C functions: capture interprets them in their place."""
