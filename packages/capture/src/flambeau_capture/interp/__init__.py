"""The symbolic interpreter: frames, the session they share, and opcode handlers by family."""

from flambeau_capture.interp import (
    op_calls,
    op_containers,
    op_exceptions,
    op_flow,
    op_functions,
    op_operators,
    op_variables,
)
