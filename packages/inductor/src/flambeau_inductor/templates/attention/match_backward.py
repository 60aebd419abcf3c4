"""Pattern matching of attention's backward in a program.

In: the steps of a program. Out: `FoundBackward`: the library call and what it computes. Invariant:
only calls without dropout that give all three gradients, and none of a bias; what the forward left
(its result and the logarithms of the rows' sums) is the same whoever made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.ir.loops import Loop
from flambeau_inductor.ir.program import (
    Alloc,
    Buffer,
    Extern,
    FreeBuffer,
    Layout,
    Program,
    Ref,
    RunLoop,
    Step,
)
from flambeau_inductor.templates.attention.backward_keys_values import keys_kernel
from flambeau_inductor.templates.attention.backward_queries import queries_kernel
from flambeau_inductor.templates.attention.flash_backward import Backward
from flambeau_inductor.templates.attention.match_forward import (
    DTYPES,
    arguments_of,
    heads_of,
    rows_of,
    scale_of,
    settings_of,
    touching,
)
from flambeau_inductor.templates.attention.problem import Attention, Blocks, Rows
from flambeau_inductor.templates.gemm.operand_layout import dtype_of

WIDEST = 128


TARGETS = frozenset(
    {
        "flambeau_prims.attention_backward.default",
        "aten._scaled_dot_product_flash_attention_backward.default",
        "aten._scaled_dot_product_cudnn_attention_backward.default",
        "aten._scaled_dot_product_efficient_attention_backward.default",
    }
)


@dataclass(frozen=True, slots=True)
class FoundBackward:
    """`call` is the position of the library call; `memory` is for `backward.delta`."""

    backward: Backward
    call: int
    memory: Buffer

    @property
    def result(self) -> str:
        """The first buffer that it makes."""
        return self.backward.grads[0].buffer

    def kernels(
        self,
        pair: tuple[Blocks, Blocks],
        dtypes: Mapping[str, torch.dtype],
        numels: Mapping[str, int],
        name: str,
    ) -> tuple[TritonKernel, TritonKernel]:
        """The kernels, in the order to run them in."""
        delta = self.backward.delta.buffer
        dtypes = {**dtypes, delta: torch.float32}
        return (
            queries_kernel(self.backward, pair[1], dtypes, numels, f"{name}_queries"),
            keys_kernel(self.backward, pair[0], dtypes, numels, f"{name}_keys"),
        )

    def told(self, kernels: Sequence[TritonKernel]) -> tuple[Loop, ...]:
        """Loops that say which buffers the kernels touch."""
        a = self.backward.forward
        grads = {grad.buffer for grad in self.backward.grads}
        queries, keys = kernels
        batch, heads, _, length, _, width, _ = a.sizes
        made = []
        for kernel, own in ((queries, grads | {self.memory.name}), (keys, grads)):
            read = [b for b in kernel.arguments if b not in own]
            written = [b for b in kernel.arguments if b in own]
            points = batch * heads * length * width
            made.append(touching(kernel.name, read, written, points, a.dtype))
        return tuple(made)

    def within(self, program: Program, loops: Sequence[Loop]) -> Program:
        """The program with `loops` in place of the call, and memory for `delta` around them."""
        grads = (grad.buffer for grad in self.backward.grads)
        steps: list[Step] = [Alloc(name) for name in (self.memory.name, *grads)]
        steps += [RunLoop(loop) for loop in loops]
        steps.append(FreeBuffer(self.memory.name))
        all_steps = (*program.steps[: self.call], *steps, *program.steps[self.call + 1 :])
        return replace(program, steps=all_steps, buffers=(*program.buffers, self.memory))


def find_backward(program: Program) -> list[FoundBackward]:
    """The calls that the templates could take the place of, in order."""
    layouts = {b.name: b.layout for b in program.buffers}
    found = []
    for position, step in enumerate(program.steps):
        if isinstance(step, Extern) and step.target in TARGETS:
            made = _found(step, position, layouts)
            if made is not None:
                found.append(made)
    return found


def _found(step: Extern, position: int, layouts: Mapping[str, Layout]) -> FoundBackward | None:
    arguments, results = arguments_of(step), step.results[:3]
    if len(results) != 3 or None in results or any(step.results[3:]):
        return None
    dropout, causal, bias = settings_of(arguments)
    sums = rows_of(arguments.get("logsumexp"), layouts)
    if dropout != 0 or not isinstance(causal, bool) or sums is None:
        return None
    read = [*step.args[:4], arguments.get("out")]
    given = [*read, *([bias] if bias is not None else [])]
    written = [Ref(name) for name in results if name is not None]
    dtypes = {dtype_of(each, layouts) for each in (*given, *written)}
    operands = [heads_of(each, layouts) for each in (*given, *written)]
    dtype = dtypes.pop()
    if dtypes or dtype is None or dtype not in DTYPES or None in operands:
        return None
    known = [each for each in operands if each is not None]
    (grad, of_grad), (q, of_q), (k, of_k), (v, of_v), (out, of_out) = known[:5]
    batch, heads, length, width = of_q
    keys, last = of_k[2], of_v[3]
    sizes = (batch, heads, heads, length, keys, width, last)
    scale = scale_of(arguments, width)
    fits = (
        of_k == (batch, heads, keys, width)
        and of_v == (batch, heads, keys, last)
        and of_grad == of_out == (batch, heads, length, last)
        and [shape for _, shape in known[-3:]] == [of_q, of_k, of_v]
        and (bias is None or known[5][1] == (batch, heads, length, keys))
    )
    if not fits or scale is None or 0 in sizes or max(width, last) > WIDEST:
        return None
    if sums.length < length:
        return None
    added = known[5][0] if bias is not None else None
    forward = Attention(q, k, v, out, added, sizes, dtype, causal, scale, sums)
    memory = f"{results[0]}_delta"
    strides = (heads * length, length, 1)
    device = layouts[written[0].buffer].device
    layout = Layout((batch, heads, length), strides, torch.float32, device)
    delta = Rows(memory, strides, length)
    first, second, third = (heads for heads, _ in known[-3:])
    backward = Backward(forward, grad, delta, (first, second, third))
    return FoundBackward(backward, position, Buffer(memory, layout))
