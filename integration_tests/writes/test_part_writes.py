"""Random writes to parts of tensors, read in between, held to eager at several positions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import flambeau

SHAPE = (4, 6, 8)


def _key(draw: random.Random) -> str:
    """An index of fewer or as many dimensions, with a position that changes from call to call."""
    parts = []
    for size in SHAPE[: draw.randint(1, 3)]:
        low = draw.randrange(size)
        high = draw.randint(low + 1, size)
        forms = ["pos", str(low), str(low - size), ":", f"{low}:{high}", f"pos:pos + {1 + low % 2}"]
        parts.append(draw.choice([*forms, f"{low}:{high}:{draw.randint(1, 3)}"]))
    if draw.random() < 0.2:
        parts[0] = "..."
    return ", ".join(parts)


def _lines(draw: random.Random) -> list[str]:
    """Statements that write parts of `c`, and read it in between."""
    lines = ["    found = []"]
    if draw.random() < 0.4:
        lines.append(draw.choice(["    c = c * 2", "    c = torch.zeros_like(c)"]))
    for _ in range(draw.randint(1, 5)):
        key, other = _key(draw), _key(draw)
        writes = [
            f"c[{key}] = value", f"c[{key}] += value", f"c[{key}] = c[{key}] * value",
            f"c[{key}].copy_(c[{key}].flip(0) if c[{key}].dim() else c[{key}])",
            f"c[{key}].fill_(2.5)", f"c[{key}] = k[{key}]", f"v = c[{key}]; v.mul_(value)",
        ]  # fmt: skip
        reads = [f"found.append(c[{other}].sum())", f"found.append(c[{other}] + 1)"]
        reads += ["found.append(c.clone())", f"value = value + c[{other}].mean()", "pass"]
        lines += [f"    {draw.choice(writes)}", f"    {draw.choice(reads)}"]
    return [*lines, "    return found, c" if draw.random() < 0.5 else "    return found"]


def _program(seed: int) -> Callable[..., Any]:
    text = "\n".join(["def program(c, k, value, pos):", *_lines(random.Random(seed))])
    space: dict[str, Any] = {"torch": torch}
    exec(compile(text, f"<program {seed}>\n{text}", "exec"), space)
    program: Callable[..., Any] = space["program"]
    return program


@pytest.mark.sweep(12)
@pytest.mark.parametrize("seed", range(40))
def test_random_writes(seed: int) -> None:
    program = _program(seed)
    compiled = flambeau.compile(program)
    for pos in (1, 2, 0):
        c, k = torch.randn(SHAPE), torch.randn(SHAPE)
        mine, theirs = c.clone(), c.clone()
        got = compiled(mine, k, torch.tensor(0.5), pos)
        wanted = program(theirs, k, torch.tensor(0.5), pos)
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("key", ["1:", ":-1", "0", "..., :1", ":, 1:"])
@pytest.mark.parametrize(
    "shape", [(2, 1, 3), (2, 3, 1), (1, 2, 3), (2, 1, 1, 4), (2, 3, 4)], ids=str
)
def test_parts_of_a_turned_tensor_are_written_in_one_kernel(shape, key):
    space = {"torch": torch}
    text = f"""def program(x):
        v = x.mT
        v.floor_divide_(3)
        v[...] += v
        v[{key}] *= 2
        v.fmod_(torch.tensor(5.0))
        return x, v"""
    exec(text, space)
    program = space["program"]
    x = torch.arange(-7.0, torch.Size(shape).numel() - 7).reshape(shape) * 2.5
    theirs, ours = program(x.clone()), flambeau.compile(program, fullgraph=True)(x.clone())
    for wanted, got in zip(theirs, ours, strict=True):
        assert torch.equal(wanted, got) and wanted.stride() == got.stride()
