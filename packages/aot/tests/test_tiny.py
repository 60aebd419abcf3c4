"""The whole layer in a few seconds."""

import flambeau_aot as aot
import torch


def test_train_a_line() -> None:
    torch.manual_seed(0)
    weight = torch.zeros(3, requires_grad=True)
    x = torch.randn(16, 3)
    target = x @ torch.tensor([1.0, -2.0, 3.0])
    loss = aot.aot_function(lambda w, a, b: ((a @ w - b) ** 2).mean(), aot.run_as_is)
    for _ in range(60):
        value = loss(weight, x, target)
        (grad,) = torch.autograd.grad(value, weight)
        with torch.no_grad():
            weight -= 0.2 * grad
    torch.testing.assert_close(weight.detach(), torch.tensor([1.0, -2.0, 3.0]), rtol=0, atol=1e-3)


def test_captured_graph_with_parameter_and_buffer() -> None:
    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((2,), 3.0))
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            self.calls.add_(x.new_ones(()))
            return ((x * self.weight).sin(),)

    module = Scale()
    gm = torch.fx.symbolic_trace(module)
    x = torch.randn(4, 2)
    compiled = aot.aot_eager(gm, [x])
    (result,) = compiled(x)
    assert torch.equal(result, (x * 3).sin())
    result.sum().backward()
    torch.testing.assert_close(module.weight.grad, (x * (x * 3).cos()).sum(0))
    assert module.calls.item() == 1
    assert compiled.report.kind == "training"
