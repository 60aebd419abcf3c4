"""Branches by sizes whose results may not be read: one graph for both ways, as long as none is."""

import types
from typing import Any

import flambeau_capture as capture
import pytest
import torch

SIZES = ((5, 3), (4, 6), (9, 3), (3, 7), (8, 4), (6, 6))
#: what an arm does, `c` being a list of the program's
ARMS = {
    "a view": "y = x[: n - 1] * 2",
    "an index": "i = torch.arange(n) - 1; i += 1; y = x[i % 2]",
    "a write to its own": "i = torch.zeros(n); i += 1; y = i",
    "a write to an argument": "x += 1; y = x",
    "a draw": "y = torch.rand(3) + x[0]",
    "a list": "c.append(1); y = x",
    "an error": "y = x @ torch.ones(30, 30)",
    "a branch inside": "y = x.cos() if x.shape[0] > 2 * n else x.sin()",
    "a call with a branch": "y = inside(x, n)",
    "a gradient": "y = (x * weight).sum()",
}
#: what follows: whether anything is read
READS = {
    "nothing": "z = x * 2",
    "itself": "z = x * y",
    "later": "z = x * 2; print(end=''); z = z + y",
    "by its name": "z = x * locals()['y']",
    "in another branch": "z = x * y if x.shape[0] > n else x + 1",
    "after a store": "y = x + 1; z = y * 2",
}
HEADS = ("y = x.sum()\n if x.shape[0] > n:\n  {}\n", "if n >= x.shape[0]:\n  y = x\n else:\n  {}\n")
#: arms that leave nothing else
PURE = ("a view", "an index", "a write to its own", "a gradient")

weight = torch.tensor(3.0, requires_grad=True)


def inside(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.cos() if x.shape[0] > 2 * n else x.sin()


def _ran(program: Any, size: int, n: int) -> Any:
    torch.manual_seed(size)
    x, kept = torch.randn(size), []
    try:
        result = program(x, n, kept)
    except RuntimeError as error:
        return type(error), x, kept
    return result, x, kept, torch.rand(1)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("arm", ARMS)
def test_results_and_graphs(arm: str, reads: str, head: str) -> None:
    text = f"def program(x, n, c):\n {head.format(ARMS[arm])} {READS[reads]}\n return z + len(c)\n"
    names: dict[str, Any] = {"torch": torch, "inside": inside, "weight": weight}
    exec(text, names)
    program: types.FunctionType = names["program"]
    graphs: list[Any] = []

    def backend(module: Any, example_inputs: Any) -> Any:
        graphs.append(module)
        return module.forward

    compiled = capture.compile(program, backend=backend)
    for size, n in SIZES:
        given, wanted = _ran(compiled, size, n), _ran(program, size, n)
        for one, other in zip(given, wanted, strict=True):
            if isinstance(other, torch.Tensor):
                torch.testing.assert_close(one, other)
            else:
                assert one == other
    if arm in PURE and reads in ("nothing", "after a store"):
        assert len(graphs) <= 3, len(graphs)  # of constants; decided, of open sizes; of both ways
        assert not any(node.target is torch.arange for node in graphs[-1].graph.nodes)
