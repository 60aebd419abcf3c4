"""Half precision in vectors of every width and instruction set: torch's own conversions."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.cpp.toolchain import FLAGS, INCLUDE, find_toolchain

HALF = {"bf16": torch.bfloat16, "f16": torch.float16}
INSTRUCTIONS = {
    "portable": ("-msse2",),
    "avx2": ("-mavx2", "-mfma", "-mf16c"),
    "avx512": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-mf16c"),
}
PROGRAM = """
#include "flambeau/vec.h"
#define FL_W {width}
#include "flambeau/lanes.h"
extern "C" unsigned long fread(void*, unsigned long, unsigned long, void*);
extern "C" unsigned long fwrite(const void*, unsigned long, unsigned long, void*);
extern void *stdin, *stdout;
using namespace fl;
int main() {{
  f32 in[{width}], wide[{width}];
  {kind} narrow[{width}];
  while (fread(in, sizeof in, 1, stdin) == 1) {{
    const f32x{width} x = load{width}(in, width<{width}>{{}});
    store(narrow, round_{kind}(x), width<{width}>{{}});
    store(wide, load{width}(narrow, width<{width}>{{}}), width<{width}>{{}});
    fwrite(wide, sizeof wide, 1, stdout);
  }}
}}
"""


def features() -> str:
    return Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""


def awkward() -> torch.Tensor:
    """Floats around every boundary of both formats, signs, ties, denormals, NaN and infinity."""
    exponents = torch.arange(0, 256, dtype=torch.int64) << 23
    mantissas = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0x18000, 0xFFF, 0x1000, 0x1001, 0x3000])
    top = torch.tensor([0x7FFFFF, 0x7F8000, 0x7FE000, 0x7FF000, 0x400000])
    bits = exponents[:, None] + torch.cat((mantissas, top))[None]
    both = torch.cat((bits.flatten(), bits.flatten() | (1 << 31)))
    both = both - ((both >> 31) << 32)
    return both.to(torch.int32).view(torch.float32)[: both.numel() // 16 * 16].contiguous()


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("instructions", "kind", "width"),
    [(i, k, w) for i, k, w in itertools.product(INSTRUCTIONS, HALF, (4, 8, 16))],
)
def test_conversions_are_those_of_torch(
    instructions: str, kind: str, width: int, tmp_path: Path
) -> None:
    known = features()
    if any(f" {flag[2:]}" not in known for flag in INSTRUCTIONS[instructions]):
        pytest.skip(f"this processor has no {instructions}")
    source, program = tmp_path / "half.cpp", tmp_path / "half"
    source.write_text(PROGRAM.format(width=width, kind=kind))
    plain = [f for f in FLAGS if f not in ("-fopenmp", "-O3", "-fPIC")]
    subprocess.run(
        [find_toolchain().compiler, *plain, "-O1", *INSTRUCTIONS[instructions], f"-I{INCLUDE}",
         "-fopenmp", str(source), "-o", str(program)],
        check=True,
    )  # fmt: skip
    values = awkward()
    done = subprocess.run(
        [str(program)], input=values.numpy().tobytes(), capture_output=True, check=True
    )
    found = torch.frombuffer(bytearray(done.stdout), dtype=torch.float32)
    wanted = values.to(HALF[kind]).float()
    assert found.numel() == wanted.numel() == values.numel()
    same = (found.view(torch.int32) == wanted.view(torch.int32)) | (found.isnan() & wanted.isnan())
    assert bool(same.all()), values[~same][:5]
