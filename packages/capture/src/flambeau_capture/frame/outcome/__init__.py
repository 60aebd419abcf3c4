"""Outcome of a conversion: state of frames and heap, calls of graphs, reruns."""
