"""The symbolic interpreter: tracer, frames, opcode handlers."""

from flambeau_capture.interp.opcodes import (
    calls,
    class_bodies,
    containers,
    control_flow,
    coroutines,
    operators,
    variables,
)
