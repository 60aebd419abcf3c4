"""The kit as a pytest plugin: its tests, its shrinking, and that it costs nothing unasked."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import flambeau_prims
import pytest

FAULTY = """
from torch import fx

def backend(gm, inputs):
    class Run(fx.Interpreter):
        def call_function(self, target, args, kwargs):
            if "prims.sub." in str(target) and args[0].ndim > 0:
                args = args[::-1]
            result = super().call_function(target, args, kwargs)
            return result + 1 if "prims.mul." in str(target) else result

    return lambda *tensors: Run(gm).run(*tensors)
"""


BESIDE_TORCH = ("-c", "import sys, torch, pytest; sys.exit(pytest.main(sys.argv[1:]))")
"""pytest as a program that imports torch first, which the kit does anyway."""


def run_pytest(folder, *arguments, start=BESIDE_TORCH):
    """pytest in `folder`, with the plugin also where the package is not installed."""
    (folder / "faulty.py").write_text(FAULTY)
    source = str(Path(flambeau_prims.__file__).parents[1])
    path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    installed = any(e.value == "pytest_flambeau" for e in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "pytest_flambeau"]
    return subprocess.run(
        [sys.executable, *start, "-q", "-p", "no:cacheprovider", *plugin, *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_a_wrong_backend_fails_where_it_is_wrong(tmp_path):
    done = run_pytest(tmp_path, "--flambeau-backend", "faulty:backend", "-k", "sub-float32 or cos")
    assert done.returncode == 1, done.stdout + done.stderr
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 1 and "test_primitive[sub-float32]" in failed[0]
    assert (
        "sub-float32-contiguous-0: wrong" in done.stdout
        and "prims.sub.default(x0, x1)" in done.stdout
    )


def test_random_graphs_shrink_to_the_fault(tmp_path):
    pytest.importorskip("hypothesis")
    family = ("--flambeau-family", "random graphs", "--flambeau-graphs", "150")
    done = run_pytest(tmp_path, "--flambeau-backend", "faulty:backend", *family)
    assert done.returncode == 1, done.stdout + done.stderr
    message = done.stdout[done.stdout.index("AssertionError") :]
    graph = message[message.index("def forward") : message.index("return")]
    # the call that is wrong, and at most one that makes operands for it
    assert graph.count("torch.ops.flambeau_prims") <= 2, graph
    assert "flambeau_prims.sub.default(" in graph or "flambeau_prims.mul.default(" in graph


def test_without_the_option_nothing_is_imported(tmp_path):
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n\ndef test_it():\n    assert 'torch' not in sys.modules\n"
    )
    done = run_pytest(tmp_path, "test_nothing.py", start=("-m", "pytest"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_backend_that_is_not_there(tmp_path):
    done = run_pytest(tmp_path, "--flambeau-backend", "nowhere:backend", "-k", "cos-float32")
    assert done.returncode != 0
    assert "cannot load the backend 'nowhere:backend'" in done.stdout + done.stderr
