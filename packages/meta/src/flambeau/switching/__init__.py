"""Switching programs that call `torch.compile` over to Flambeau, unmodified.

In: a program, or its script. Out: the same, compiled by Flambeau. Invariant: what is replaced is
put back by `uninstall`, and what has no counterpart says so once.
"""
