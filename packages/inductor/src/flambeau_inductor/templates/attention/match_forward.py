"""Pattern matching of attention in a program.

In: the steps of a program. Out: `FoundAttention`: the library call and what it computes. Invariant:
only calls without dropout of which nothing but the result, and the logarithms of the rows' sums, is
used: what else a call gives is for the library's own backward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch

from flambeau_inductor._torch_compat import argument_names, overload_of
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Axis, Instr, Load, Loop, Store
from flambeau_inductor.ir.program import Alloc, Argument, Extern, Layout, Program, Ref, RunLoop
from flambeau_inductor.templates.attention.problem import Attention, Heads, Rows
from flambeau_inductor.templates.gemm.operand_layout import dtype_of, static_of

TARGETS = frozenset(
    {
        "flambeau_prims.attention.default",
        "aten._scaled_dot_product_flash_attention.default",
        "aten._scaled_dot_product_efficient_attention.default",
        "aten._scaled_dot_product_cudnn_attention.default",
    }
)
DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32})
WIDEST = 256


@dataclass(frozen=True, slots=True)
class FoundAttention:
    """`call` is the position of the library call, `result` the buffer it makes."""

    attention: Attention
    call: int
    result: str

    def within(self, program: Program, loop: Loop) -> Program:
        """The program with `loop` in place of the call."""
        steps = list(program.steps)
        sums = self.attention.sums
        made = [Alloc(self.result), *([Alloc(sums.buffer)] if sums is not None else [])]
        steps[self.call : self.call + 1] = [*made, RunLoop(loop)]
        return replace(program, steps=tuple(steps))

    def told(self, name: str, dtype: torch.dtype) -> Loop:
        """A loop that says which buffers the kernel touches."""
        a = self.attention
        read = [a.q, a.k, a.v, *([a.bias] if a.bias is not None else [])]
        stored = [self.result, *([a.sums.buffer] if a.sums is not None else [])]
        batch, heads, _, length, *_, out = a.sizes
        points = batch * heads * length * out
        return touching(name, [each.buffer for each in read], stored, points, dtype)


def touching(
    name: str, read: Sequence[str], stored: Sequence[str], points: int, dtype: torch.dtype
) -> Loop:
    """A loop that says which buffers a kernel touches, and no more than that."""
    at = Var("x0")
    body: list[Instr] = [Load(buffer, at, dtype) for buffer in read]
    body += [Store(buffer, at, 0) for buffer in stored]
    return Loop(name, (Axis("x0", points),), (), tuple(body))


def find_attention(program: Program) -> list[FoundAttention]:
    """The calls that the template could take the place of, in order."""
    layouts = {b.name: b.layout for b in program.buffers}
    found = []
    for position, step in enumerate(program.steps):
        if isinstance(step, Extern) and step.target in TARGETS:
            attention = attention_of(step, layouts)
            if attention is not None:
                found.append(FoundAttention(attention, position, attention.out.buffer))
    return found


def attention_of(step: Extern, layouts: Mapping[str, Layout]) -> Attention | None:
    """What a library call computes; None for one that the template does not."""
    if not step.results or step.results[0] is None or any(step.results[2:]):
        return None
    given = arguments_of(step)
    dropout, causal, bias = settings_of(given)
    if dropout != 0 or not isinstance(causal, bool):
        return None
    sums = None
    if len(step.results) > 1 and step.results[1] is not None:
        sums = rows_of(Ref(step.results[1]), layouts)
        if sums is None:
            return None
    out = Ref(step.results[0])
    heads = [heads_of(each, layouts) for each in (*step.args[:3], out)]
    added = heads_of(bias, layouts) if bias is not None else None
    if any(each is None for each in heads) or (bias is not None and added is None):
        return None
    (q, first), (k, second), (v, third), (result, last) = (h for h in heads if h is not None)
    dtypes = {dtype_of(each, layouts) for each in (*step.args[:3], out)}
    if bias is not None:
        dtypes.add(dtype_of(bias, layouts))
    dtype = dtypes.pop()
    if dtypes or dtype is None or dtype not in DTYPES:
        return None
    batch, many, length, width = first
    kept, keys = second[1], second[2]
    if max(width, third[3]) > WIDEST or many % kept or last != (batch, many, length, third[3]):
        return None
    if added is not None and added[1] != (batch, many, length, keys):
        return None
    if 0 in (*first, *second, *third) or prod(last) == 0:
        return None
    if sums is not None and sums.length < length:
        return None
    scale = scale_of(given, width)
    if scale is None:
        return None
    return Attention(
        q,
        k,
        v,
        result,
        None if added is None else added[0],
        (batch, many, kept, length, keys, width, third[3]),
        dtype,
        causal,
        scale,
        sums,
    )


def arguments_of(step: Extern) -> dict[str, Argument]:
    """What a library call is given, by the names of its schema."""
    names = argument_names(overload_of(step.target))
    return dict(zip(names, step.args, strict=False)) | dict(step.kwargs)


def settings_of(given: Mapping[str, Argument]) -> tuple[Argument, Argument, Argument]:
    """Dropout, causality and bias."""
    bias = given.get("attn_bias", given.get("bias"))
    return given.get("dropout_p", 0.0), given.get("is_causal", False), bias


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


def heads_of(
    argument: Argument, layouts: Mapping[str, Layout]
) -> tuple[Heads, tuple[int, ...]] | None:
    """An operand of four dimensions on a GPU, with its shape."""
    if not isinstance(argument, Ref):
        return None
    found = static_of(argument, layouts)
    if found is None or len(found[0]) != 4:
        return None
    shape, stride, offset = found
    a, b, c, d = stride
    return Heads(argument.buffer, (a, b, c, d), offset), shape
