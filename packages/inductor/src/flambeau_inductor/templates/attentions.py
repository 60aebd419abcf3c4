"""Attention of a program, as the template sees it.

In: the steps of a program. Out: `FoundAttention`: the library call and what it computes. Invariant:
only calls without dropout of which nothing but the result itself is used: a backward needs the
library's own record of the rows' sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import torch

from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Axis, Instr, Load, Loop, Store
from flambeau_inductor.ir.program import Alloc, Argument, Extern, Layout, Program, Ref, RunLoop
from flambeau_inductor.templates.attention import Attention, Heads


@dataclass(frozen=True, slots=True)
class Positions:
    """Where a library call takes its bias, dropout and causality."""

    bias: int | None
    dropout: int
    causal: int


TARGETS: Mapping[str, Positions] = {
    "flambeau_prims.attention.default": Positions(3, 4, 5),
    "aten._scaled_dot_product_flash_attention.default": Positions(None, 3, 4),
    "aten._scaled_dot_product_efficient_attention.default": Positions(3, 5, 6),
    "aten._scaled_dot_product_cudnn_attention.default": Positions(3, 5, 6),
}
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
        steps[self.call : self.call + 1] = [Alloc(self.result), RunLoop(loop)]
        return replace(program, steps=tuple(steps))

    def told(self, name: str, dtype: torch.dtype) -> Loop:
        """A loop that says which buffers the kernel touches."""
        a, at = self.attention, Var("x0")
        read = [a.q, a.k, a.v, *([a.bias] if a.bias is not None else [])]
        body: list[Instr] = [Load(each.buffer, at, dtype) for each in read]
        body.append(Store(self.result, at, 0))
        batch, heads, _, length, *_, out = a.sizes
        return Loop(name, (Axis("x0", batch * heads * length * out),), (), tuple(body))


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
    where = TARGETS[step.target]
    if not step.results or step.results[0] is None or any(step.results[1:]):
        return None
    kwargs = dict(step.kwargs)
    dropout = _at(step, where.dropout, kwargs.get("dropout_p", 0.0))
    causal = _at(step, where.causal, kwargs.get("is_causal", False))
    bias = None
    if where.bias is not None:
        bias = _at(step, where.bias, kwargs.get("attn_bias", kwargs.get("bias")))
    if dropout != 0 or not isinstance(causal, bool):
        return None
    out = Ref(step.results[0])
    heads = [_heads(each, layouts) for each in (*step.args[:3], out)]
    added = _heads(bias, layouts) if bias is not None else None
    if any(each is None for each in heads) or (bias is not None and added is None):
        return None
    (q, first), (k, second), (v, third), (result, last) = (h for h in heads if h is not None)
    dtypes = {_dtype(each, layouts) for each in (*step.args[:3], out)}
    if bias is not None:
        dtypes.add(_dtype(bias, layouts))
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
    scale = kwargs.get("scale")
    if scale is not None and not isinstance(scale, int | float):
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
        width**-0.5 if scale is None else float(scale),
    )


def _at(step: Extern, position: int, otherwise: Argument) -> Argument:
    return step.args[position] if position < len(step.args) else otherwise


def _dtype(argument: Argument, layouts: Mapping[str, Layout]) -> torch.dtype | None:
    if not isinstance(argument, Ref):
        return None
    return (argument.layout or layouts[argument.buffer]).dtype


def _heads(
    argument: Argument, layouts: Mapping[str, Layout]
) -> tuple[Heads, tuple[int, ...]] | None:
    """An operand of four dimensions on a GPU, with its shape."""
    if not isinstance(argument, Ref):
        return None
    layout = argument.layout or layouts[argument.buffer]
    if layout.device.type != "cuda" or len(layout.shape) != 4:
        return None
    try:
        shape, stride, offset = layout.static()
    except TypeError:  # a size is open
        return None
    a, b, c, d = stride
    return Heads(argument.buffer, (a, b, c, d), offset), shape
