"""The symbolic interpreter: tracer, frames, opcode handlers."""

from flambeau_capture.interp.opcodes import calls, containers, control_flow, operators, variables
