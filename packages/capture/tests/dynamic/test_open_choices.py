"""Slices and extremes of open sizes, where which answer holds differs from call to call."""

from collections.abc import Callable
from typing import Any

import flambeau_capture as capture
import pytest
import torch

BOUNDS = [-9, -5, -1, 0, 1, 4, 9]
SLICES = [f"{a}:{b}" for a in ["", *BOUNDS] for b in ["", *BOUNDS]]
SIZES = (8, 6, 3, 12, 2, 5, 4, 9, 10)


def _compiled(program: Callable[..., Any], **choices: Any) -> tuple[Callable[..., Any], list[Any]]:
    graphs: list[Any] = []

    def backend(module: Any, example_inputs: Any) -> Any:
        graphs.append(module)
        return module.forward

    return capture.compile(program, backend=backend, **choices), graphs


@pytest.mark.parametrize("key", SLICES)
def test_a_slice_is_left_open_once_it_was_cut_off(key: str) -> None:
    program = eval(f"lambda x: (x[{key}], x[:, ..., {key}] * 2, x[None, {key}, 0])")
    compiled, graphs = _compiled(program)
    for size in SIZES:
        x = torch.arange(float(size * size)).reshape(size, size)
        for given, wanted in zip(compiled(x), program(x), strict=True):
            assert torch.equal(given, wanted) and given.stride() == wanted.stride(), (key, size)
    # each bound is decided once, and open from the second on; sizes of results are 0 or 1 besides
    assert len(graphs) <= 7, key


@pytest.mark.parametrize("key", ["-5:", ":-5", "3:", ":7"])
def test_gradients_of_a_slice_left_open(key: str) -> None:
    program = eval(f"lambda x: (x[{key}] * 3).sin().sum() + x.sum()")
    compiled, _ = _compiled(program)
    for size in SIZES:
        one = torch.randn(size, requires_grad=True)
        other = one.detach().clone().requires_grad_()
        program(one).backward()
        compiled(other).backward()
        torch.testing.assert_close(other.grad, one.grad)


class Window:
    """Keys of the last calls, as a decoder keeps them."""

    def __init__(self) -> None:
        self.keys = torch.zeros(1, 0)
        self.seen = 0

    def last(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += x.shape[1]
        keys = torch.cat([self.keys, x], 1)
        self.keys = keys[:, -5:]
        return keys.cumsum(1) + max(self.seen - 6, 0) + min(4, self.seen)


def test_what_a_frame_grows_is_left_open_from_its_first_graph_on() -> None:
    compiled, graphs = _compiled(Window.last)
    one, other = Window(), Window()
    for _ in range(12):
        x = torch.randn(1, 1)
        assert torch.equal(compiled(one, x), other.last(x))
        assert torch.equal(one.keys, other.keys) and one.seen == other.seen
    assert len(graphs) <= 4  # of 0, 1 and 2 are results of another form


def test_an_extreme_follows_python() -> None:
    def program(x: torch.Tensor, n: int) -> tuple[torch.Tensor, int, int]:
        return x + max(n, 7, x.shape[0]), min(n, 7), max(3 - n, 0)

    compiled, graphs = _compiled(program)
    for size, n in ((4, 9), (8, 3), (20, 30), (7, 7), (6, -2), (3, 100), (9, 8), (5, 6)):
        given, wanted = compiled(torch.ones(size), n), program(torch.ones(size), n)
        assert torch.equal(given[0], wanted[0]) and given[1:] == wanted[1:], (size, n)
    assert len(graphs) <= 5


def test_what_comes_out_the_same_stays_a_constant() -> None:
    compiled, graphs = _compiled(lambda x: x[:4])
    for size in (8, 9, 20):
        compiled(torch.ones(size))
    assert graphs[-1].graph.output_node().args[0][0].meta["val"].shape == (4,)
