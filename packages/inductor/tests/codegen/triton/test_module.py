"""Which loops of a program share a kernel."""

from __future__ import annotations

from dataclasses import replace

import torch
from flambeau_inductor.codegen.triton.module import generate_module
from flambeau_inductor.ir.loops import Load, Loop, Store

from tests.codegen import loops

DTYPES = dict.fromkeys(["in0", "in1", "out", "a", "b"], torch.float32)
NUMELS = dict.fromkeys(DTYPES, 1 << 20)


def renamed(loop: Loop, name: str) -> Loop:
    """The same loop on other buffers."""
    body = [
        replace(i, buffer={"in0": "a", "out": "b"}[i.buffer]) if isinstance(i, Load | Store) else i
        for i in loop.body
    ]
    return replace(loop, name=name, body=tuple(body))


def test_equal_loops_on_other_buffers_share_a_kernel() -> None:
    first = replace(loops.softmax(300, 64), name="first")
    source = generate_module([first, renamed(first, "second")], DTYPES, NUMELS)
    assert [kernel.name for kernel in source.kernels] == ["first"]
    assert source.launches["second"].buffers == ("a", "b")


def test_equal_text_on_another_grid_is_another_kernel() -> None:
    small = replace(loops.pointwise("exp", 1, 32, torch.float32, torch.float32), name="small")
    large = replace(loops.pointwise("exp", 1, 64, torch.float32, torch.float32), name="large")
    source = generate_module([small, large], DTYPES, NUMELS)
    assert {kernel.name for kernel in source.kernels} == {"small", "large"}
    assert source.launches["large"].kernel.constants != source.launches["small"].kernel.constants
