"""`left symbol= right` with tensors: which writes to `left`, and what a refusal says."""

import flambeau_capture
import pytest
import torch

SYMBOLS = ["+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>"]
LEFT = {
    "floats": lambda: torch.arange(3.0),
    "integers": lambda: torch.arange(3),
    "booleans": lambda: torch.tensor([True, False, True]),
    "a number": lambda: 2,
    "a list": lambda: [1, 2],
}
RIGHT = {
    "floats": lambda: torch.ones(3),
    "integers": lambda: torch.ones(3, dtype=torch.long),
    "a matrix": lambda: torch.ones(3, 3),
    "a number": lambda: 2,
    "nothing": lambda: None,
    "text": lambda: "a",
}


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_what_another_name_sees_and_what_is_said(symbol):
    space = {}
    exec(
        "def program(left, right, x):\n"
        "    x = x + 1\n"
        "    other = left\n"
        "    try:\n"
        f"        left {symbol}= right\n"
        "    except Exception as error:\n"
        "        return type(error).__name__, str(error), left, x\n"
        "    return left, other, left is other, x\n",
        space,
    )
    program, wrong = space["program"], []
    for left in LEFT:
        for right in RIGHT:
            if not {left, right} - {"a number", "a list", "nothing", "text"}:
                continue
            expected = program(LEFT[left](), RIGHT[right](), torch.ones(1))
            if expected[0] == "NotImplementedError" or "can't be cast" in str(expected[1]):
                continue  # fake tensors take it: only a run of the kernel can tell
            compiled = flambeau_capture.compile(program, backend="eager", dynamic=False)
            found = compiled(LEFT[left](), RIGHT[right](), torch.ones(1))
            if str(found) != str(expected):
                wrong.append((left, right, expected, found))
    assert not wrong, wrong[0]
