"""C++ kernels neither touch memory that is not theirs nor do what C++ leaves undefined.

Tests of kernels run once more in a process with GCC's sanitizers: a slice by the widest vectors;
with FLAMBEAU_SWEEPS=1 (`nox -s sweeps`) all classes of kernels by every width.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain

PACKAGE = Path(__file__).parents[4]
SEEN = "codegen/cpp/sanitizers/short_buffers.py"
SLICE = ("codegen/test_extreme_values.py -k (compiled and torch.float32 and 512)",)
"""The widest are the longest in memory; a machine without them has them split."""
WHOLE = (
    "codegen/test_extreme_values.py -k compiled",
    "codegen/test_classes.py -k cpp",
    *(
        f"codegen/test_repeated_rows.py -k cpp and {group}"
        for group in ("first", "second", "third", "fourth")
    ),
    "codegen/cpp/emit",
    "codegen/cpp/analysis/test_segments.py codegen/cpp/analysis/test_streaming.py",
    "codegen/cpp/test_column_reductions.py codegen/cpp/test_concatenation_masks.py",
    "codegen/cpp/test_integer_vectors.py codegen/cpp/test_large_and_odd_sizes.py",
    "codegen/cpp/test_moved_bits.py codegen/cpp/test_one_hot.py codegen/cpp/test_programs.py",
    "codegen/cpp/test_random_fusion.py runtime/cpu/test_random.py",
    "dynamic lowering/test_scan.py schedule/memory test_primitives.py -k not evaluated",
)
"""Primitives; reductions; transposes; rows and columns; masks and tails; integers, bools, half
precision; scans, sorts, scatters, products; dropout; open sizes, in-place updates."""
LIBRARIES = ("libasan.so", "libubsan.so", "libstdc++.so")


def libraries() -> list[str]:
    """Paths of the sanitizers, and of a library that theirs look into; none without GCC's."""
    toolchain, found = find_toolchain(), []
    for name in LIBRARIES:
        command = [toolchain.compiler, f"-print-file-name={name}"]
        found.append(subprocess.run(command, capture_output=True, text=True).stdout.strip())
    return found if toolchain.precompiles and all(map(os.path.isabs, found)) else []


@pytest.mark.sweep
@pytest.mark.skipif(not libraries(), reason="the compiler has no sanitizers of GCC's")
@pytest.mark.parametrize(
    "tests",
    WHOLE if os.environ.get("FLAMBEAU_SWEEPS") == "1" else SLICE,
    ids=lambda t: t.split()[0],
)
def test_no_sanitizer_reports_anything(tests: str, tmp_path: Path) -> None:
    """What it must report, where a kernel is given too little memory, is in the same run."""
    files, _, chosen = tests.partition(" -k ")
    paths = [str(PACKAGE / "tests" / name) for name in (SEEN, *files.split())]
    log = str(tmp_path / "reports")
    options = f"log_path={log}:halt_on_error=0"
    own = {name: value for name, value in os.environ.items() if name != "FLAMBEAU_SWEEPS"}
    environment = own | {  # all classes of kernels, not every pair of what they are made of
        "LD_PRELOAD": " ".join(libraries()),
        "ASAN_OPTIONS": f"{options}:detect_leaks=0:suppress_equal_pcs=0",
        "UBSAN_OPTIONS": f"{options}:print_stacktrace=1",
        "FLAMBEAU_SANITIZER_LOG": log,
        "PYTHONPATH": os.pathsep.join([str(PACKAGE), *sys.path]),
        "OMP_WAIT_POLICY": "passive",
    }
    plugin = ("-p", "tests.codegen.cpp.sanitizers.sanitized", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *plugin, *paths]
    if chosen:
        command += ["-k", f"short_buffers or ({chosen})"]
    run = subprocess.run(command, env=environment, cwd=PACKAGE, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "xfailed" in run.stdout
