"""Loops over the positions of what is true: one graph for any of them, eager's answers."""

from typing import Any

import flambeau_capture as capture
import pytest
import torch

#: bodies that do nothing where there are no rows, and what makes them of another kind
BY_ROWS = [
    "out.index_add_(0, rows, x[rows] * (i + 1))",
    "out[rows] += x[rows] * 2",
    "out[rows] = out[rows] * x[rows].sin()",
    "out.index_copy_(0, rows, x[rows] - i)",
    "parts = [x[rows], x[rows]]; parts.append(out[rows]); out[rows] = sum(parts)",
    "y = x[rows]; out.index_add_(0, rows, y), out.index_add_(0, rows, y * 2)",
]
OTHERS = [
    "out += i",
    "seen.append(int(i))",
    "last = x[rows].sum()",
    "owner.count += 1",
    "out.index_add_(0, rows, x[rows]); out.add_(0.0)",
    "out.index_add_(0, (kind != i).nonzero()[:, 0], x[kind != i])",
    "out = out + x[rows].sum() + 1",
    "out[rows] = x[rows]; break",
    "x.mul_(2.0)",
    "next(numbers)",
    "out.index_add_(0, rows, torch.rand(len(kind), 3)[rows])",
]


class Owner:
    count = 0


def _program(body: str) -> Any:
    lines = [
        "def program(x, kind, owner):",
        "    out, seen, last = torch.zeros(len(kind), 3) - 0.0, [], x.sum()",
        "    numbers = iter(range(9))",
        "    for i in (torch.nn.functional.one_hot(kind, 4).sum(0) > 0).nonzero():",
        "        rows = torch.where(kind == i)[0]",
        f"        {body}",
        "    return out, x * 1, last, seen, owner.count, sum(numbers)",
    ]
    space = {"torch": torch}
    exec("\n".join(lines), space)
    return space["program"]


KINDS = ([0], [1], [3, 3, 0], [2, 1], [0, 1, 2, 3], [3, 1, 1, 1, 0], [2, 2])


@pytest.mark.sweep(2)
@pytest.mark.parametrize("body", BY_ROWS + OTHERS)
@pytest.mark.parametrize("writes_last", [False, True])
def test_any_positions(body: str, writes_last: bool) -> None:
    program = _program(body)
    graphs: list[Any] = []

    def backend(module: Any, example_inputs: Any) -> Any:
        graphs.append(module)
        return module.forward

    backend.writes_last = writes_last
    if writes_last and body == "x.mul_(2.0)":
        pytest.skip("this backend writes where the program does")
    compiled = capture.compile(program, backend=backend)
    one, other = Owner(), Owner()
    for numbers in KINDS:
        kind = torch.tensor(numbers)
        x = torch.randn(len(numbers), 3)
        y = x.clone()
        torch.manual_seed(0)
        wanted = program(x, kind, one)
        torch.manual_seed(0)
        given = compiled(y, kind, other)
        assert torch.equal(x, y)
        for a, b in zip(given, wanted, strict=True):
            same = torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
            assert same, (body, numbers)
    if body in BY_ROWS:
        assert len(graphs) <= 3, body  # of one row, of several, of any


def test_weights_that_take_no_part_have_no_gradient() -> None:
    weights = [torch.ones(3, requires_grad=True) for _ in range(4)]

    def program(x: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for i in (torch.nn.functional.one_hot(kind, 4).sum(0) > 0).nonzero():
            rows = torch.where(kind == i)[0]
            out.index_add_(0, rows, x[rows] * weights[int(i)])
        return out

    compiled = capture.compile(program, backend=lambda module, inputs: module.forward)
    for numbers in ([0, 1], [2, 2], [0, 1, 2, 3]):
        for weight in weights:
            weight.grad = None
        compiled(torch.ones(len(numbers), 3), torch.tensor(numbers)).sum().backward()
        assert [w.grad is not None for w in weights] == [n in numbers for n in range(4)]


def test_what_was_written_before_a_check_fails_is_given_back() -> None:
    def program(x: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        x.mul_(2.0)
        for i in (torch.nn.functional.one_hot(kind, 4).sum(0) > 0).nonzero():
            x.index_add_(0, (kind != i).nonzero()[:, 0], x[kind != i])
        return x.sum()

    graphs: list[Any] = []

    def backend(module: Any, example_inputs: Any) -> Any:
        graphs.append(module)
        return module.forward

    compiled = capture.compile(program, backend=backend)
    for numbers in KINDS:
        x, kind = torch.randn(len(numbers), 3), torch.tensor(numbers)
        y = x.clone()
        assert torch.equal(compiled(y, kind), program(x, kind)) and torch.equal(x, y), numbers
    assert any("require_all" in str(node.target) for node in graphs[0].graph.nodes)
