"""Loops and recursions that a count which depends on data ends: in general they would never end, so
that the graph does, and one iteration's graph serves the others. Generated: how the rest becomes
less, beside how the loop is written."""

from __future__ import annotations

from collections.abc import Callable

import flambeau_capture
import pytest
import torch
from torch import Tensor

Rest = Callable[[Tensor], Tensor]

RESTS: dict[str, Rest] = {
    "mask": lambda x: x[1:][x[1:] > x[0] / 2],
    "selected": lambda x: torch.masked_select(x[:-1], x[:-1] != x[-1]),
    "positions": lambda x: x[1:][(x[1:] != x[0]).nonzero()[:, 0]],
    "unique": lambda x: torch.unique(x)[:-1],
    "slice by a tensor": lambda x: x[(x == x[-1]).sum() :],
}


def _while(rest: Rest, x: Tensor) -> Tensor:
    total = x.new_zeros(())
    while x.numel() > 0:
        total = total * 2 + x[0]
        x = rest(x)
    return total


def _while_true(rest: Rest, x: Tensor) -> Tensor:
    total = x.new_zeros(())
    while True:
        if len(x) == 0:
            break
        total = total * 2 + x[0]
        x = rest(x)
    return total


def _with_two_ends(rest: Rest, x: Tensor) -> Tensor:
    total = x.new_zeros(())
    while x.shape[0]:
        total = total * 2 + x[0]
        if x.numel() == 1:
            break
        x = rest(x)
    return total


def _in_a_for(rest: Rest, x: Tensor) -> Tensor:
    total = x.new_zeros(())
    for _ in range(2):
        left = x
        while left.numel() > 0:
            total = total * 2 + left[0]
            left = rest(left)
    return total


def _recursive(rest: Rest, x: Tensor) -> Tensor:
    if x.numel() == 0:
        return x.new_zeros(())
    return _recursive(rest, rest(x)) * 2 + x[0]


def _collected(rest: Rest, x: Tensor) -> Tensor:
    found: list[Tensor] = []
    while x.numel() > 0:
        found.append(x[0])
        x = rest(x)
    return torch.stack(found)


LOOPS = (_while, _while_true, _with_two_ends, _in_a_for, _recursive, _collected)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("rest", RESTS)
def test_a_loop_that_data_ends(rest: str, loop: Callable[[Rest, Tensor], Tensor]) -> None:
    sizes: list[int] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        sizes.append(len(gm.graph.nodes))
        return gm

    def program(x: Tensor) -> Tensor:
        return loop(RESTS[rest], x)

    torch.manual_seed(0)
    compiled = flambeau_capture.compile(program, backend=backend)
    for length in (24, 24, 9, 1, 17):
        x = torch.randint(1, 40, (length,)).double()
        torch.testing.assert_close(compiled(x), program(x))
    assert max(sizes) < 100  # a recursion adds up on its way back, all of it in one graph


def test_a_for_loop_goes_on_as_in_general() -> None:
    """Its end is not that of data: the iterations are one graph."""

    def program(x: Tensor) -> Tensor:
        total = x.new_zeros(())
        for bound in range(4):
            x = x[x > bound]
            if x.numel() == 0:
                break
            total = total + x[0]
        return total

    compiled = flambeau_capture.compile(program, backend="eager", fullgraph=True)
    for length in (24, 9):
        x = torch.randint(1, 40, (length,)).double()
        torch.testing.assert_close(compiled(x), program(x))


PLACES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "one": lambda x, at: x[at[0] : at[0] + 1],
    "one of a list": lambda x, at: x[at[0] : at[0] + 1].expand(4, 3),
    "three": lambda x, at: x[at[0] - 1 : at[0] + 2] + torch.ones(3, 1),
    "a sum of tensors": lambda x, at: x[at[0] : at[0] + at[1]] * 2,
    "written between": lambda x, at: x[at[0] : at.add_(1)[0]],
    "a written sum": lambda x, at: x[at[0] : (at[0] + 1).add_(2)],
    "of int32": lambda x, at: x[at.int()[0] : at.int()[0] + 1],
}


@pytest.mark.parametrize("place", PLACES)
def test_a_slice_by_sums(place: str) -> None:
    """As long as the difference of its bounds says: `x[i : i + 1]` is of one element."""
    compiled = flambeau_capture.compile(PLACES[place], backend="eager")
    x = torch.randn(10, 3)
    for start in (3, 7, 5, 9, 10, 0, -1, -4, 2**63 - 1):
        at = torch.tensor([start, 2])
        answers = []
        for run in (compiled, PLACES[place]):
            try:
                answers.append(run(x, at.clone()))
            except Exception as error:
                answers.append(type(error))
        if isinstance(answers[1], type):
            assert answers[0] is answers[1]
        else:
            torch.testing.assert_close(*answers)


def test_one_row_by_a_tensor_is_one_graph() -> None:
    compiled = flambeau_capture.compile(PLACES["one of a list"], backend="eager", fullgraph=True)
    for start in (3, 0, 9):
        given = torch.randn(10, 3), torch.tensor([start])
        torch.testing.assert_close(compiled(*given), PLACES["one of a list"](*given))


def test_a_key_of_a_number_read_early_stays_a_tuple() -> None:
    def program(x: Tensor, table: Tensor) -> Tensor:
        return x + 1 if table[0, 1] > 2 else x - 1

    compiled = flambeau_capture.compile(program, backend="eager")
    for second in (3, 1, 3):
        given = torch.zeros(2), torch.tensor([[0, second], [5, 5]])
        torch.testing.assert_close(compiled(*given), program(*given))
