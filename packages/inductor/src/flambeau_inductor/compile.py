"""The front door: a graph of primitives in, a callable out.

In: an FX graph of primitives (and ATen overloads that nothing decomposed), its example inputs,
facts about it. Out: a `CompiledGraph`. Invariant: the stages are the list `STAGES`: those that run
a list of passes of one level, and those that make one level's IR of another's.
"""

from __future__ import annotations

import operator
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from flambeau_prims import prim_of
from torch import fx

from flambeau_inductor.autotune.benchmark import Budget
from flambeau_inductor.autotune.cpp_variants import library_choices
from flambeau_inductor.compile_state import Compilation
from flambeau_inductor.cuda_graph_rules import rules_of, why_not
from flambeau_inductor.debug import DebugFolder, open_debug_folder
from flambeau_inductor.driver import run_passes
from flambeau_inductor.errors import InductorError
from flambeau_inductor.info import ALONE, GraphInfo
from flambeau_inductor.ir.program import Extern, Program
from flambeau_inductor.ir.tensors import TensorGraph
from flambeau_inductor.ir.verify import verify_program
from flambeau_inductor.kernels import generate
from flambeau_inductor.lowering import LoweringError, lower_graph
from flambeau_inductor.lowering.graph import refuse_unordered
from flambeau_inductor.options import Options, settled
from flambeau_inductor.passes.primitive_passes import rewrite
from flambeau_inductor.pipeline import LIBRARY_PASSES, PROGRAM_PASSES
from flambeau_inductor.runtime.artifact import Artifact, CompiledGraph, load_wrapper, recorded
from flambeau_inductor.runtime.report import Report
from flambeau_inductor.schedule.assemble import assemble
from flambeau_inductor.schedule.schedule import schedule_tensors
from flambeau_inductor.wrapper import generate as generate_wrapper

DEFAULT = Options()
# tags of primitives that only say where elements are
MOVES = frozenset({"view", "shape", "creation"})


def compile(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    info: GraphInfo | None = None,
    options: Options = DEFAULT,
) -> CompiledGraph:
    """Compile `gm`.

    Args:
        gm: a functional graph of primitives; every node has `meta["val"]` or a shape rule.
        example_inputs: real or fake tensors, one a placeholder; only their metadata is read.
        info: what is known of the graph; None: it is one on its own.
        options: see `Options`.

    Raises:
        InductorError: the graph holds something that cannot be compiled; it names it.
        NotYetSymbolic: a size is a symbol that some stage cannot leave open. Symbols that are left
            open are read from the inputs at each call; what is assumed about them is a guard of
            their shape environment when this returns.
        CompilerNotFound: there is no C++ compiler; it names what to install.
    """
    known, options = ALONE if info is None else info, settled(options)
    work = Compilation(gm, example_inputs, known, options=options)
    debug = open_debug_folder(options.debug_dir, work.name)
    work.show = debug.show
    if any(isinstance(v, torch.Tensor) and v.is_cuda for v in example_inputs):
        from flambeau_inductor.codegen.triton import build  # programs of a CPU never need it

        if not build.interpreting():
            build.start()  # it is awaited where the first kernel is built
    try:
        for stage, product, run in STAGES:
            started = time.perf_counter()
            setattr(work, product, run(work))
            work.seconds[stage] = time.perf_counter() - started
            debug.after(stage, work)
            if options.observer is not None:
                options.observer(stage, work)
    except LoweringError as error:
        raise InductorError(str(error)) from error
    return _finished(work, debug)


def _rewrite(work: Compilation) -> fx.GraphModule:
    """Kernels read memory as it is: values that are stored negated or conjugated are refused."""
    for position, value in enumerate(work.example_inputs):
        if isinstance(value, torch.Tensor) and (value.is_neg() or value.is_conj()):
            raise InductorError(f"input {position} has the negative or the conjugate bit set")
    return rewrite(work.given, work)


def _lower(work: Compilation) -> TensorGraph:
    options = work.options
    work.budget = Budget(options.autotune_seconds)
    work.library = library_choices(options, work.budget)
    made = lower_graph(
        run_passes(work, "library", LIBRARY_PASSES, work.graph, lambda gm: gm.graph.lint()),
        work.example_inputs,
        work.info,
        options.fuel,
        work.open_sizes,
        options.deterministic,
        work.library,
    )
    if options.deterministic:
        refuse_unordered(made)
    return made


def _optimize(work: Compilation) -> Program:
    def verify(program: Program) -> None:
        verify_program(program, work.chosen_kernels)

    return run_passes(work, "program", PROGRAM_PASSES, work.assembled, verify)


def _wrap(work: Compilation) -> Callable[[list[Any]], tuple[Any, ...]]:
    program = work.program
    launches = {name: launch for text in work.kernels for name, launch in text.launches.items()}
    check = work.options.check_inputs
    checked = work.info is ALONE if check is None else check
    frozen = work.options.freezing and work.info.kind == "inference"
    work.wrapper = generate_wrapper(
        program,
        launches,
        check_inputs=checked,
        check_values=work.options.check_values,
        unchanging=frozenset(work.info.static_inputs if frozen else ()),
        kept_memory=work.options.kept_memory,
    )
    functions = {name: each for built in work.built for name, each in built.functions.items()}
    known: dict[str, object] = {**functions, **dict(program.constants)}
    call = load_wrapper(work.wrapper.text, work.name, known)
    work.open_sizes.record()
    return call


STAGES: tuple[tuple[str, str, Callable[[Compilation], Any]], ...] = (
    ("rewrite", "graph", _rewrite),
    ("lower", "tensors", _lower),
    ("schedule", "schedule", lambda work: schedule_tensors(work, work.tensors)),
    ("assemble", "assembled", lambda work: assemble(work.schedule, work.limits)),
    ("optimize", "program", _optimize),
    ("generate", "kernels", generate.generate),
    ("build", "built", lambda work: tuple(text.build() for text in work.kernels)),
    ("wrap", "call", _wrap),
)
"""The name of each, and the field that it fills in."""


def _finished(work: Compilation, debug: DebugFolder) -> CompiledGraph:
    program = work.program
    externs = [s for s in program.steps if isinstance(s, Extern)]
    sources = {text.file: text.text for text in work.kernels} | {"wrapper.py": work.wrapper.text}
    report = Report(
        name=work.name,
        kernels=len(work.loops()),
        distinct_kernels=sum(text.distinct for text in work.kernels),
        fused_ops=_fused(work.graph, externs) if work.kernels else 0,
        externs=dict(Counter(e.target for e in externs)),
        fallbacks=tuple(work.tensors.fallbacks),
        refused_fusions=len(work.refusals),
        cache_hit=bool(work.built) and all(built.hit for built in work.built),
        cache_faults=(*work.faults, *(built.fault for built in work.built if built.fault)),
        chosen=work.choices,
        unrecorded=why_not(program) or "",
        seconds=work.seconds,
        passes=work.pass_seconds,
        sources=sources,
    )
    debug.finish(report)
    kinds = {b.layout.device.type for b in program.buffers} if externs else set()
    gpus = [d.index or 0 for b in program.buffers if (d := b.layout.device).type == "cuda"]
    gpu = gpus[0] if gpus and work.loops() else None
    parts = tuple(built.part for built in work.built if built.part is not None)
    artifact = Artifact(
        name=work.name,
        wrapper=work.wrapper.text,
        parts=parts,
        constants=dict(program.constants),
        devices=tuple(filter(torch.amp.is_autocast_available, sorted(kinds))),
        gpu=gpu,
        recorded=rules_of(program, work.info, work.options.cuda_graphs),
        report=report.to_dict(),
    )
    call = recorded(work.call, artifact)
    keep = tuple(each for built in work.built for each in built.keep)
    whole = artifact if len(parts) == len(work.built) else None
    return CompiledGraph(call, report, artifact.devices, keep, gpu, whole)


def _fused(gm: fx.GraphModule, externs: Sequence[Extern]) -> int:
    """Operations of the graph that compute something and do not run in the library."""
    outside = {origin for e in externs for origin in e.origins}
    calls = (n for n in gm.graph.nodes if n.op == "call_function" and n.name not in outside)
    prims = (prim_of(n.target) for n in calls if n.target is not operator.getitem)
    return sum(prim is None or not MOVES & prim.tags for prim in prims)
