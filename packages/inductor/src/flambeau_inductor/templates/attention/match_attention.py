"""Pattern matching of attention and of its backward in a program.

In: the steps of a program. Out: `FoundAttention`, `FoundBackward`: the library call and what it
computes. Invariant: only calls without dropout of which nothing but the result and the logarithms
of the rows' sums is used, or that give the three gradients, and that of a bias where all keys are
seen; what a forward call leaves is the same whoever made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch

from flambeau_inductor._torch_compat import argument_names, overload_of
from flambeau_inductor.ir.program import Argument, Buffer, Extern, Layout, Program, Ref
from flambeau_inductor.runtime.fused_attention import WIDEST
from flambeau_inductor.templates.attention.flash_backward import (
    Backward,
    backward_blocks,
    keys_kernel,
    queries_kernel,
)
from flambeau_inductor.templates.attention.flash_forward import attention_kernel, split_attention
from flambeau_inductor.templates.attention.problem import (
    Attention,
    Heads,
    Rows,
    blocks_for,
    key_blocks,
)
from flambeau_inductor.templates.call_replacement import (
    Buffers,
    FoundCall,
    Several,
    matched,
    templates_of,
)
from flambeau_inductor.templates.gemm.problem import dtype_of, static_of
from flambeau_inductor.tuning import Tuning

_SDPA = "aten._scaled_dot_product_"
KINDS = ("flash", "efficient", "cudnn")
TARGETS = frozenset(
    {"flambeau_prims.attention.default", *(f"{_SDPA}{kind}_attention.default" for kind in KINDS)}
)
BACKWARD_TARGETS = frozenset(
    {
        "flambeau_prims.attention_backward.default",
        *(f"{_SDPA}{kind}_attention_backward.default" for kind in KINDS),
    }
)
DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32})
BACKWARD_WIDEST = 128
"""The widest heads that the kernels of the backward were made for."""


@dataclass(frozen=True, slots=True)
class FoundAttention(FoundCall):
    """`call` is the position of the library call, on a `device`."""

    attention: Attention
    call: int
    device: torch.device

    @property
    def results(self) -> list[str]:
        sums = self.attention.sums
        return [self.attention.out.buffer, *([sums.buffer] if sums is not None else [])]

    def ways(
        self, buffers: Buffers, described: bool, tuning: Tuning
    ) -> Iterator[tuple[str, Several]]:
        """Kernels that are worth trying, by the names of their blocks."""
        a = self.attention
        if splits_keys(a, tuning):
            blocks, steps = key_blocks(a, tuning)
            name = f"split{steps}x{blocks.keys}w{blocks.warps}s{blocks.stages}"
            at = f"{self.result}_{name}", self.device
            yield name, split_attention(a, blocks, steps, buffers, *at)
            return
        batch, heads, _, length, *_, out = a.sizes
        for blocks in blocks_for(a, described, tuning):
            kernel = attention_kernel(a, blocks, buffers, f"{self.result}_{blocks.name}")
            made = (kernel, self.results, batch * heads * length * out)
            yield blocks.name, templates_of([made], a.dtype)


def find_attention(program: Program) -> list[FoundAttention]:
    """The calls that the template could take the place of, in order."""
    return matched(program, TARGETS, attention_of)


def attention_of(
    step: Extern, position: int, layouts: Mapping[str, Layout]
) -> FoundAttention | None:
    """What a library call computes; None for one that the template does not."""
    if not step.results or step.results[0] is None or any(step.results[2:]):
        return None
    given = arguments_of(step)
    settings = settings_of(given)
    if settings is None:
        return None
    causal, bias = settings
    sums = None
    if len(step.results) > 1 and step.results[1] is not None:
        if (sums := rows_of(Ref(step.results[1]), layouts)) is None:
            return None
    read = operands_of([*step.args[:3], Ref(step.results[0])], bias, layouts)
    if read is None:
        return None
    dtype, ((q, first), (k, second), (v, third), (result, last), *added) = read
    batch, many, length, width = first
    kept, keys = second[1], second[2]
    if max(width, third[3]) > WIDEST or many % kept or last != (batch, many, length, third[3]):
        return None
    if added and added[0][1] != (batch, many, length, keys):
        return None
    if 0 in (*first, *second, *third) or prod(last) == 0:
        return None
    scale = scale_of(given, width)
    if scale is None or (sums is not None and sums.length < length):
        return None
    sizes = (batch, many, kept, length, keys, width, third[3])
    biased = added[0][0] if added else None
    found = Attention(q, k, v, result, biased, sizes, dtype, causal, scale, sums)
    return FoundAttention(found, position, layouts[result.buffer].device)


def splits_keys(attention: Attention, tuning: Tuning) -> bool:
    """Whether this is of one query whose keys are split among programs."""
    _, heads, kept, length, keys, width, out = attention.sizes
    one = length == 1 and not attention.causal and attention.sums is None
    return one and tuning.splits_keys(heads // kept, keys, max(width, out), attention.dtype)


def arguments_of(step: Extern) -> dict[str, Argument]:
    """What a library call is given, by the names of its schema."""
    names = argument_names(overload_of(step.target))
    return dict(zip(names, step.args, strict=False)) | dict(step.kwargs)


def settings_of(given: Mapping[str, Argument]) -> tuple[bool, Argument] | None:
    """Whether it is causal, and the bias; None with dropout."""
    causal = given.get("is_causal", False)
    if given.get("dropout_p", 0.0) != 0 or not isinstance(causal, bool):
        return None
    return causal, given.get("attn_bias", given.get("bias"))


def scale_of(given: Mapping[str, Argument], width: int) -> float | None:
    """What the scores are multiplied by; None if it is no number."""
    scale = given.get("scale")
    if scale is None:
        return float(width**-0.5)
    return float(scale) if isinstance(scale, int | float) else None


def rows_of(argument: Argument, layouts: Mapping[str, Layout]) -> Rows | None:
    """A float32 number for each query, on a GPU; a dimension of one may follow."""
    if not isinstance(argument, Ref):
        return None
    found = static_of(argument, layouts)
    if found is None or dtype_of(argument, layouts) != torch.float32:
        return None
    shape, stride, offset = found
    if len(shape) not in (3, 4) or shape[3:] not in ((), (1,)):
        return None
    a, b, c = stride[:3]
    return Rows(argument.buffer, (a, b, c), shape[2], offset)


def operands_of(
    arguments: Sequence[Argument], bias: Argument, layouts: Mapping[str, Layout]
) -> tuple[torch.dtype, list[tuple[Heads, tuple[int, ...]]]] | None:
    """Operands of four dimensions on a GPU, with their shapes, and of a bias if there is one; None
    where they are not of one dtype that the kernels take."""
    found = []
    every = [*arguments, *([bias] if bias is not None else [])]
    for each in every:
        static = static_of(each, layouts)
        if static is None or len(static[0]) != 4 or not isinstance(each, Ref):
            return None
        shape, (a, b, c, d), offset = static
        found.append((Heads(each.buffer, (a, b, c, d), offset), shape))
    dtype, *others = {dtype_of(each, layouts) for each in every}
    return None if others or dtype is None or dtype not in DTYPES else (dtype, found)


@dataclass(frozen=True, slots=True)
class FoundBackward(FoundCall):
    """`call` is the position of the library call; `memory` is for `backward.delta`."""

    backward: Backward
    call: int
    memory: Buffer

    @property
    def attention(self) -> Attention:
        return self.backward.forward

    @property
    def results(self) -> list[str]:
        of_bias = self.backward.of_bias
        made = self.backward.grads if of_bias is None else (*self.backward.grads, of_bias)
        return [grad.buffer for grad in made]

    def ways(
        self, buffers: Buffers, described: bool, tuning: Tuning
    ) -> Iterator[tuple[str, Several]]:
        """Kernels of queries and of keys that are worth trying, by the names of their blocks."""
        backward, (dtypes, numels) = self.backward, buffers
        buffers = {**dtypes, self.memory.name: torch.float32}, numels
        batch, heads, _, length, _, width, _ = self.attention.sizes
        points, grads = batch * heads * length * width, self.results
        for pair in backward_blocks(self.attention, described, tuning):
            keys, queries = pair
            name = "_".join((self.result, *(blocks.name for blocks in pair)))
            first = queries_kernel(backward, queries, buffers, f"{name}_queries")
            second = keys_kernel(backward, keys, buffers, f"{name}_keys")
            made = ((first, [*grads, self.memory.name], points), (second, grads, points))
            way = templates_of(made, self.attention.dtype, [self.memory])
            yield f"{keys.name}+{queries.name}", way


def find_backward(program: Program) -> list[FoundBackward]:
    """The calls that the templates could take the place of, in order."""
    return matched(program, BACKWARD_TARGETS, backward_of)


def backward_of(step: Extern, position: int, layouts: Mapping[str, Layout]) -> FoundBackward | None:
    arguments, results = arguments_of(step), step.results[:3]
    if len(results) != 3 or None in results or any(step.results[4:]):
        return None
    settings, sums = settings_of(arguments), rows_of(arguments.get("logsumexp"), layouts)
    if settings is None or sums is None:
        return None
    causal, bias = settings
    learnt = [Ref(name) for name in step.results[3:] if name is not None]
    if learnt and causal:  # nobody writes the zeros of keys that are not seen
        return None
    written = [*(Ref(name) for name in results if name is not None), *learnt]
    every = operands_of([*step.args[:4], arguments.get("out"), *written], bias, layouts)
    if every is None:
        return None
    dtype, operands = every
    (grad, of_grad), (q, of_q), (k, of_k), (v, of_v), (out, of_out), *made = operands
    grads, added = made[:3], made[3:]
    batch, heads, length, width = of_q
    keys, last = of_k[2], of_v[3]
    sizes = (batch, heads, heads, length, keys, width, last)
    scale = scale_of(arguments, width)
    fits = (
        of_k == (batch, heads, keys, width)
        and of_v == (batch, heads, keys, last)
        and of_grad == of_out == (batch, heads, length, last)
        and [shape for _, shape in grads] == [of_q, of_k, of_v]
        and all(shape == (batch, heads, length, keys) for _, shape in added)
    )
    if not fits or scale is None or 0 in sizes or max(width, last) > BACKWARD_WIDEST:
        return None
    if sums.length < length:
        return None
    biased = added[-1][0] if bias is not None else None
    forward = Attention(q, k, v, out, biased, sizes, dtype, causal, scale, sums)
    memory = f"{results[0]}_delta"
    strides = (heads * length, length, 1)
    device = layouts[written[0].buffer].device
    layout = Layout((batch, heads, length), strides, torch.float32, device)
    delta = Rows(memory, strides, length)
    first, second, third = (each for each, _ in grads)
    of_bias = added[0][0] if learnt else None
    backward = Backward(forward, grad, delta, (first, second, third), of_bias)
    return FoundBackward(backward, position, Buffer(memory, layout))
