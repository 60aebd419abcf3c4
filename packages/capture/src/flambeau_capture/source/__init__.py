"""Sources: the path by which a value was reached.

In: the steps that lead from a frame to an object, as a tree of frozen nodes whose roots are the
frame's locals, closure, globals and builtins. Out: two views of the same path, `load` (plain
Python, what guards read) and `emit` (the bytecode that loads the value again), and a `name` for
messages. Invariant: a source says how to find an object and never holds it, except
`ConstantSource`.
"""

from flambeau_capture.source.base import *  # noqa: F403
from flambeau_capture.source.steps import *  # noqa: F403
