"""What a program keeps from torch's compiler (`torch.compiler.disable`) is kept from this one:
every kind of callable, with all below it or alone, wherever it is called."""

import pytest
import torch
from flambeau_capture.api import compiler_of


def below(x):
    return x.sin()


def leaf(x):
    return below(x) + 1 + torch.compiler.is_compiling()


class Module(torch.nn.Module):
    def forward(self, x):
        return leaf(x)


class Owner:
    def method(self, x):
        return leaf(x)

    def __call__(self, x):
        return leaf(x)


def of_class(recursive):
    wrapped = torch.compiler.disable(Owner.method, recursive=recursive)
    return type("Sub", (Owner,), {"method": wrapped})().method


def whole_class(recursive):
    """Its constructor is what is wrapped."""

    class Made:
        def __init__(self, x):
            self.kept = leaf(x)

    made = torch.compiler.disable(Made, recursive=recursive)
    return lambda x: made(x).kept


def marked(recursive):
    def fn(x):
        return leaf(x)

    fn._torchdynamo_disable = True
    return fn


def of(callable_):
    return lambda recursive: torch.compiler.disable(callable_, recursive=recursive)


TARGETS = {
    "function": of(leaf),
    "lambda": of(lambda x: leaf(x)),
    "bound method": of(Owner().method),
    "method of a class": of_class,
    "object": of(Owner()),
    "module": of(Module()),
    "class": whole_class,
    "built in": of(torch.sin),
    "twice": lambda recursive: of(of(leaf)(recursive))(recursive),
    "with a reason": lambda recursive: torch.compiler.disable(
        leaf, recursive=recursive, reason="as the program says"
    ),
    "marked": marked,
}
ALONE = sorted({*TARGETS} - {"class", "marked"})  # torch takes no class but with all below it


def each(fn, x):
    for item in iter((x,)):
        print(end="")
        return fn(item)


CALLS = {
    "directly": lambda fn: lambda x: fn(x * 2).cos(),
    "in a callee": lambda fn: lambda x: (lambda y: fn(y + 1))(x * 2).cos(),
    "in a loop past a break": lambda fn: lambda x: each(fn, x * 2).cos(),
    "from a frame that runs as it is": lambda fn: lambda x: max([x * 2], key=fn) + fn(x).cos(),
    "itself": lambda fn: fn,
}


def graphs_of(capture, backend, fn, everywhere=True):
    """`everywhere`: what asks whether it is compiled is not."""
    x = torch.tensor([0.5])
    wanted, compiled = fn(x), capture(fn)
    for _ in range(3):
        assert torch.equal(compiled(x), wanted) or not everywhere
    assert not compiler_of(compiled).records.faults
    return [graph.code for graph in backend.graphs]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_below_is_captured(capture, backend, target, call):
    graphs = graphs_of(capture, backend, CALLS[call](TARGETS[target](True)))
    assert not any("sin" in code for code in graphs)
    assert any("cos" in code for code in graphs) or call == "itself"


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("target", ALONE)
def test_it_alone_is_not(capture, backend, target, call):
    graphs = graphs_of(capture, backend, CALLS[call](TARGETS[target](False)), everywhere=False)
    captured = any("sin" in code for code in graphs)
    assert captured == (target != "built in")
    assert not any("sin" in code and "cos" in code for code in graphs)


def test_it_is_named(capture):
    fn = capture(lambda x: torch.compiler.disable(leaf)(x))
    fn(torch.ones(1))
    disabled = torch.compiler.disable(leaf)
    fn = capture(lambda x: disabled(x) + 1)
    fn(torch.ones(1))
    assert [report.reason.id for report in compiler_of(fn).records.breaks] == ["FB0006"]


@pytest.mark.parametrize("stance", ["default", "force_eager", "fail_on_recompile"])
def test_stances_of_torch_within(capture, stance):
    def block(x):
        with torch.compiler.set_stance(stance):
            y = x.sin()
        return y + 1

    @torch.compiler.set_stance(stance)
    def decorated(x):
        return x.sin()

    for fn in (block, lambda x: decorated(x * 2) + 1):
        compiled = capture(fn)
        for _ in range(3):
            assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))


IMPORTS = {
    "statement": "import {0} as made",
    "from": "from {0} import double; import sys; made = sys.modules['{0}']",
    "importlib": "import importlib; made = importlib.import_module('{0}')",
    "inside a comprehension": "made = [__import__('{0}') for _ in range(1)][0]",
    "below a frame that runs as it is": "made = max(['{0}'], key=lambda n: made.append("
    "__import__(n)) or 0) and made[0]",
}


@pytest.mark.parametrize("way", IMPORTS)
def test_what_a_module_runs_while_it_is_imported(capture, backend, tmp_path, monkeypatch, way):
    name = f"imported_{'_'.join(way.split())}"
    (tmp_path / f"{name}.py").write_text(
        "import torch\n\ndef double(x):\n    return x.tan() * 2\n\n"
        "made = [double(torch.ones(2)) + n for n in range(2)]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    names = {"torch": torch}
    exec(f"def f(x):\n    made = []\n    {IMPORTS[way].format(name)}\n    "
         "return made.double(x) + made.made[1]\n", names)  # fmt: skip
    fn = capture(names["f"])
    x = torch.ones(2)
    for _ in range(3):
        assert torch.equal(fn(x), x.tan() * 2 + (x.tan() * 2 + 1))
    nodes = [node for graph in backend.graphs for node in graph.graph.nodes]
    assert sum("tan" in str(node.target) for node in nodes) == 1
