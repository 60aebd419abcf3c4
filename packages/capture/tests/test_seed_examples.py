"""The examples of the documents that this project is built from, under our names."""

import re

import pytest
import torch
from flambeau_capture import Unsupported, explain, optimize


def my_compiler(gm, example_inputs):
    print("my_compiler() called with FX graph:")
    for node in gm.graph.nodes:
        print(node.op, node.name)
    return gm.forward


def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def toy(a, b):
    x = a / (torch.abs(a) + 1)
    print("woo")
    if b.sum() < 0:
        b = b * -1
    return x * b


def test_a_printing_compiler(capsys):
    @optimize(my_compiler)
    def fn(x, y):
        a = torch.cos(x)
        b = torch.sin(y)
        return a + b

    x, y = torch.randn(10), torch.randn(10)
    assert torch.equal(fn(x, y), torch.cos(x) + torch.sin(y))
    shown = capsys.readouterr().out.splitlines()
    assert shown == [
        "my_compiler() called with FX graph:",
        "placeholder x",
        "placeholder y",
        "call_function cos",
        "call_function sin",
        "call_function add",
        "output output",
    ]


class MockModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = torch.nn.ReLU()

    def forward(self, x):
        return self.relu(torch.cos(x))


def test_a_module(capture, backend):
    module = MockModule()
    x = torch.randn(10)
    assert torch.equal(capture(module)(x), module(x))
    assert len(backend) == 1


def test_the_toy_has_three_graphs(capture, backend):
    compiled = capture(toy_example)
    for _ in range(100):
        a, b = torch.randn(10), torch.randn(10)
        assert torch.equal(compiled(a, b), toy_example(a, b))
    assert len(backend) == 3
    names = [
        [node.name for node in graph.graph.nodes if node.op not in ("placeholder", "output")]
        for graph in backend.graphs
    ]
    assert names[0] == ["abs_1", "add", "truediv", "sum_1", "lt"]
    assert sorted(names[1:]) == [["mul"], ["mul", "mul_1"]]
    for graph in backend.graphs[1:]:
        assert [n.name for n in graph.graph.nodes if n.op == "placeholder"] == ["b", "x"]


def test_the_toy_shows_its_bytecode_and_guards():
    shown = []
    compiled = optimize("eager", debug=True, out=shown.append, raise_internal_errors=True)(
        toy_example
    )
    compiled(torch.randn(10), torch.randn(10))
    text = "\n".join(shown)
    assert re.search(r"^ORIGINAL BYTECODE toy_example .*test_seed_examples.py line \d+", text, re.M)
    assert re.search(r"^MODIFIED BYTECODE", text, re.M)
    modified = text[text.index("MODIFIED BYTECODE") : text.index("GUARDS:")]
    assert re.search(r"__compiled_fn_\d+", modified)
    assert len(set(re.findall(r"__resume_at_\d+_\d+", modified))) == 2
    guards = text[text.index("GUARDS:") :].split("__compiled_fn")[0]
    for line in (
        "- local 'a' TENSOR_MATCH",
        "- local 'b' TENSOR_MATCH",
        "- global 'torch' FUNCTION_MATCH",
    ):
        assert line in guards


def test_no_python_names_the_line():
    compiled = optimize("eager", nopython=True)(toy_example)
    with pytest.raises(Unsupported) as caught:
        compiled(torch.randn(10), torch.randn(10))
    text = str(caught.value)
    assert "generic_jump TensorValue()" in text.replace("truth of ", "") or "FB0001" in text
    assert re.search(
        r'File ".*test_seed_examples.py", line \d+, in toy_example\n\s+if b.sum\(\) < 0:', text
    )


def test_an_int_argument(capture, backend):
    def f2(x, y):
        return x + y

    x = torch.randn(5, 5)
    compiled = capture(f2)
    assert torch.equal(compiled(x, 3), x + 3)
    assert torch.equal(compiled(x, 4), x + 4)
    assert len(backend) == 2


def test_scipy_in_the_middle(capture, backend):
    fft = pytest.importorskip("scipy.fft")

    def f3(x):
        x = x * 2
        x = fft.dct(x.numpy())
        x = torch.from_numpy(x)
        x = x * 2
        return x

    x = torch.randn(5, 5)
    assert torch.equal(capture(f3)(x), f3(x))
    assert len(backend) == 2


def test_the_toy_over_both_branches(capture, backend):
    compiled = capture(toy_example)
    one, other = torch.randn(10), torch.rand(10)
    assert torch.equal(compiled(one, other), toy_example(one, other))
    assert torch.equal(compiled(one, -other), toy_example(one, -other))
    assert len(backend) == 3


def test_a_print_in_the_middle(capture, backend, capsys):
    a, b = torch.randn(10), torch.rand(10)
    assert torch.equal(capture(toy)(a, b), toy(a, b))
    assert capsys.readouterr().out == "woo\nwoo\n"
    assert len(backend) == 3


def test_explain_counts_graphs_and_breaks():
    found = explain(toy, torch.randn(10), torch.rand(10))
    text = str(found)
    assert "3 graphs, with 2 graph breaks and 6 ops" in text
    assert "print" in text and "if b.sum() < 0:" in text
    explanation, out_guards, graphs, ops_per_graph, break_reasons, verbose = found
    assert len(graphs) == 3 and len(break_reasons) == 2 and out_guards
    assert [len(ops) for ops in ops_per_graph] == [2 + 1, 2, 1]
    assert explanation in verbose


class Residual(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(channels)
        self.conv2 = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(channels)
        self.relu = torch.nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 4, 3)
        self.layers = torch.nn.Sequential(*(Residual(4) for _ in range(2)))
        self.head = torch.nn.Linear(4, 10)

    def forward(self, x):
        x = self.layers(self.stem(x))
        return self.head(x.mean((2, 3)))


def twins():
    torch.manual_seed(0)
    one, other = Net(), Net()
    other.load_state_dict(one.state_dict())
    return one, other


def test_resnet_style_inference(capture, backend):
    module, twin = twins()
    module.eval(), twin.eval()

    def evaluate(mod, inp):
        return mod(inp)

    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(capture(evaluate, nopython=True)(module, x), twin(x))
    assert len(backend) == 1


def train(mod, data):
    pred = mod(data[0])
    loss = torch.nn.CrossEntropyLoss()(pred, data[1])
    loss.backward()
    return loss


def test_resnet_style_training_step(capture, backend):
    module, twin = twins()
    compiled = capture(train)
    for _ in range(3):
        data = torch.randn(4, 3, 8, 8), torch.randint(10, (4,))
        assert torch.equal(compiled(module, data), train(twin, data))
        for ours, theirs in zip(module.parameters(), twin.parameters()):
            assert torch.equal(ours.grad, theirs.grad)
        for ours, theirs in zip(module.buffers(), twin.buffers()):
            assert torch.equal(ours, theirs)
    assert len(backend) == 2  # the first call finds no derivatives to add to


def test_a_training_step_without_python():
    module, twin = twins()
    data = (torch.randn(4, 3, 8, 8), torch.randint(10, (4,)))
    compiled = optimize("eager", nopython=True)(train)
    assert torch.equal(compiled(module, data), train(twin, data))


def test_a_training_step_without_python_is_refused_at_backward():
    """Where a hook watches: autograd has to run it."""
    module, _ = twins()
    next(module.parameters()).register_hook(lambda derivative: derivative * 2)
    compiled = optimize("eager", nopython=True)(train)
    with pytest.raises(Unsupported, match=r"loss\.backward"):
        compiled(module, (torch.randn(4, 3, 8, 8), torch.randint(10, (4,))))
