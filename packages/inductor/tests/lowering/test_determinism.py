"""`deterministic` refuses, by name, what adds in the order in which threads arrive."""

from __future__ import annotations

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import InductorError, Options
from flambeau_inductor.lowering import lower_graph
from torch import Tensor, fx

ORDERED = Options(deterministic=True)


def scattered(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    return x.scatter_add(0, index, src)


def put(x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    return x.index_put((rows,), values, accumulate=True)


def _graph(function: object, inputs: list[Tensor]) -> fx.GraphModule:
    return flambeau_prims.lower(fx.symbolic_trace(function), inputs)  # type: ignore[arg-type]


def _on_a_gpu() -> list[Tensor]:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        places = torch.empty(4, dtype=torch.int64, device="cuda")
        return [torch.empty(8, device="cuda"), places, torch.empty(4, device="cuda")]


def test_a_gpu_scatter_is_refused() -> None:
    inputs = _on_a_gpu()
    gm = _graph(scattered, inputs)
    with pytest.raises(InductorError, match=r"scatter_add.*threads"):
        flambeau_inductor.compile(gm, inputs, options=ORDERED)


def test_rows_are_added_in_order_on_a_gpu() -> None:
    inputs = _on_a_gpu()
    gm = _graph(put, inputs)
    found = {
        ordered: {c.target for c in lower_graph(gm, inputs, deterministic=ordered).results}
        for ordered in (False, True)
    }
    assert found == {True: {"aten.index_put.default"}, False: set()}


def test_a_cpu_gives_the_same_bits_twice() -> None:
    inputs = [torch.randn(8), torch.randint(0, 8, (64,)), torch.randn(64)]
    compiled = flambeau_inductor.compile(_graph(scattered, inputs), inputs, options=ORDERED)
    first, second = (compiled(list(inputs))[0] for _ in range(2))
    assert torch.equal(first, second)
    torch.testing.assert_close(first, scattered(*inputs))
