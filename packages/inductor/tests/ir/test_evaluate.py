"""What the reference evaluator must not share with memory."""

from __future__ import annotations

import torch
from flambeau_inductor.indexing import as_expr
from flambeau_inductor.ir.evaluate import run_loop
from flambeau_inductor.ir.loops import Const, Load, Loop, Store


def test_a_number_that_was_read_stays_when_its_memory_is_written() -> None:
    zero, kind = as_expr(0), torch.float32
    body = (Load("a", zero, kind), Const(1.0, kind), Store("a", zero, 1), Store("b", zero, 0))
    memory = {"a": torch.tensor([5.0]), "b": torch.tensor([0.0])}
    run_loop(Loop("loop0", (), (), body), memory)
    assert (memory["a"].item(), memory["b"].item()) == (1.0, 5.0)
