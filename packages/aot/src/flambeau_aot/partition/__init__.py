"""Cutting a joint graph into a forward and a backward graph."""
