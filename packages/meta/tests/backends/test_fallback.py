import sys
import warnings

import flambeau_aot
import flambeau_inductor
import flambeau_prims
import pytest
import torch

import flambeau
from flambeau.backends.fallback import stage_of
from flambeau.errors import FlambeauWarning, StageError


def program(x):
    y = torch.cos(x)
    return y * 2


def failing(monkeypatch, error):
    def compile(gm, example_inputs, info=None, options=None):
        raise error

    monkeypatch.setattr(flambeau_inductor, "compile", compile)


@pytest.mark.usefixtures("falls_back")
def test_a_failure_is_counted_named_and_shown(monkeypatch):
    failing(monkeypatch, RuntimeError("cannot do this"))
    compiled = flambeau.compile(program)
    x = torch.randn(5)
    with pytest.warns(FlambeauWarning) as caught:
        result = compiled(x)
    assert torch.equal(result, program(x))
    (warning,) = [w for w in caught if w.category is FlambeauWarning]
    text = str(warning.message)
    assert "inductor could not compile" in text
    assert "RuntimeError: cannot do this" in text
    assert "y = torch.cos(x)" in text
    assert "runs eagerly" in text
    (failure,) = flambeau.report(compiled).fallbacks
    assert failure.stage == "inductor"
    assert isinstance(failure.error, RuntimeError)


@pytest.mark.usefixtures("falls_back")
def test_the_same_failure_warns_once(monkeypatch):
    failing(monkeypatch, RuntimeError("cannot do this"))
    compiled = flambeau.compile(program)
    with pytest.warns(FlambeauWarning):
        compiled(torch.randn(5))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FlambeauWarning)
        compiled(torch.randn(6))
    assert len(flambeau.report(compiled).fallbacks) == 2


def test_fullgraph_raises(monkeypatch):
    failing(monkeypatch, RuntimeError("cannot do this"))
    compiled = flambeau.compile(program, fullgraph=True)
    with pytest.raises(Exception, match="inductor could not compile") as caught:
        compiled(torch.randn(5))
    chain = [caught.value, caught.value.__cause__]
    assert any(isinstance(error, StageError) for error in chain)
    assert "y = torch.cos(x)" in str(caught.value)


@pytest.mark.usefixtures("falls_back")
def test_gradients_survive_a_fallback(monkeypatch):
    failing(monkeypatch, RuntimeError("no"))
    layer = torch.nn.Linear(3, 2)
    compiled = flambeau.compile(layer)
    x = torch.randn(4, 3)
    with pytest.warns(FlambeauWarning):
        compiled(x).square().sum().backward()
    ours = layer.weight.grad.clone()
    layer.weight.grad = None
    layer(x).square().sum().backward()
    assert torch.equal(ours, layer.weight.grad)


@pytest.mark.parametrize(
    ("error", "stage"),
    [
        (flambeau_prims.PrimError("x"), "prims"),
        (flambeau_aot.AotError("x"), "aot"),
        (flambeau_inductor.CompilerNotFound("x"), "inductor"),
        (KeyError("x"), "aot"),
    ],
)
def test_who_failed(error, stage):
    assert stage_of(error, "aot") == stage


def test_the_innermost_cause_that_has_a_stage_counts():
    outer = RuntimeError("outer")
    outer.__cause__ = flambeau_prims.PrimError("inner")
    assert stage_of(outer, "aot") == "prims"


def test_an_exception_of_the_program_is_not_a_failure():
    def raises(x):
        if x.ndim == 1:
            raise ValueError("the program's own")
        return x

    compiled = flambeau.compile(raises)
    with pytest.raises(ValueError, match="the program's own"):
        compiled(torch.randn(3))


WRITES = {
    "add_": lambda a, b: a.add_(b),
    "mul_": lambda a, b: a.mul_(b),
    "copy_": lambda a, b: a.copy_(b),
    "addcmul_": lambda a, b: a.addcmul_(b, b),
    "[:]": lambda a, b: a.__setitem__(slice(None), b * 1),
    "[1:]": lambda a, b: a.__setitem__(slice(1, None), b[:-1]),
    "lists": lambda a, b: torch._foreach_add_([a], [b]),
    "both": lambda a, b: (a.add_(1), b.mul_(2)),
    "reduced": lambda a, b: a.add_(b.sum()),
    "transposed": lambda a, b: a.t_().add_(b),
}
LAYOUTS = {
    "apart": lambda t: (t[:4], t[4:8]),
    "the same": lambda t: (t[:4], t[:4]),
    "shifted": lambda t: (t[:4], t[1:5]),
    "interleaved": lambda t: (t[::2], t[1::2]),
    "spread": lambda t: (t[:1].expand(4), t[4:8]),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.filterwarnings("ignore::flambeau.errors.FlambeauWarning")
def test_arguments_that_share_memory_at_a_later_call(write):
    """Whatever cannot be compiled again runs eagerly, and raises what eager raises."""

    def program(a, b):
        WRITES[write](a, b)
        return a * 2 + b

    def outcome(call, layout):
        memory = torch.arange(8.0)
        try:
            result = call(*LAYOUTS[layout](memory))
        except Exception as error:
            return type(error), str(error), memory.tolist()
        return result.tolist(), memory.tolist()

    for first in LAYOUTS:
        compiled = flambeau.compile(program, backend="aot_eager")
        for layout in (first, *LAYOUTS, first):
            expected, given = outcome(program, layout), outcome(compiled, layout)
            assert given == expected, (first, layout)


@pytest.mark.usefixtures("falls_back")
def test_a_graph_that_fails_at_a_later_call_is_counted(monkeypatch):
    def program(a, b):
        a.add_(b)
        return a * 2

    compiled = flambeau.compile(program, backend="aot_eager")
    memory = torch.arange(8.0)
    compiled(memory[:4], memory[4:])
    of_compile = sys.modules["flambeau_aot.compile"]
    monkeypatch.setattr(of_compile, "trace", _fails)
    for _ in range(2):
        same, other = torch.arange(8.0), torch.arange(8.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = compiled(same[:4], same[:4])
        assert torch.equal(result, program(other[:4], other[:4])) and torch.equal(same, other)
    (fault,) = flambeau.report(compiled).faults
    assert fault.kind == "KeyError" and len(flambeau.report(compiled).fallbacks) == 1


def _fails(*args, **kwargs):
    raise KeyError("inside")


KINDS = {
    "coo": lambda x: x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((2, 2)),
    "bsc": lambda x: x.to_sparse_bsc((2, 2)),
    "mkldnn": lambda x: x.to_mkldnn(),
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_inputs_of_no_plain_memory_are_refused_by_name(kind):
    def program(x, y):
        return (x.to_dense() if x.layout != torch.strided else x.dequantize()) * y

    compiled = flambeau.compile(program)
    x, y = KINDS[kind](torch.eye(4)), torch.full((4, 4), 3.0)
    assert torch.equal(compiled(x, y), program(x, y))
    report = flambeau.report(compiled)
    assert not report.internal_errors
    assert all(getattr(each.error, "id", "") for each in report.fallbacks)


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        RUNS.append(1)
        return grad + 1


RUNS: list[int] = []
HISTORIES = {
    "leaf": lambda x: x,
    "torch's": lambda x: x.cos(),
    "a user's": lambda x: Own.apply(x),
    "behind torch's": lambda x: Own.apply(x.exp()).cos(),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("first", HISTORIES)
@pytest.mark.filterwarnings("ignore::flambeau.errors.FlambeauWarning")
def test_what_a_later_call_refuses_runs_eagerly(first, dynamic):
    """A result that does not depend on an input leads to no derivative of a user's behind it."""

    def program(a, b):
        return a * b, b.exp()

    def outcome(call, history, asked):
        RUNS.clear()
        x, y = (torch.tensor([0.3, 0.7]).requires_grad_() for _ in range(2))
        results = call(HISTORIES[history](x), y)
        results[asked].sum().backward()
        return [x.grad, y.grad, len(RUNS)]

    compiled = flambeau.compile(program, backend="aot_eager", dynamic=dynamic)
    for history in (first, *HISTORIES, first):
        for asked in (0, 1):
            expected, given = (outcome(f, history, asked) for f in (program, compiled))
            torch.testing.assert_close(given, expected)
