"""Compiling says nothing that is not Flambeau's own: no warning of torch's, no logged traceback."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import flambeau

ones = torch.ones

REFUSED: dict[str, tuple[Callable[..., object], torch.Tensor, torch.Tensor]] = {
    "@": (lambda x, y: x @ y, ones(2, 2).double(), ones(2, 2)),
    "a vector": (torch.mv, ones(2, 2).double(), ones(2)),
    "linear": (functional.linear, ones(2, 3).double(), ones(2, 3)),
    "bmm": (torch.bmm, ones(1, 2, 3).double(), ones(1, 3, 2)),
    "shapes": (torch.bmm, ones(2, 3), ones(2, 4)),
    "conv": (functional.conv2d, ones(1, 3, 4, 4).double(), ones(2, 3, 1, 1)),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.5), ones(2).double(), ones(2)),
    "scatter": (lambda x, y: x.scatter(0, y.long(), y), ones(2).double(), ones(2)),
    "gather": (lambda x, y: x.gather(1, y), ones(2, 3), ones(2, 3)),
    "cross_entropy": (lambda x, y: functional.cross_entropy(x, y.long()), ones(2, 3), ones(3)),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_a_program_that_raises(
    name: str, requires_grad: bool, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture
) -> None:
    program, x, y = REFUSED[name]
    compiled = flambeau.compile(lambda x, y: program(x, y))
    x = x.clone().requires_grad_(requires_grad)
    caplog.set_level(logging.WARNING)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises((RuntimeError, IndexError, ValueError)) as given:
            compiled(x, y)
        with pytest.raises(type(given.value)):
            program(x, y)
    assert {w.category for w in said} <= {flambeau.errors.FlambeauWarning}
    assert not [r for r in caplog.records if not r.name.startswith("flambeau")]
    assert "Traceback" not in capfd.readouterr().err


OPEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "constants": lambda x: x + torch.ones_like(x) * 2 + torch.full_like(x, 3).sin(),
    "their views": lambda x: x.t() + (torch.ones_like(x) * 2).t(),
    "of two": lambda x: x.unsqueeze(0) + (torch.ones_like(x)[None] - torch.ones_like(x)[:, None]),
    "rows": lambda x: x.unsqueeze(1).expand(-1, 2, -1) @ torch.ones(3, 4) + torch.arange(4.0),
    "a penalty": lambda x: (
        torch.autograd.grad(x.sin().sum(1), x, torch.ones_like(x[:, 0]), create_graph=True)[0]
        .norm(2, dim=1)
        .sub(1)
        .square()
        if x.requires_grad
        else x
    ),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", OPEN)
def test_a_program_with_open_sizes(name: str, requires_grad: bool) -> None:
    compiled = flambeau.compile(OPEN[name])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for rows in (4, 6, 5):
            x = torch.rand(rows, 3).requires_grad_(requires_grad)
            result, expected = compiled(x), OPEN[name](x)
            torch.testing.assert_close(result, expected)
            if requires_grad:
                result.sum().backward()
    assert not said, [str(w.message) for w in said]
    assert not flambeau.report(compiled).faults
