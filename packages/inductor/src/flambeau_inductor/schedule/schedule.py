"""The passes of scheduling: those on tensors, and those on the program of their loops.

In: a tensor graph. Out: a `Program`. Invariant: the graph is not changed but for the strides of
values that are returned; between the two lists stands `assemble`, which makes one of the other.
"""

from __future__ import annotations

from flambeau_inductor.driver import Pass, PassContext, run_passes
from flambeau_inductor.ir.program import Program
from flambeau_inductor.ir.tensors import TensorGraph
from flambeau_inductor.ir.verify import verify_program
from flambeau_inductor.options import Options
from flambeau_inductor.schedule.assemble import assemble
from flambeau_inductor.schedule.communication import overlap_communication
from flambeau_inductor.schedule.fuse.fuse import fuse
from flambeau_inductor.schedule.gpu.rematerialize import (
    compute_elements_again,
    inline_row_scalars,
    keep_cheaper,
    rematerialize,
)
from flambeau_inductor.schedule.gpu.row_column_fusion import fuse_rows_and_columns, pipeline_columns
from flambeau_inductor.schedule.gpu.split_reduction import split_reductions
from flambeau_inductor.schedule.gpu.unroll import unroll_short_axes
from flambeau_inductor.schedule.materialize.materialize import materialize
from flambeau_inductor.schedule.memory.order import (
    coalesce_copies,
    reorder_for_peak_memory,
    sink_loops,
)
from flambeau_inductor.schedule.memory.planning import (
    plan_lifetimes,
    reuse_buffers,
    update_in_place,
)
from flambeau_inductor.schedule.tensor_program import TensorProgram, verify
from flambeau_inductor.scheduling_limits import Limits

DEFAULT = Limits()

TENSOR_PASSES: tuple[Pass[PassContext, TensorProgram], ...] = (
    Pass("materialize", materialize, required=True),
    Pass("fuse", fuse, required=True),
    Pass("rematerialize", rematerialize, lambda options: bool(options.limits.recompute_on)),
    # again for what `rematerialize` has changed; without that they have nothing to do
    Pass("materialize", materialize, required=True),
    Pass("fuse", fuse, required=True),
    Pass("keep_cheaper", keep_cheaper, required=True),
)

LOOP_PASSES: tuple[Pass[PassContext, Program], ...] = (
    Pass("fuse_rows_and_columns", fuse_rows_and_columns),
    Pass("pipeline_columns", pipeline_columns),
    Pass("inline_row_scalars", inline_row_scalars),
    Pass("compute_elements_again", compute_elements_again),
    Pass("unroll_short_axes", unroll_short_axes),
    Pass("split_reductions", split_reductions),
    Pass("sink_loops", sink_loops),
    Pass("overlap_communication", overlap_communication),
    Pass("coalesce_copies", coalesce_copies),
    Pass("update_in_place", update_in_place),
    Pass("reorder_for_peak_memory", reorder_for_peak_memory),
    Pass("plan_lifetimes", plan_lifetimes, required=True),
    Pass("reuse_buffers", reuse_buffers, lambda options: options.limits.share_memory),
)
"""Those on a program that every compile has; what chooses kernels comes after them."""


def schedule_tensors(context: PassContext, graph: TensorGraph) -> TensorProgram:
    """Decide what gets memory, and fuse."""
    return run_passes(context, "tensor", TENSOR_PASSES, TensorProgram(graph), verify)


def schedule_loops(context: PassContext, program: Program) -> Program:
    """Rewrite the loops, order the steps, plan memory."""
    return run_passes(context, "program", LOOP_PASSES, program, verify_program)


def schedule(graph: TensorGraph, limits: Limits = DEFAULT) -> Program:
    """The program of a graph: fused, ordered, its loops emitted, its memory planned."""
    context = PassContext(options=Options(limits=limits))
    return schedule_loops(context, assemble(schedule_tensors(context, graph), limits))
