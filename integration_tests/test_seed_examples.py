"""The examples that the project started from, unmodified but for the name they import.

Each is run through every backend where that makes sense, and gives what eager gives.
"""

import pytest
import torch
from torch import nn

import flambeau


def fn(x, y):
    a = torch.cos(x)
    b = torch.sin(y)
    return a + b


def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def f1(x, y):
    if x.sum() < 0:
        return -y
    return y


def f2(x, y):
    return x + y


class MockModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(torch.cos(x))


class MyModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(100, 10)

    def forward(self, x):
        return nn.functional.relu(self.lin(x))


def close(found, wanted):
    torch.testing.assert_close(found, wanted)


def test_the_printing_compiler(capsys):
    def my_compiler(gm, example_inputs):
        print("my_compiler() called with FX graph:")
        print(gm.graph)
        return gm.forward

    decorated = flambeau.optimize(my_compiler)(fn)
    x, y = torch.randn(10), torch.randn(10)
    assert torch.equal(decorated(x, y), fn(x, y))
    printed = capsys.readouterr().out
    assert printed.count("my_compiler() called with FX graph:") == 1
    for name in ("cos", "sin", "add"):
        assert name in printed
    decorated(torch.randn(10), torch.randn(10))
    assert capsys.readouterr().out == ""


def test_functions(backend):
    x, y = torch.randn(10, 10), torch.randn(10, 10)
    close(flambeau.optimize(backend)(fn)(x, y), fn(x, y))


def test_a_decorated_function(backend):
    @flambeau.optimize(backend)
    def opt_foo2(x, y):
        a = torch.sin(x)
        b = torch.cos(x)
        return a + b

    x = torch.randn(10, 10)
    close(opt_foo2(x, x), torch.sin(x) + torch.cos(x))


def test_modules(backend):
    for module, x in ((MockModule(), torch.randn(10)), (MyModule(), torch.randn(10, 100))):
        close(flambeau.optimize(backend)(module)(x), module(x))


def test_the_toy_through_every_backend(backend):
    compiled = flambeau.optimize(backend)(toy_example)
    a, b = torch.randn(10), torch.randn(10).abs()
    close(compiled(a, b), toy_example(a, b))
    close(compiled(a, -b), toy_example(a, -b))
    assert flambeau.report(compiled).graphs == 3
    assert flambeau.report(compiled).fallbacks == ()


def test_control_flow_that_depends_on_data(backend):
    compiled = flambeau.optimize(backend)(f1)
    x, y = torch.rand(5, 5), torch.randn(5, 5)
    close(compiled(x, y), f1(x, y))
    close(compiled(-x, y), f1(-x, y))


def test_a_number_as_argument(backend):
    compiled = flambeau.optimize(backend)(f2)
    x = torch.randn(5, 5)
    for y in (3, 3, 4, 2.5):
        close(compiled(x, y), f2(x, y))


def test_another_library_in_the_middle(backend):
    fft = pytest.importorskip("scipy.fft", reason="scipy is not installed")

    def f3(x):
        x = x * 2
        x = fft.dct(x.numpy())
        x = torch.from_numpy(x)
        x = x * 2
        return x

    compiled = flambeau.optimize(backend)(f3)
    for _ in range(2):
        x = torch.randn(5, 5)
        close(compiled(x), f3(x))


def test_nopython_names_the_line():
    compiled = flambeau.optimize("eager", nopython=True)(toy_example)
    with pytest.raises(Exception, match="generic_jump") as caught:
        compiled(torch.randn(10), torch.randn(10))
    text = str(caught.value)
    assert "toy_example" in text
    assert "if b.sum() < 0:" in text
    assert __file__ in text


def test_nopython_is_fullgraph(backend):
    compiled = flambeau.compile(fn, backend=backend, fullgraph=True)
    x, y = torch.randn(10), torch.randn(10)
    close(compiled(x, y), fn(x, y))


def test_explain_says_where_the_graph_ends():
    text = str(flambeau.explain(toy_example, torch.randn(10), torch.randn(10)))
    assert "generic_jump" in text
    assert "if b.sum() < 0:" in text


def test_run_uses_what_there_is_and_makes_nothing_new(counting):
    compiled = flambeau.optimize(counting)(fn)
    x, y = torch.randn(10), torch.randn(10)
    compiled(x, y)
    with flambeau.run():
        assert torch.equal(compiled(x, y), fn(x, y))
        longer = torch.randn(20)
        assert torch.equal(compiled(longer, longer), fn(longer, longer))
    assert len(counting.graphs) == 1
    compiled(longer, longer)
    assert len(counting.graphs) == 2


def test_disable(counting):
    compiled = flambeau.optimize(counting)(flambeau.disable(fn))
    x, y = torch.randn(10), torch.randn(10)
    assert torch.equal(compiled(x, y), fn(x, y))
    assert counting.graphs == []


def test_reset(counting):
    compiled = flambeau.optimize(counting)(fn)
    x, y = torch.randn(10), torch.randn(10)
    compiled(x, y)
    flambeau.reset()
    compiled(x, y)
    assert len(counting.graphs) == 2


class Block(nn.Module):
    """A residual block, as resnets have it."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(out)) + x)


class SmallResnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Block(8), Block(8))
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


def test_a_training_step_with_backward_inside(backend):
    """As in the tutorial: forward, loss and backward in one function, the optimizer outside."""

    def train(mod, data):
        pred = mod(data[0])
        loss = torch.nn.CrossEntropyLoss()(pred, data[1])
        loss.backward()
        return loss.detach()

    data = (torch.randn(4, 3, 16, 16), torch.randint(10, (4,)))
    results = []
    for wrap in (lambda f: f, flambeau.optimize(backend)):
        torch.manual_seed(0)
        model = SmallResnet()
        optimizer = torch.optim.Adam(model.parameters())
        step = wrap(train)
        losses = []
        for _ in range(3):
            optimizer.zero_grad(True)
            losses.append(step(model, data).item())
            optimizer.step()
        if step is not train:
            report = flambeau.report(step)
            assert (report.fallbacks, report.internal_errors) == ((), ())
        results.append((losses, [p.detach() for p in model.parameters()], list(model.buffers())))
    (losses, parameters, buffers), (got, own, own_buffers) = results
    assert got == pytest.approx(losses, rel=1e-4)
    torch.testing.assert_close(own, parameters, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(own_buffers, buffers, rtol=1e-3, atol=1e-3)
