"""Decompositions of indexing and scattering."""
