"""Conformance programs: graphs of primitives."""
