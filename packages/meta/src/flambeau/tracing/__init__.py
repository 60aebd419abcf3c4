"""Traces: a run as structured events on disk."""
