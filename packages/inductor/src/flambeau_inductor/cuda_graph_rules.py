"""CUDA graph eligibility of a program, and the rules of its recording.

In: a scheduled program, facts about its graph, and what the caller chose. Out: `Rules`, or None.
Invariant: a program is recorded unasked only if every step is known to queue work on the current
stream and to do nothing else: no look at the device's memory, no number from the host, one device.
"""

from __future__ import annotations

import torch

from flambeau_inductor.info import GraphInfo
from flambeau_inductor.ir.program import CheckIndex, Extern, Program, RunLoop
from flambeau_inductor.runtime.gpu.cuda_graphs import Rules
from flambeau_inductor.schedule.communication import is_collective
from flambeau_inductor.schedule.memory import planning
from flambeau_inductor.tuning import tuning_of

_QUEUE_ONLY = """
    aten._assert_async.msg aten.addmm.out aten.avg_pool2d_backward.default aten.baddbmm.out
    aten.bernoulli.default aten.bernoulli.p aten.bmm.out aten.cat.out aten.clone.default
    aten.convolution.default aten.convolution_backward.default aten.cumprod.out
    aten.cumsum.out aten.index_add.default aten.index_put.default
    aten.max_pool2d_with_indices_backward.default aten.mm.out aten.native_dropout.default
    aten.rand.default aten.rand_like.default aten.randn.default aten.randn_like.default
    aten.scatter.src aten.scatter_add.default aten.sort.stable aten.topk.default
    aten._scaled_dot_product_cudnn_attention.default
    aten._scaled_dot_product_cudnn_attention_backward.default
    aten._scaled_dot_product_efficient_attention.default
    aten._scaled_dot_product_efficient_attention_backward.default
    aten._scaled_dot_product_flash_attention.default
    aten._scaled_dot_product_flash_attention_backward.default
    aten._embedding_bag_dense_backward.default flambeau_inductor.lstm.default
    flambeau_inductor.lstm_backward.default flambeau_prims.as_strided_scatter.default
    flambeau_prims.attention.default flambeau_prims.attention_backward.default
    flambeau_prims.seed.default
    """
QUEUE_ONLY = frozenset(_QUEUE_ONLY.split())
"""Library calls that read and write the device's memory in the order of the stream alone. Random
numbers are among them: a recording draws where the generator is at each replay."""

QUEUE_ONLY_FROM = {"aten._grouped_mm.default": (9, 0)}
"""The same from a compute capability on: below, torch brings the ends of groups to the host."""

PRODUCTS = frozenset({"aten.addmm.out", "aten.baddbmm.out", "aten.bmm.out", "aten.mm.out"})
"""Calls for which the library keeps a workspace a stream."""

LONG = frozenset({"flambeau_inductor.lstm.default", "flambeau_inductor.lstm_backward.default"})
"""Library calls that launch many kernels, at least one a time step."""


def rules_of(program: Program, info: GraphInfo, asked: bool | None) -> Rules | None:
    """The rules; `asked` is None where the choice is ours. None: it is not recorded. A program that
    communicates never is: a process that records while another runs might wait for ever."""
    if asked is False or (asked is None and why_not(program) is not None):
        return None
    if any(isinstance(step, Extern) and is_collective(step) for step in program.steps):
        return None
    return Rules(
        static=info.static_inputs,
        inside=tuple(sorted({*info.saved_outputs, *info.mutated_outputs})),
        automatic=asked is None,
        copies=info.kind != "backward",
        size=peak_bytes(program),
        reusable=info.reusable_inputs,
        products=any(isinstance(s, Extern) and s.target in PRODUCTS for s in program.steps),
        updates=info.updates,
    )


def why_not(program: Program) -> str | None:
    """Why a program is not recorded unasked."""
    if program.symbols or program.numbers or program.scalars:
        return "it takes numbers from the host"
    devices = {b.layout.device for b in program.buffers}
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        return "not all of it is on one GPU"
    launched = [s for s in program.steps if isinstance(s, RunLoop | Extern)]
    long = any(isinstance(s, Extern) and s.target in LONG for s in launched)
    if len(launched) < tuning_of(devices).recorded_launches and not long:
        return f"{len(launched)} launches"
    for step in program.steps:
        if isinstance(step, CheckIndex):
            return "the host looks at an index"
        if isinstance(step, Extern) and is_collective(step):
            return f"{step.target} communicates with other processes"
        if isinstance(step, Extern) and not _only_queues(step):
            return f"{step.target} may wait for the device"
    return None


def _only_queues(step: Extern) -> bool:
    if step.target == "aten.histc.default":  # without a range it brings the extremes to the host
        given = dict(zip(("self", "bins", "min", "max"), step.args)) | dict(step.kwargs)
        return given.get("min", 0) != given.get("max", 0)
    since = QUEUE_ONLY_FROM.get(step.target)
    if since is None:
        return step.target in QUEUE_ONLY
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= since


def peak_bytes(program: Program) -> int:
    """Bytes that the program's own buffers take at once; open sizes count nothing."""
    return planning.peak_bytes(program.steps, program.by_name)
