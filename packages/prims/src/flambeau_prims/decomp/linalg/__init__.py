"""Decompositions of linear algebra and Fourier transforms."""
