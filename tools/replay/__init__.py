"""Texts that the compiler makes of a fixed set of programs, and two such sets side by side.

In: the packages that are importable. Out: a folder a program with guards, graphs, joint graph,
scheduled program, kernels and wrapper; the places where two folders differ. Invariant: numbers in
names, addresses and comments do not count; anything else does.
"""
