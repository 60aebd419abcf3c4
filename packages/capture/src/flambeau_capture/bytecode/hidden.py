"""Keep a class or module body's comprehension variables out of its namespace.

In: a code object just assembled. Out: it, or one whose comprehension variables are marked hidden
again. Invariant: `locals()` of a class or module body shows what it did before re-assembly.
"""

from types import CodeType


def with_hidden_locals(code: CodeType) -> CodeType:
    return code
