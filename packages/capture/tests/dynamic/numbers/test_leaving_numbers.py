"""A number that leaves is computed beside the graph: every way to compute one, from every place."""

import itertools
import math

import pytest
import torch
from flambeau_capture.api import compiler_of

EXPRESSIONS = (
    "n", "n + 1", "n * 2", "n * n - 3", "2 - n", "n // 2", "n % 3", "-n // 3", "-n % 4",
    "(n + m) * 2", "n // 2 * m", "n ** 3", "n << 2", "n >> 1", "n & 3",
    "divmod(n, 4)", "(n // 2, [n + 1, {'k': n * m}])", "n + 0.5", "n / 2", "n * 0.25", "n ** 0.5",
)  # fmt: skip
PLACES = {
    "a size": "n, m = x.shape",
    "an argument": "n, m = given, 5",
    "an attribute": "n, m = owner.n, owner.m",
    "a global": "n, m = number, x.shape[1]",
    "an item": "n, m = table['n'], rows[0]",
}
LEAVES = {
    "returned": "return y, {0}",
    "stored": "owner.kept = {0}\n    return y",
    "into a dict": "table['kept'] = {0}\n    return y",
    "past a break": "kept = {0}\n    print(end='')\n    return y * 2, kept",
    "captured": "kept = {0}\n    return (lambda: kept), y",
}


class Owner:
    n, m, kept = 0, 0, None


def world(source):
    names = {"owner": Owner(), "table": {}, "rows": [0], "number": 0}
    exec(source, names)
    return names


def called(names, turn):
    n, m = 4 + turn, 9 - turn
    names["owner"].n, names["owner"].m = n, m
    names["table"]["n"], names["rows"][0], names["number"] = n, m, n
    answer = names["f"](torch.arange(float(n * m)).reshape(n, m), n)
    answer = [one() if callable(one) else one for one in (*answer,)]
    return answer, names["owner"].kept, names["table"].get("kept")


@pytest.mark.parametrize("way", LEAVES)
@pytest.mark.parametrize("place", PLACES)
def test_a_number_that_leaves(capture, backend, same, place, way):
    every = f"({', '.join(EXPRESSIONS)})"
    body = f"y = x.sin()\n    {LEAVES[way].format(every)}"
    source = f"def f(x, given):\n    {PLACES[place]}\n    {body}\n"
    ours, theirs = world(source), world(source)
    ours["f"] = capture(ours["f"])
    for turn in range(6):
        same(list(called(ours, turn)), list(called(theirs, turn)), f"call {turn}")
    assert len(backend) <= 2 + 2 * (way == "past a break")
    for graph in backend.graphs:
        outputs = next(node for node in graph.graph.nodes if node.op == "output").args[0]
        assert all(isinstance(one.meta["val"], torch.Tensor) for one in outputs)


@pytest.mark.parametrize(
    "expression", ["max(n, m)", "min(n, 7)", "n if n > m else m", "abs(n - m)"]
)
def test_one_that_a_comparison_decides(capture, backend, same, expression):
    """A graph for each way that the comparison goes."""
    source = f"def f(x, given):\n    n, m = x.shape\n    return x.sin(), {expression}\n"
    ours, theirs = world(source), world(source)
    ours["f"] = capture(ours["f"])
    for turn in range(6):
        same(list(called(ours, turn)), list(called(theirs, turn)), f"call {turn}")
    assert len(backend) <= 4


def test_why_sizes_are_kept_is_told_in_a_line():
    from flambeau_capture import compile as capture

    def refusing(module, inputs):
        if any(isinstance(one, int) for one in inputs):
            raise RuntimeError("no symbols\n" + "here\n" * 1000)
        return module.forward

    fn = capture(lambda x, n: x * n, backend=refusing)
    for n in (2, 3, 4):
        assert torch.equal(fn(torch.ones(2), n), torch.full((2,), float(n)))
    (_, why), again = compiler_of(fn).records.static_only  # of two numbers, each was tried open
    assert again == ("<lambda>", why)
    assert "no symbols" in why and "\n" not in why and len(why) < 400


def test_a_counter_is_one_graph(capture, backend):
    owner = Owner()
    owner.n = 17

    def counted(x):
        owner.n += 1
        return x + owner.n

    fn = capture(counted)
    for turn in itertools.count(18):
        assert torch.equal(fn(torch.ones(2)), torch.ones(2) + turn) and owner.n == turn
        if turn > 40:
            break
    assert len(backend) == 1


OF_FLOATS = [
    *(f"math.{name}({{0}})" for name in
      ("cos", "sin", "tan", "exp", "log", "log1p", "sqrt", "tanh", "atan", "erf", "floor", "ceil",
       "trunc", "fabs", "degrees", "isfinite", "gamma")),
    "round({0})", "round({0}, 2)", "int({0})", "float({0})", "abs({0})", "-{0}", "bool({0})",
    "max({0}, 5)", "min({0}, 5.5)", "{0} // 2", "{0} % 3", "{0} ** 2", "{0} ** 0.5", "{0} / 7",
    "{0} > 5", "{0} == 6", "not {0}", "math.pow({0}, 2)", "math.atan2({0}, 3)",
    "math.hypot({0}, 2)", "divmod({0}, 2)", "math.fmod({0}, 3)", "math.isclose({0}, 6)",
]  # fmt: skip
AFTER = ("{0}", "{0} * 2 + 1", "0.5 * {0} * {0} - 0.1", "float({0}) / 3", "round({0}, 3)")
HELD = {
    "returned": "return y, a",
    "in a dict": "table['kept'] = a\n    return y",
    "in a list": "rows.append(a)\n    return y",
    "in an attribute": "owner.kept = a\n    return y",
    "in a closure": "return (lambda: a), y",
    "in a global": "global kept\n    kept = a\n    return y",
    "in a tuple": "return y, ((a, [a]), {'a': a})",
    "as text": "return y, f'{a}', str(a)",
    "past a break": "print(end='')\n    return y, a",
    "and scales a tensor": "table['kept'] = a\n    return y * (a[0] if type(a) is tuple else a), a",
}


def types_too(value):
    """A value by its classes as well: a symbol prints and compares as the number it stands for."""
    if isinstance(value, list | tuple):
        return type(value), [types_too(item) for item in value]
    if isinstance(value, dict):
        return type(value), [(types_too(key), types_too(item)) for key, item in value.items()]
    return (type(value), value.tolist() if isinstance(value, torch.Tensor) else repr(value))


def state_after(fn, names, number):
    names["rows"][:] = []
    answer = fn(torch.arange(3.0), number)
    answer = [one() if callable(one) else one for one in (*answer,)]
    owner, held = names["owner"], (names["table"].get("kept"), names.get("kept"))
    return types_too([answer, owner.kept, *held, names["rows"]])


@pytest.mark.sweep(8)
@pytest.mark.parametrize("way", HELD)
@pytest.mark.parametrize("number", [5, 5.25])
def test_a_number_that_a_function_makes(capture, number, way):
    for index, expression in enumerate(OF_FLOATS, list(HELD).index(way)):
        after = AFTER[0 if expression.startswith("divmod") else index % len(AFTER)]
        a = after.format(f"({expression.format('n')})")
        source = f"import math\ndef f(x, n):\n    a = {a}\n    y = x + 1\n    {HELD[way]}\n"
        ours, theirs = world(source), world(source)
        fn = capture(ours["f"])
        for turn in range(5):
            got = state_after(fn, ours, number + turn)
            assert got == state_after(theirs["f"], theirs, number + turn), (a, turn)


def test_a_symbol_is_stopped_at_the_border(monkeypatch):
    """Whatever would emit one: the frame is captured again with its numbers fixed."""
    from flambeau_capture import compile as capture
    from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue

    def careless(value, writer):
        writer.load_const((1, value.number))

    monkeypatch.setattr(SymbolValue, "reconstruct", careless)
    fn = capture(lambda x, n: (x + n, n * 2.0), backend=lambda module, inputs: module.forward)
    for n in (1.5, 2.5, 3.5, 4.5):
        assert types_too(fn(torch.ones(1), n)) == types_too((torch.ones(1) + n, n * 2.0))
    ((_, why),) = compiler_of(fn).records.static_only
    assert "SymFloat would leave capture" in why


def test_a_long_chain_of_floats(capture):
    def chained(x, n):
        a = math.cos(n)
        for _ in range(30):
            a = a * 1.01 + n
        return x * a, a, a / (math.sin(n) + 2), int(a), round(a / 7, 3)

    fn = capture(chained)
    for n in (1.5, 2.5, 3.5, 4.5, 5.5):
        assert types_too(fn(torch.ones(2), n)) == types_too(chained(torch.ones(2), n))
