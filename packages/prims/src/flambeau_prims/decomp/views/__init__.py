"""Decompositions of views and copies."""
