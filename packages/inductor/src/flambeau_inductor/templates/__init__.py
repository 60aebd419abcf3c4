"""Triton templates: products, attention, convolutions, with epilogues."""
