"""The symbolic interpreter: frames, the session they share, and opcode handlers by family."""

from flambeau_capture.interp.opcodes import (
    calls,
    containers,
    control_flow,
    exceptions,
    functions,
    operators,
    variables,
)
