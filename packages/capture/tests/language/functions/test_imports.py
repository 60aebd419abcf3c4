"""Imports in what is compiled: of packages, and of their parts, by any statement."""

from __future__ import annotations

import sys

import pytest
import torch

STATEMENTS = {
    "from package": "from {0} import part",
    "from package, renamed": "from {0} import part as part",
    "two names": "from {0} import ready, part",
    "dotted": "import {0}.part; part = {0}.part",
    "dotted, renamed": "import {0}.part as part",
    "below": "from {0}.below import part",
}
RELATIVE = {"relative": "from . import part", "relative, below": "from .below import part"}
PART = "def double(x):\n    return x * 2\n"


def package(folder, monkeypatch, name: str, body: str = ""):
    """A package with modules that nobody has imported yet, and a function that imports one."""
    for inside in (folder / name, folder / name / "below"):
        inside.mkdir()
        (inside / "__init__.py").write_text("ready = 3\n" + (body if inside.name == name else ""))
        (inside / "part.py").write_text(PART)
    monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def forgotten():
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("there", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("way", [*STATEMENTS, *RELATIVE])
def test_parts_of_packages(capture, tmp_path, monkeypatch, forgotten, way, there):
    name = f"package_{abs(hash((way, there)))}"
    statement = (STATEMENTS | RELATIVE)[way].format(name)
    source = f"def f(x):\n    {statement}\n    return part.double(x) + 1\n"
    package(tmp_path, monkeypatch, name, source)
    f = getattr(__import__(name), "f")  # noqa: B009
    x = torch.ones(2)
    if there:
        f(x)
    fn = capture(f)
    for _ in range(3):
        assert torch.equal(fn(x), x * 2 + 1)


def test_a_part_that_is_not_there_is_pythons_error(capture, tmp_path, monkeypatch, forgotten):
    package(tmp_path, monkeypatch, "package_without")
    names: dict[str, object] = {}
    exec("def f(x):\n    from package_without import missing\n    return x\n", names)
    __import__("package_without")
    with pytest.raises(ImportError, match="cannot import name 'missing' from 'package_without'"):
        capture(names["f"])(torch.ones(2))
