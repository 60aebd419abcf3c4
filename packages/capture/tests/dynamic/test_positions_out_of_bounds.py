"""An open position out of bounds: the words are eager's, which name the key's place."""

from __future__ import annotations

import flambeau_capture
import pytest
import torch

KEYS = (
    "n", "..., n", "0, n", "n, 0", "..., n, 0", ":, n", "None, n", "n:, n", "n, ...", "-n",
    "None, ..., n",
)  # fmt: skip
SOURCE = """
def read(x, n):
    try:
        return x[{key}] + 1
    except Exception as error:
        return type(error).__name__, str(error)
"""


@pytest.mark.parametrize("key", KEYS)
def test_the_words_are_those_of_eager(key: str) -> None:
    names: dict[str, object] = {}
    exec(SOURCE.format(key=key), names)
    read = names["read"]
    compiled = flambeau_capture.compile(read, backend="eager")
    x = torch.arange(9.0).reshape(3, 3)
    for n in (2, 1, 5, 7, 0, -7):
        expected, found = read(x, n), compiled(x, n)  # type: ignore[operator]
        assert str(found) == str(expected), n
