"""The README's example runs and prints what it says."""

import re
from pathlib import Path


def test_example(capsys) -> None:
    text = (Path(__file__).parent.parent / "README.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.index("def forward(") < printed.index("def backward(")
    assert "torch.Size([8, 8])" in printed
    assert "training" in printed
