"""Partitioning of a joint graph into forward and backward graphs."""
