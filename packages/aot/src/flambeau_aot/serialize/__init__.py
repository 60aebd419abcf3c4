"""Compiled programs as plain data, and back."""
