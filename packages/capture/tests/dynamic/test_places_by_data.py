"""Places in a tensor that data decides: items, slices and assignments by tensors of one integer are
part of one graph, with gradients, as eager reads them."""

from __future__ import annotations

import flambeau_capture
import pytest
import torch
from torch import Tensor

KEYS = (
    "t", ":, t", "..., t", "t, 1:", "1:, t", "t, u", "None, t", ":, None, t", "0, t", "::2, t",
    "t:", ":, t:", "t:u + 2", "t:, u:", ": -t - 1", ":, t : t + 2", "rows, t", "mask, t", "t, rows",
    "..., t, None",
)  # fmt: skip
VALUES = ("0", "v", "x[0, 0] * 2")
READS = {key: f"return x[{key}] * 2" for key in KEYS} | {
    "narrow": "return x.narrow(1, t, 2) * 2",
    "narrow by length": "return x.narrow(0, 1, t + 1) * 2",
    "an attention window": "return (x[:, t] * x[t : t + 1].sum(0)[u]).cumsum(0)",
}
WRITES = {
    f"{key} = {value}": f"y = x * 1; y[{key}] = {value}; return y * 2"
    for key in ("t", ":, t", "..., t", "t, 1:", "t, u", "t:")
    for value in VALUES
}
PROGRAMS = READS | WRITES


@pytest.mark.sweep(12)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_place_that_data_decides(name: str) -> None:
    text = "\n    ".join([
        "def program(x, w, v):", "t = w.sum().long()", "u = (w * 2).sum().long() % 3",
        "rows, mask = torch.tensor([2, 0]), x[:, 0] > 0.3", *PROGRAMS[name].split("; "),
    ])  # fmt: skip
    space: dict[str, object] = {"torch": torch}
    exec(text, space)
    program, graphs = space["program"], []

    def backend(module: torch.fx.GraphModule, given: list[Tensor]) -> object:
        graphs.append(module)
        return module.forward

    compiled = flambeau_capture.compile(program, backend=backend, dynamic=True)
    torch.manual_seed(0)
    for length, total in ((5, 0), (7, 2), (4, 1), (6, 0)):
        x, w, v = torch.rand(length, 4), torch.full((4,), total / 4 + 0.01), torch.rand(())
        results = []
        for run in (program, compiled):
            own = x.clone().requires_grad_(), v.clone().requires_grad_()
            found = run(own[0], w, own[1])
            grads = torch.autograd.grad(found.sum(), own, allow_unused=True)
            results.append((found.detach(), [each for each in grads if each is not None]))
        torch.testing.assert_close(*results, rtol=0, atol=0)
    assert len(graphs) == 1, [str(graph.code) for graph in graphs]


@pytest.mark.parametrize(
    "given", [{"dtype": torch.int32}, {"dtype": torch.int64, "device": "meta"}], ids=["int", "meta"]
)
def test_places_that_eager_refuses_are_refused(given: dict[str, object]) -> None:
    def program(x: Tensor, at: Tensor) -> list[Tensor]:
        return [part * 2 for part in x.tensor_split(at)]

    compiled = flambeau_capture.compile(program, backend="eager", dynamic=True)
    operands = torch.ones(4), torch.tensor([1, 2], **given)  # type: ignore[call-overload]
    with pytest.raises(RuntimeError, match="tensor_split expected") as eager:
        program(*operands)
    with pytest.raises(RuntimeError) as ours:
        compiled(*operands)
    assert str(ours.value) == str(eager.value)
