"""Functions of the standard library, and what they do besides."""
