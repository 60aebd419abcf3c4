"""Serialisation of compiled programs as plain data."""
