"""Rewrites of a loop before C++ is written."""
