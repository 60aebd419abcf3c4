"""Precisions that the caller set, by torch's older names and by its newer ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import flambeau
from flambeau._torch_compat import modes_of_math


def doubled(x: torch.Tensor) -> torch.Tensor:
    return (x * 2 + 1).relu()


@contextmanager
def precision(name: str, value: str) -> Iterator[None]:
    """`torch.backends.<name>.fp32_precision` set to this."""
    part, operation = name.split(".")
    setting: Any = getattr(getattr(torch.backends, part), operation)
    before = setting.fp32_precision
    setting.fp32_precision = value
    try:
        yield
    finally:
        setting.fp32_precision = before


def test_a_precision_set_by_the_newer_names_does_not_stop_compiling() -> None:
    with precision("cuda.matmul", "tf32"):
        compiled = flambeau.compile(doubled, fullgraph=True)
        assert compiled(torch.ones(4)).tolist() == [3.0] * 4


@pytest.mark.parametrize(
    ("name", "value"), [("cuda.matmul", "tf32"), ("cudnn.conv", "ieee"), ("mkldnn.matmul", "bf16")]
)
def test_what_is_kept_on_the_disk_is_kept_for_one_precision(name: str, value: str) -> None:
    before = modes_of_math()
    with precision(name, value):
        assert modes_of_math() != before
    assert modes_of_math() == before
