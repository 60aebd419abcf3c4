"""Who may take over whose memory inside one loop: instructions run in the order of the body."""

import pytest
import torch
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Axis, Load, Loop, Point, Reduce, Store
from flambeau_inductor.ir.program import Layout
from flambeau_inductor.schedule.memory.planning import LONG_ROW, _in_long_rows, same_elements

from tests.codegen import loops

X0 = Var("x0")
EARLY = (Load("b", X0, torch.float32), Point("neg", (0,), torch.float32), Store("out", X0, 1))
LATE = (
    Load("a", X0, torch.float32),
    Point("neg", (0,), torch.float32),
    Store("out", X0, 1),
    Load("b", X0, torch.float32),
    Point("add", (0, 3), torch.float32),
    Store("sum", X0, 4),
)


@pytest.mark.parametrize(
    ("body", "new", "may"), [(EARLY, "out", True), (LATE, "out", False), (LATE, "sum", True)]
)
def test_what_is_still_read_keeps_its_memory(body, new, may):
    loop = Loop("both", (Axis("x0", 50),), (), body)
    assert same_elements(loop, "b", new) is may


def test_another_element_keeps_its_memory():
    body = (Load("b", X0 + 1, torch.float32), Store("out", X0, 0))
    assert not same_elements(Loop("shift", (Axis("x0", 50),), (), body), "b", "out")


def _rows(columns: int, device: str = "cuda") -> Layout:
    return Layout((8, columns), (columns, 1), torch.float32, torch.device(device), 0)


@pytest.mark.parametrize(
    ("columns", "device", "may"),
    [(LONG_ROW, "cuda", True), (LONG_ROW - 1, "cuda", False), (LONG_ROW, "cpu", False)],
)
def test_long_rows_of_a_gpu_are_written_where_they_were_read(columns, device, may):
    loop = loops.softmax(8, columns)
    assert _in_long_rows(loop, "out", _rows(columns, device)) is may
    assert same_elements(loop, "in0", "out")


def test_a_row_that_is_gone_through_once_more_stays():
    softmax = loops.softmax(8, LONG_ROW)
    twice = (
        *softmax.body,
        Reduce("max", 6, torch.float32),
        Point("sub", (6, 9), torch.float32),
        Store("less", softmax.body[8].index, 10),
    )
    loop = Loop("twice", softmax.x, softmax.r, twice)
    assert not _in_long_rows(loop, "out", _rows(LONG_ROW))
    assert _in_long_rows(loop, "less", _rows(LONG_ROW))
