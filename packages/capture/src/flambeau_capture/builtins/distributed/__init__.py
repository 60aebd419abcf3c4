"""Calls of processes that work together: collectives, distributed tensors."""
