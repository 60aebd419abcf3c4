"""Emission of C++ for a planned loop."""
