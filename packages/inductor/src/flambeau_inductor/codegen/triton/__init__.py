"""Triton code generation.

In: `Loop`s. Out: one Python module of `@triton.jit` functions with what launching each takes.
Invariant: nothing here imports triton, so that code can be generated where it is absent.
"""
