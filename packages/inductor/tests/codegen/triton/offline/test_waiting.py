"""Kernels that wait for those before them: text, joint launches, and what each GPU gets."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from flambeau_inductor.codegen.triton.kernel import DEPENDENT, RELEASE, WAIT, TritonKernel, generate
from flambeau_inductor.templates.joint_launch import joined
from flambeau_inductor.tuning import MEASURED
from tests import uninterpreted
from tests.codegen import loops

DTYPES = {"in0": torch.float32, "out": torch.float32}
SMALL, LARGE = 1024, 1 << 24

PROGRAM = """
import json, sys, tempfile
from pathlib import Path
from flambeau_inductor.codegen.triton.build import compile_offline
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.runtime.gpu.launch import waits
from tests.codegen.triton.offline.test_waiting import kernel_of_points
found = {}
for capability in (80, 90):
    for points in map(int, sys.argv[1:]):
        kernel = kernel_of_points(points)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"k{points}.py"
            path.write_text(module_text([kernel.source]))
            ptx = compile_offline(path, kernel, capability).asm["ptx"]
        found[f"{capability} {points}"] = [waits(ptx), "launch_dependents" in ptx]
print(json.dumps(found))
"""


def kernel_of_points(points: int) -> TritonKernel:
    """The kernel of a copy of so many elements."""
    loop = loops.pointwise("neg", 1, points, torch.float32, torch.float32)
    return generate(loop, DTYPES, dict.fromkeys(DTYPES, points))


@pytest.mark.parametrize("points", [SMALL, LARGE])
def test_a_kernel_waits_before_it_does_anything(points: int) -> None:
    kernel = kernel_of_points(points)
    assert kernel.programs is not None
    small = kernel.programs <= MEASURED.machine.multiprocessors
    assert small == (points == SMALL)
    _, body = kernel.source.split("):\n", 1)
    first = f"{RELEASE}\n{WAIT}\n" if small else f"{WAIT}\n"
    assert body.startswith(first)
    assert dict(kernel.constants)[DEPENDENT] == 1


def test_a_joint_launch_waits_once() -> None:
    kernel = kernel_of_points(SMALL)
    others = [replace(kernel, arguments=(f"in{k}", f"out{k}")) for k in range(3)]
    joint = joined(others, "joint")
    assert joint.source.count(WAIT) == joint.source.count(RELEASE) == 1
    assert [name for name, _ in joint.constants].count(DEPENDENT) == 1


def test_only_a_gpu_that_can_gets_the_instructions() -> None:
    found = json.loads(uninterpreted.run("-c", PROGRAM, str(SMALL), str(LARGE)))
    assert found == {
        f"80 {SMALL}": [False, False],
        f"80 {LARGE}": [False, False],
        f"90 {SMALL}": [True, True],
        f"90 {LARGE}": [True, False],
    }
