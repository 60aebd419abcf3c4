"""Autograd inside the compiled function: backward, grad, hooks."""
