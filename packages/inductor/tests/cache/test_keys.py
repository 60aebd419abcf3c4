"""Keys tell their parts apart and say what differs."""

from __future__ import annotations

import pytest
from flambeau_inductor.cache import differences, key, key_from


def test_parts_are_told_apart():
    digests = {
        key("kernels", a="x", b="y").digest,
        key("kernels", a="xy", b="").digest,
        key("kernels", a="y", b="x").digest,
        key("graphs", a="x", b="y").digest,
        key("kernels", a="x", c="y").digest,
    }
    assert len(digests) == 5
    assert key("kernels", b="y", a="x") == key("kernels", a="x", b="y")


def test_a_key_is_read_again():
    one = key("graphs", text='say "hi"\nsecond', empty="")
    again = key_from(one.text())
    assert again == one and again.digest == one.digest


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"kind": "a"}', '{"kind": "a", "parts": 3}'])
def test_what_is_no_key(text: str):
    with pytest.raises(ValueError):
        key_from(text)


def test_what_differs_is_named():
    one = key("graphs", graph="a\nb\nc", options="x", only="1")
    other = key("graphs", graph="a\nB\nc", options="x")
    assert differences(one, one) == []
    assert differences(one, other) == [
        "graph: line 2: 'b' against 'B'",
        "only: only the first has it",
    ]
    assert differences(one, key("kernels")) == ["kind: graphs is not kernels"]
    longer = key("graphs", graph="a\nb\nc\nd", options="x", only="1")
    assert differences(one, longer) == ["graph: 3 lines against 4"]


def test_of_a_long_line_the_place_is_shown():
    (text,) = differences(key("g", t="x" * 500 + "left"), key("g", t="x" * 500 + "right"))
    assert "left" in text and "right" in text and len(text) < 200
