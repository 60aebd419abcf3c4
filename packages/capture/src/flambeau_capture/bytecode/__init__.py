"""CPython bytecode: decode, edit, assemble; no torch.

In: code objects. Out: bodies of instructions, facts about them, code objects. Invariant: an edit
that cannot be written faithfully on the running Python raises; it is never written another way.
"""

from flambeau_capture.bytecode.assemble import assemble
from flambeau_capture.bytecode.decode import CodeBody, Region, decode
from flambeau_capture.bytecode.flow import (
    FlowError,
    blocks,
    live_locals,
    liveness,
    reachable,
    remove_dead_code,
)
from flambeau_capture.bytecode.instruction import (
    NOWHERE,
    Instruction,
    OperandFlags,
    SourcePositions,
    clone,
)
from flambeau_capture.bytecode.listing import diff, listing
from flambeau_capture.bytecode.opcodes import UnsupportedPython
from flambeau_capture.bytecode.pools import AssembleError
from flambeau_capture.bytecode.stack import StackError, depths, max_depth, stack_effect
