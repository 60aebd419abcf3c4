"""Functions, methods, cells and other callables as values."""
