"""Every Python block in the READMEs and the docs runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks():
    pages = [ROOT / "README.md", *sorted(ROOT.glob("packages/*/README.md"))]
    pages += sorted((ROOT / "docs").rglob("*.md"))
    for page in pages:
        for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            yield pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")


@pytest.mark.parametrize("block", list(blocks()))
def test_block_runs(block, tmp_path):
    program = tmp_path / "example.py"
    program.write_text(block, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_shows_its_use():
    pages = sorted(ROOT.glob("packages/*/README.md"))
    assert len(pages) == 5
    for page in pages:
        assert BLOCK.search(page.read_text(encoding="utf-8")), page


def test_the_readme_names_sessions_that_exist():
    named = re.findall(r'nox -s "?(\w+)', (ROOT / "README.md").read_text(encoding="utf-8"))
    defined = re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(), re.MULTILINE)
    assert named
    assert set(named) <= set(defined)


def test_the_small_part_of_the_demo():
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py"), "--only", "toy"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "__compiled_fn_0" in done.stdout
