"""Spreads of too few elements: eager's kernel warns of them, and fake tensors do not run it.
It is said as often as in eager, and at its line."""

import warnings

import pytest
import torch
from flambeau_capture import compile as capture
from flambeau_capture import explain

X = torch.arange(6.0).reshape(1, 6)
PROGRAMS = (
    "y.std(0)", "y.var(0, unbiased=True)", "torch.std_mean(y, 0)[0]", "torch.var_mean(y, 0)[1]",
    "y[:, :1].std()", "torch.var(y, dim=0, correction=3)", "[y.std(0) for _ in range(2)][1]",
    "torch.std(input=y[0, :1])", "y.var(1, correction=8)", "y.std(0) + y[:, :1].var()",
)  # fmt: skip
SILENT = ("y.std(1)", "y.std(0, unbiased=False)", "y.var(0, correction=0)", "y.std()")


def warned(fn, *args):
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        result = fn(*args)
    return result, [(w.category, str(w.message), w.filename, w.lineno) for w in met]


def program(text):
    names = {"torch": torch}
    source = f"def fn(x):\n    y = x * 2\n    z = {text}\n    return z + 1\n"
    exec(compile(source, "<spread>", "exec"), names)
    return names["fn"]


@pytest.mark.parametrize("text", PROGRAMS + SILENT)
def test_as_often_as_in_eager_and_at_its_line(text):
    fn = program(text)
    compiled = capture(fn, backend="eager")
    for _ in range(3):
        expected, said = warned(fn, X)
        result, met = warned(compiled, X)
        assert met == said and bool(said) == (text in PROGRAMS)
        assert torch.equal(result.nan_to_num(7.0), expected.nan_to_num(7.0))


@pytest.mark.parametrize("text", SILENT)
def test_what_does_not_warn_is_one_graph(text):
    assert not explain(program(text), X).break_reasons
