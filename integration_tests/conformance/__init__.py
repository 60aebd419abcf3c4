"""Python's reference, construct by construct: each used beside tensors, as it is and compiled.

In: the language's own lists (syntax nodes, special methods, built-in names, names of modules). Out:
a row a construct: one graph, a named break, or wrong. Invariant: the same Python draws the same
programs; `name` alone makes them.

    python -m integration_tests.conformance [--only TEXT] [--show NAME] [--write]
"""
