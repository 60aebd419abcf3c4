"""Who may take over whose memory inside one loop: instructions run in the order of the body."""

import pytest
import torch
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Axis, Load, Loop, Point, Store
from flambeau_inductor.schedule.memory import _same_elements

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
    assert _same_elements(loop, "b", new) is may


def test_another_element_keeps_its_memory():
    body = (Load("b", X0 + 1, torch.float32), Store("out", X0, 0))
    assert not _same_elements(Loop("shift", (Axis("x0", 50),), (), body), "b", "out")
