"""The product does without torch's own compile stack, and the tool that says so can see."""

import importlib
from pathlib import Path

import pytest

from tools import forbidden

PACKAGES = (
    "flambeau_capture", "flambeau_prims", "flambeau_aot", "flambeau_inductor", "flambeau",
)  # fmt: skip


@pytest.mark.parametrize("package", PACKAGES)
def test_no_package_names_it(package):
    folder = Path(importlib.import_module(package).__file__).parent
    files = sorted(folder.rglob("*.py"))
    assert files
    assert [line for path in files for line in forbidden.findings(path)] == []


@pytest.mark.parametrize(
    "line",
    [
        "import torch._dynamo",
        "import torch._inductor.config as c",
        "from torch import _dynamo",
        "from torch._prims_common import dtype_to_type",
        "from torch.fx.experimental.proxy_tensor import make_fx",
        "torch.compile(f)",
        "x = torch._refs.add",
        "importlib.import_module('torch._functorch.aot_autograd')",
        "import functorch",
    ],
)
def test_it_sees(tmp_path, line):
    path = tmp_path / "sample.py"
    path.write_text(f"import importlib, torch\n{line}\n")
    (found,) = forbidden.findings(path)
    assert found.startswith(f"{path}:2: names ")


def test_it_lets_words_be(tmp_path):
    path = tmp_path / "sample.py"
    path.write_text('"""Not torch.compile."""\nimport re\nre.compile("a")  # torch._dynamo\n')
    assert list(forbidden.findings(path)) == []
