"""Lists of the program whose length is another from call to call, taken whole by an operator: two
lengths make graphs, and a third ends the graph there, so that their number is bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_capture
import pytest
import torch
from torch import Tensor

#: operators, and what lists hold for them
TAKEN: dict[str, tuple[Callable[[Any], Tensor], Callable[[int], Any]]] = {
    "stack": (torch.stack, lambda n: torch.full((2,), float(n))),
    "cat": (torch.cat, lambda n: torch.arange(n + 1.0)),
    "tensor": (torch.tensor, lambda n: n),
    "tensor of tensors": (torch.tensor, lambda n: torch.tensor(float(n))),
    "as_tensor": (torch.as_tensor, lambda n: n * 1.5),
    "index": (lambda rows: torch.eye(9)[rows], lambda n: n % 9),
}


def _counted(program: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    graphs: list[int] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        graphs.append(len(gm.graph.nodes))
        return gm

    return flambeau_capture.compile(program, backend=backend), graphs


@pytest.mark.parametrize("name", TAKEN)
def test_a_third_length_ends_the_graph(name: str) -> None:
    take, item = TAKEN[name]

    def program(x: Tensor, held: list[Any]) -> Tensor:
        return take(held).sum() * 2 + x.sin()

    compiled, graphs = _counted(program)
    bounded = 0
    for length in (3, 4, 5, 6, 2, 7, 9, 12, 3):
        given = torch.ones(3), [item(n) for n in range(length)]
        torch.testing.assert_close(compiled(*given), program(*given))
        bounded = bounded if length > 6 else len(graphs)
    assert len(graphs) == bounded <= 6


@pytest.mark.parametrize("inlined", [False, True])
@pytest.mark.parametrize("name", [name for name in TAKEN if name != "as_tensor"])
def test_a_list_that_grows_in_a_loop_that_data_ends(name: str, inlined: bool) -> None:
    take, item = TAKEN[name]

    def grown(x: Tensor) -> Tensor:
        held, n = [], 0
        while x.numel() > 0:
            held.append(item(n))
            x = x[1:][x[1:] > x[0] / 2] * 1.0
            n = 2 - n
        return take(held).sum() + x.sum()

    def program(x: Tensor) -> Tensor:
        return grown(x + 1) * 2 if inlined else grown(x)

    compiled, graphs = _counted(program)
    torch.manual_seed(0)
    counts = []
    for length in (24, 9, 1, 17, 30, 12, 40, 20, 33, 5, 26):
        x = torch.randint(1, 40, (length,)).double()
        torch.testing.assert_close(compiled(x), program(x))
        counts.append(len(graphs))
    assert counts[-1] == counts[-4] <= 16
