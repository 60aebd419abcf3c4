"""Iterators and generators as values."""
