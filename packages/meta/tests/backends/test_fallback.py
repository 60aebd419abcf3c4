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
