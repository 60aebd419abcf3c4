"""Values of bfloat16 that are kept as float32, and kernels that do not fit a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from flambeau_inductor.codegen.triton import build as building
from flambeau_inductor.codegen.triton.kernel import STAGES, TritonKernel, generate
from flambeau_inductor.codegen.triton.tiling import choose
from flambeau_inductor.ir.loops import Const, Instr, Load, Loop, Point, Reduce, Store

from tests.codegen import loops
from tests.codegen.triton.run import run_loop
from tests.poison import poisoned

BF16, F32 = torch.bfloat16, torch.float32
PARTS, ROWS, COLUMNS = 2, 3, 512


def rounding(dtype: torch.dtype = BF16) -> Loop:
    """Rows whose elements are rounded on the way: one that is read at once, one that waits."""
    at = loops.x() * (ROWS * COLUMNS) + loops.x(1) * COLUMNS + loops.r()
    body: list[Instr] = [
        Load("in0", at, dtype),
        Point("cast", (0,), F32),
        Const(1.5, F32),
        Point("mul", (1, 2), F32),
        Point("cast", (3,), dtype),
        Point("cast", (4,), F32),
        Reduce("sum", 5, F32),
        Point("mul", (0, 0), dtype),
        Point("cast", (7,), F32),
        Point("mul", (8, 6), F32),
        Point("cast", (9,), dtype),
        Store("out", at, 10),
        Store("sums", loops.x() * COLUMNS + loops.r(), 5, "total"),
    ]
    return loops.loop("rounding", (PARTS, ROWS), (COLUMNS,), body)


def _kernel(loop: Loop, dtype: torch.dtype) -> TritonKernel:
    dtypes = {"in0": dtype, "out": dtype, "sums": F32}
    return generate(loop, dtypes, dict.fromkeys(dtypes, 1 << 20))


def test_what_is_read_at_once_is_rounded_in_pairs() -> None:
    text = _kernel(rounding(), BF16).source
    assert "v4 = fm.as_bfloat16(v3)" in text
    assert text.count("fm.as_bfloat16") == 2  # v7 is read at once too, by the cast behind it
    assert "fm.as_bfloat16" not in _kernel(rounding(torch.float16), torch.float16).source


@pytest.mark.parametrize("dtype", [BF16, torch.float16])
def test_numbers_are_rounded_all_the_same(dtype: torch.dtype, tmp_path: Path) -> None:
    # of few bits: Triton's interpreter cuts what it makes bfloat16 off
    x = (torch.randint(-8, 9, (PARTS * ROWS, COLUMNS)) / 4).to(dtype)
    buffers = {
        "in0": x.reshape(-1),
        "out": poisoned(x.numel(), dtype=dtype),
        "sums": poisoned(PARTS * COLUMNS),
    }
    run_loop(rounding(dtype), buffers, tmp_path)
    scaled = (x.float() * 1.5).to(dtype).float()
    want = ((x * x).float() * scaled.sum(-1, keepdim=True)).to(dtype)
    torch.testing.assert_close(buffers["out"].reshape(x.shape), want, rtol=2**-7, atol=0)
    sums = scaled.reshape(PARTS, ROWS, COLUMNS).sum(1)
    torch.testing.assert_close(buffers["sums"].reshape(sums.shape), sums, rtol=1e-6, atol=1e-5)


@dataclass
class Made:
    """What Triton makes of a kernel whose blocks on their way take 100 KiB each."""

    stages: int

    @property
    def metadata(self) -> Any:
        return self

    @property
    def shared(self) -> int:
        return (self.stages - 1) * (100 << 10)


@dataclass
class Triton:
    asked: list[int] = field(default_factory=list)

    def compile(self, source: Any, target: Any, options: Any) -> Made:
        (stages,) = [v for k, v in source.constants.items() if v in (1, 2, 3) and _is(k, source)]
        self.asked.append(stages)
        return Made(stages)


def _is(key: Any, source: Any) -> bool:
    return source.fn.arg_names[key[0]] == STAGES


@pytest.mark.parametrize(("capability", "asked"), [(90, [3]), (80, [3, 2]), (89, [3, 2, 1])])
def test_fewer_blocks_are_on_their_way_where_there_is_no_room(
    capability: int, asked: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = rounding()
    assert choose(loop).stages == 3
    kernel = _kernel(loop, BF16)
    assert dict(kernel.constants)[STAGES] == 3
    path = tmp_path / "kernels.py"
    path.write_text("import triton\nimport triton.language as tl\n\n" + kernel.source)
    told = Triton()
    monkeypatch.setattr(triton, "compile", told.compile)
    building.compile_offline(path, kernel, capability)
    assert told.asked == asked
