"""Writes the code that runs in place of a captured frame."""
