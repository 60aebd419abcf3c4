"""Decompositions of neural network operators."""
