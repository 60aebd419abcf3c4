"""Autograd inside a compiled function: backward, grad, hooks."""
