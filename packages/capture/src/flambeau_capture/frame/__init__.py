"""Frames: skip rules, limits, conversion."""
