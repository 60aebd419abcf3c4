"""The README's program runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_program_of_the_readme(capsys: pytest.CaptureFixture[str]):
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(program, str(README), "exec"), {"__name__": "readme"})
    shown = capsys.readouterr().out
    assert "1 kernels" in shown and "def call(args):" in shown
    assert re.search(r"library: (aten.mm.out|mkldnn._linear_pointwise.default) x1", shown)
