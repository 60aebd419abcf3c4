"""Polyfills: Python equivalents of C functions, interpreted in their place."""
