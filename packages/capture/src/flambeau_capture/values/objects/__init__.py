"""Instances, classes, modules and exceptions as values."""
