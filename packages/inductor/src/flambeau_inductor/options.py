"""Options of the inductor.

In: keyword arguments, and the environment for what is left open. Out: `Options`. Invariant: plain
frozen data that later stages are handed; nothing else in the package reads the environment for a
choice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from flambeau_inductor.scheduling_limits import Limits

Kernels = Literal["auto", "cpp", "triton"]
Random = Literal["eager", "philox"]
Products = Literal["measured", "blas", "onednn"]

DEBUG_DIR = "FLAMBEAU_DEBUG_DIR"
CACHE_DIR = "FLAMBEAU_CACHE_DIR"
VERIFY = "FLAMBEAU_VERIFY"


@dataclass(frozen=True, slots=True)
class Fuel:
    """Bounds on how often each kind of pass may act (Whalley, "Automatic isolation of compiler
    errors", TOPLAS 1994). A compile with less fuel means the same as one with more; only what does
    the work differs, so that the first amount with which an answer is wrong names the step that is
    to blame.

    Steps that may be taken of each kind, in the order in which they come; None: all of them.


    passes: those of the lists that may be left out (see `flambeau_inductor.pipeline`).
    rewrites: nodes replaced by rules of the rewriter (`flambeau_inductor.passes.rewriter`), before
        autograd and after it.
    lowerings: operations lowered by a rule. Later ones are library calls; views, which only say
        where elements are, are always lowered.
    fusions: pairs of loops joined.
    kernels: loops that run as generated kernels. Later ones are evaluated by torch on the CPU,
        slowly, by the meaning of their IR.
    """

    passes: int | None = None
    rewrites: int | None = None
    lowerings: int | None = None
    fusions: int | None = None
    kernels: int | None = None


ALL = Fuel()


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of one compile. `None` leaves the choice to the environment or to the compiler."""

    kernels: Kernels = "auto"
    """`auto`: C++ for CPU tensors, Triton for CUDA tensors. `triton` on CPU tensors needs
    Triton's interpreter (`TRITON_INTERPRET=1`)."""

    compiler: str | None = None
    """C++ compiler; `CXX`, else the first of g++, c++, clang++ that is found."""

    processor: str | None = None
    """Processor that C++ kernels are built for, as the compiler's `-march` names it (`x86-64-v3`,
    `znver4`); that of this machine. What it lacks cannot be run here."""

    threads: int | None = None
    """Most threads that a C++ kernel uses; as many as torch at the time of the call."""

    cache_dir: str | None = None
    """Folder of built kernels (`FLAMBEAU_CACHE_DIR`, else the user's cache folder)."""

    disk_cache: bool = True
    """Let `flambeau` keep whole compiled graphs in `cache_dir`, to start from in the next process;
    kernels are kept in any case."""

    debug_dir: str | None = None
    """Where to leave a folder with every stage's product (`FLAMBEAU_DEBUG_DIR`)."""

    verify: bool | None = None
    """Hold what each pass has changed to the rules of its IR (`FLAMBEAU_VERIFY=1`)."""

    check_values: bool = False
    """After every kernel and library call, look for NaN in what it wrote; the first one raises
    FloatingPointError with the step and the graph's nodes. For finding out: it is slow."""

    check_inputs: bool | None = None
    """Compare each call's inputs with those compiled for; on unless `info` is given, since whoever
    gives that also guards the inputs."""

    max_autotune: bool = False
    """Measure other ways to compute and take the fastest: on a GPU, matrix products from a template
    with what follows them in the same kernel, and other tilings; on a CPU, which library multiplies
    matrices of each size, and other forms of kernels over much memory. The choices are kept on
    disk."""

    autotune_seconds: float = 20.0
    """Seconds that the measurements of one graph may take."""

    freezing: bool = False
    """Inference (gradients off): parameters and buffers are read once, batch norms are folded into
    the convolutions and linear maps before them, and weights of convolutions and linear maps are
    kept in the library's own order. Later changes of the weights are not seen."""

    channels_last: bool = True
    """Networks of depthwise and 1 x 1 convolutions on a CPU, and of any in half precision on a GPU,
    keep images channels-last inside."""

    products: Products = "measured"
    """Which of torch's libraries multiplies large float32 matrices on a CPU: its BLAS, oneDNN, or
    the faster one (measured once, and kept in `cache_dir`)."""

    kept_memory: int | None = None
    """Bytes of large results (more than 32 MiB each) on a CPU that a graph may keep when nobody
    else holds them, to use again in its next call; the system would take the time of a kernel to
    clear others. None: a thirty-second of the machine's memory."""

    random: Random = "eager"
    """Whose random numbers: those that eager would draw, in its order, or ("philox") the
    primitives' own, computed inside kernels from one drawn seed (dropout without a pass over memory
    for its mask). The caller's decompositions follow it: see `flambeau_prims.decompositions`."""

    deterministic: bool = False
    """Refuse library calls whose result depends on the order in which threads arrive, as
    `torch.use_deterministic_algorithms` does. Generated kernels always give the same bits for the
    same inputs and number of threads."""

    cuda_graphs: bool | None = None
    """Record a graph on a GPU after a few calls, and replay it as one launch (see
    `flambeau_inductor.runtime.gpu.cuda_graphs` for what is checked at each call). None: where
    launching was measured to take as long as the device does, and every step is known to allow
    it."""

    kept_binaries: bool = True
    """Keep the binaries of a GPU's kernels in `cache_dir`, and load them in the next process by the
    CUDA driver: a warm start does without Triton, which is imported for what is not there."""

    merge_collectives: bool = False
    """Small collectives of one kind (gradients that are averaged, parameters that are gathered) are
    one call over a flat buffer, where that is faster by the model of the link. All ranks of a group
    must have the same graphs, and go on having them: one that breaks its own between two members,
    to print a loss, starts other collectives than the rest."""

    chunk_products: bool = False
    """Products of what is gathered over ranks, and products that are scattered over them, are in
    chunks, of which one is multiplied while the next is on its way (asynchronous tensor
    parallelism), where that is faster by the models of link and machine. All ranks of a group must
    have the same graphs, on devices of one kind."""

    overlap_memory: float = 0.25
    """How much more memory, as a share of what the graph takes without, collectives that start
    early and are waited for late may take (see `flambeau_inductor.schedule.communication`)."""

    skip_passes: tuple[str, ...] = ()
    """Names of passes, or of single rules, to leave out (see `flambeau_inductor.pipeline`)."""

    limits: Limits = field(default_factory=Limits)
    """Thresholds of inlining and fusion."""

    fuel: Fuel = field(default_factory=Fuel)
    """How much of each kind of work is done, to find the step that makes an answer wrong."""

    observer: Callable[[str, Any], None] | None = field(default=None, compare=False, repr=False)
    """Called with the name of each stage when it is done, and the `Compilation` as far as it is.
    It only looks: nothing that is compiled depends on it."""


def settled(options: Options, environment: Mapping[str, str] | None = None) -> Options:
    """`options` with what they leave open taken from the environment."""
    env = os.environ if environment is None else environment
    return replace(
        options,
        cache_dir=options.cache_dir or env.get(CACHE_DIR) or None,
        debug_dir=options.debug_dir or env.get(DEBUG_DIR) or None,
        verify=env.get(VERIFY, "") not in ("", "0") if options.verify is None else options.verify,
    )
