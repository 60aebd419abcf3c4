"""Type hints that are evaluated in the frame: objects of `typing` that are half made at a break."""

import typing

import torch


class Hinted:
    count: int = 3
    later: "text"  # noqa: F821
    inner: "list[int]"


def test_hints_that_are_texts_are_evaluated(check):
    def f(t):
        found = typing.get_type_hints(Hinted, {"text": str})
        return t + 1, found["later"] is str, list(found), found["inner"] == list[int]

    check(f, torch.ones(2), graphs=None)
