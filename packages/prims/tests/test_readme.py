"""The README's example runs."""

import re
from pathlib import Path

import torch

README = Path(__file__).parent.parent / "README.md"


def test_example(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 1
    torch.manual_seed(0)
    exec(compile(blocks[0], str(README), "exec"), {})
    assert "not decomposed: {}" in capsys.readouterr().out
