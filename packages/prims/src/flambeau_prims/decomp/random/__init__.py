"""Decompositions of random operators."""
