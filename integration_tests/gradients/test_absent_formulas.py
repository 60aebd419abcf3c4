"""Custom operators without a registered derivative: what they compute of tensors that require grad
requires it too, and a backward pass that comes to them raises as eager's does, no other one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

Results = tuple[Tensor, ...]


@pytest.fixture(scope="module")
def programs() -> dict[str, Callable[[Tensor, Tensor], Results]]:
    def defined(name: str, schema: str, does: Callable[..., Any], fake: Callable[..., Any]) -> Any:
        writes = re.findall(r"!\) (\w+)", schema)
        made = torch.library.custom_op(
            f"test_absent_formulas::{name}", mutates_args=writes, schema=schema
        )(does)
        made.register_fake(fake)
        return made

    def add_and_double(x: Tensor, y: Tensor) -> Tensor:
        y.add_(1)
        return x * 2

    def double(x: Tensor) -> tuple[Tensor, Tensor]:
        x.mul_(2)
        return x.sum().reshape(1), x * 3

    writes = defined("writes", "(Tensor x, Tensor(a!) y) -> Tensor", add_and_double,
                     lambda x, y: x * 2)  # fmt: skip
    pair = defined("pair", "(Tensor(a!) x) -> (Tensor, Tensor)", double,
                   lambda x: (x.new_empty(1), x * 3))  # fmt: skip
    listed = defined("listed", "(Tensor x, int k) -> Tensor[]", lambda x, k: [x + k, x * 3],
                     lambda x, k: [x + k, x * 3])  # fmt: skip
    plain = defined("plain", "(Tensor x) -> Tensor", lambda x: x + 1, lambda x: x + 1)
    return {
        "a write to another": lambda x, y: (writes(x * 1, y.detach() * 1), x * 3),
        "a write to an argument": lambda x, y: (writes(x, y), x * 3),
        "several results": lambda x, y: (pair(x * 1)[1], x * y),
        "a list": lambda x, y: (listed(x, 2)[0] * y, x * y),
        "no write": lambda x, y: (plain(x), x * y, plain(y) * 2),
        "alone": lambda x, y: (plain(x),),
        "detached": lambda x, y: (plain(x).detach() * y, x * y),
        "of what needs none": lambda x, y: (plain(x.detach()) * y, x * y),
    }


def outcome(run: Callable[..., Results], place: int, way: str) -> Any:
    x, y = (torch.tensor(part, requires_grad=True) for part in ([1.0, 2.0], [3.0, 4.0]))
    results = run(x.detach() if way == "no history" else x, y)
    told = [result.tolist() for result in results], [each.requires_grad for each in results]
    chosen = results if place < 0 else results[place : place + 1]
    loss = sum((each.sum() for each in chosen), torch.zeros(()))
    try:
        if way == "by one":
            found = torch.autograd.grad(loss, [y], allow_unused=True)
        else:
            loss.backward()
            found = (x.grad, y.grad)
    except RuntimeError as error:
        return told, str(error), y.tolist()
    return told, [each if each is None else each.tolist() for each in found], y.tolist()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_as_eager(programs: dict[str, Callable[..., Results]], backend: str) -> None:
    for name, program in programs.items():
        compiled = flambeau.compile(program, backend=backend, fullgraph=True)
        for place in (-1, 0, 1):
            for way in ("backward", "by one", "no history"):
                expected = outcome(program, place, way)
                assert outcome(compiled, place, way) == expected, (name, place, way)
        report = flambeau.report(compiled)
        assert report.graphs == 2 and not report.fallbacks, name
