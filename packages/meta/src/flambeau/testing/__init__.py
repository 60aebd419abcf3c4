"""Comparison of two runs: isolated, within tolerance, or verified while running."""
