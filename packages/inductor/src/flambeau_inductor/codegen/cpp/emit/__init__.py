"""Emission of a loop as C++."""
