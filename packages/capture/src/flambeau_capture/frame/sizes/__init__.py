"""Sizes of arguments: marks, policies, padding, and which of them stay symbolic."""
