"""A package made for others who take FX graphs is installed; its backends are there by name."""

import base64
import hashlib
import importlib.util
import subprocess
import sys
import textwrap
import zipfile

import pytest

MODULE = '''
"""Knows nothing of Flambeau: the signature that backends of torch's graphs have."""
import torch

calls = []


def swap_sine(gm: torch.fx.GraphModule, example_inputs, **kwargs):
    calls.append((len(gm.graph.nodes), len(example_inputs), kwargs.get("options")))
    for node in gm.graph.nodes:
        if node.target is torch.sin:
            node.target = torch.cos
    gm.recompile()
    return gm.forward
'''

PROGRAM = """
import torch
import flambeau

names = {str(each): each for each in flambeau.list_backends()}
assert names["third_party"].available and "installed" in names["third_party"].about
assert "third_party_native" in names
x = torch.randn(4)
for name in ("third_party", "third_party_native"):
    compiled = flambeau.compile(lambda x: torch.sin(x) + 1, backend=name, options={"level": 2})
    torch.testing.assert_close(compiled(x), torch.cos(x) + 1)
import third_party_compiler

assert [call[1:] for call in third_party_compiler.calls] == [(1, {"level": 2})] * 2
print("loaded")
"""


def wheel(folder):
    """A wheel of one module, as a build tool makes it."""
    about = "third_party_compiler-1.0.dist-info"
    files = {
        "third_party_compiler.py": MODULE,
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: third-party-compiler\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": textwrap.dedent(
            """\
            [torch_dynamo_backends]
            third_party = third_party_compiler:swap_sine

            [flambeau.backends]
            third_party_native = third_party_compiler:swap_sine
            """
        ),
    }
    record = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        record.append(f"{name},sha256={digest.decode()},{len(text.encode())}")
    record.append(f"{about}/RECORD,,")
    place = folder / "third_party_compiler-1.0-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{about}/RECORD", "\n".join(record) + "\n")
    return place


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="pip is not installed")
def test_a_package_that_is_installed_loads_unchanged(tmp_path):
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    command = [*pip, "--no-index", "--no-deps", "--target", str(target), str(wheel(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = f"import sys; sys.path.insert(0, {str(target)!r})\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0 and done.stdout.strip() == "loaded", done.stderr
