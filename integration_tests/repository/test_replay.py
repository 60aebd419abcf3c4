"""The gate of refactorings: it sees what changed in what is generated, and nothing else.

In: texts as a trace has them. Out: their normalised form, differences. Invariant: numbers of names
do not count; a constant, an operation or a missing stage does.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.replay.comparing import differences
from tools.replay.writing import normalised

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("buf3 = buf1 + in0", "buf7 = buf2 + in4", True),
        ("buf3 = buf1 + buf1", "buf3 = buf1 + buf3", False),
        ("add_default_4(mul_default_2)", "add_default(mul_default_1)", False),
        ("add_default_4(mul_default_2)", "add_default_9(mul_default_3)", True),
        ("f32 float32(0.5)", "f32 float64(0.5)", False),
        ("float16(v3)", "float32(v3)", False),
        ("object at 0x7f01aa0022b0", "object at 0x55aa00112200", True),
        ("x = 0x1.8p-2f", "x = 0x1.9p-2f", False),
        ("'/here/a/module.py'", "'/there/module.py'", True),
    ],
)
def test_what_counts_as_the_same(one, other, same):
    assert (normalised(one, True) == normalised(other, True)) is same


def test_comments_count_in_graphs_alone():
    assert normalised("a = b  # float32[3]", True) == normalised("a = b  # float32[4]", True)
    assert normalised("a = b  # float32[3]", False) != normalised("a = b  # float32[4]", False)


def test_a_stage_that_one_side_lacks_is_a_difference(tmp_path):
    for side, stages in (("before", ("guards", "kernels")), ("after", ("guards",))):
        for stage in stages:
            (tmp_path / side / "p").mkdir(parents=True, exist_ok=True)
            (tmp_path / side / "p" / stage).write_text("text")
    assert differences(tmp_path / "before", tmp_path / "after") == {"p": ["kernels"]}


def test_two_runs_write_the_same_whatever_ran_before(tmp_path):
    programs = [
        "kernels.softmax",
        "drawn.autograd.2000",
        "gpu.rmsnorm_swiglu",
        "open.digits_cnn.open",
    ]
    for side, more in (("before", []), ("after", ["open.softmax.open"])):
        subprocess.run(
            [sys.executable, "-m", "tools.replay", "write", str(tmp_path / side), *programs, *more],
            check=True, capture_output=True, cwd=ROOT, timeout=300,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
        )  # fmt: skip
    shutil.rmtree(tmp_path / "after" / "open.softmax.open")
    assert differences(tmp_path / "before", tmp_path / "after") == {}
    for stage in ("_kernels.py", "guards", "_kernels.cpp", "_wrapper.py", "joint.py"):
        assert [*(tmp_path / "after").rglob(f"*{stage}*")], stage
    assert not [*(tmp_path / "after").rglob("error")]
    softmax = next((tmp_path / "after" / "kernels.softmax").glob("*_kernels.cpp*"))
    softmax.write_text(softmax.read_text().replace("exp", "exp2"))
    assert [*differences(tmp_path / "before", tmp_path / "after")] == ["kernels.softmax"]
