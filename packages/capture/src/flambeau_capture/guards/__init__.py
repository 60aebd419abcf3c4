"""Guards: conditions under which a cache entry is valid.

In: sources and facts about the values there. Out: a `Guards` that answers natively, in plain
Python, and with an explanation. Invariant: importing this needs no torch; tensors and the state of
torch are looked at when the first such guard is added.
"""

from flambeau_capture.guards.guard import NO_ALIASING, OBJECT_ALIASING, Guard, GuardFailure
from flambeau_capture.guards.guardset import Guards, GuardSet
from flambeau_capture.guards.kinds import KINDS, GuardKind, register
from flambeau_capture.guards.sizes import (
    SIZES,
    Inexpressible,
    SizeProgram,
    SizeSource,
    Term,
    size_program,
    within,
)
from flambeau_capture.guards.state import GLOBAL_STATE, GlobalState
from flambeau_capture.guards.tensor import TENSOR_MATCH, TENSOR_VALUES, NotYetSymbolic, TensorSpec

__all__ = [
    "GLOBAL_STATE",
    "KINDS",
    "NO_ALIASING",
    "OBJECT_ALIASING",
    "TENSOR_MATCH",
    "TENSOR_VALUES",
    "GuardFailure",
    "GlobalState",
    "Guard",
    "GuardSet",
    "Guards",
    "Inexpressible",
    "GuardKind",
    "NotYetSymbolic",
    "SizeSource",
    "SIZES",
    "SizeProgram",
    "TensorSpec",
    "Term",
    "register",
    "size_program",
    "within",
]
