"""`warnings.catch_warnings` in captured code: who is warned of what is as in eager.

Generated: filters by what warns inside and after, under filters around the call."""

import itertools
import sys
import types
import warnings

import pytest
import torch
from flambeau_capture.api import compiler_of

FILTERS = {
    "none": "pass",
    "ignore": "warnings.simplefilter('ignore')",
    "ignore users": "warnings.simplefilter('ignore', category=UserWarning)",
    "ignore words": "warnings.filterwarnings('ignore', message='w.*d')",
    "ignore other words": "warnings.filterwarnings('ignore', 'other', UserWarning)",
    "error": "warnings.simplefilter('error')",
    "always": "warnings.simplefilter('always')",
    "last": "warnings.simplefilter('ignore', append=True)",
    "two": "warnings.simplefilter('ignore'); warnings.filterwarnings('always', 'word')",
    "same twice": "warnings.simplefilter('ignore'); warnings.simplefilter('ignore')",
}
INSIDE = {
    "nothing": "y = x.sin()",
    "a warning": "warnings.warn('word')\n        y = x.sin()",
    "another class": "y = x.sin()\n        warnings.warn('word', FutureWarning)",
    "a break": "y = x.sin()\n        print(end='')\n        warnings.warn('word')",
    "a nested one": "with warnings.catch_warnings():\n            warnings.simplefilter('ignore')\n"
    "            warnings.warn('deep')\n        y = x.sin()",
    "an error": "y = x.sin()\n        int('no')",
    "left early": "return x.cos()",
}
MADE = {"plain": "warnings.catch_warnings()", "action": "warnings.catch_warnings(action='ignore')"}


def function(made, filters, inside):
    text = (
        f"def fn(x):\n    try:\n      with {MADE[made]}:\n        {FILTERS[filters]}\n"
        f"        {INSIDE[inside]}\n    except ValueError:\n        y = x * 3\n"
        "    warnings.warn('after')\n    return y + 1\n"
    )
    space = {"warnings": warnings, "__name__": "program"}
    exec(compile(text, "<filters>", "exec"), space)
    return space["fn"]


def seen(fn, around):
    found = []
    before = [*warnings.filters]
    with warnings.catch_warnings():
        warnings.simplefilter(around)
        for _ in range(3):
            try:
                end = fn(torch.ones(2)).tolist()
            except Warning as error:
                end = type(error), str(error)
            found.append(end)
    assert warnings.filters == before
    return found


def shown(fn, around, capsys):
    found = seen(fn, around)
    lines = [line for line in capsys.readouterr().err.splitlines() if "<filters>" in line]
    return found, lines


@pytest.mark.sweep(6)
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("inside", INSIDE)
def test_who_is_warned(capture, capsys, made, inside, monkeypatch):
    if made == "action" and sys.version_info < (3, 11):
        pytest.skip("catch_warnings takes no action before Python 3.11")
    shows = types.FunctionType(write.__code__, vars(warnings))  # as Python's own is
    monkeypatch.setattr(warnings, "_showwarnmsg_impl", shows)
    monkeypatch.setattr(warnings, "showwarning", warnings._showwarning_orig)
    for filters, around in itertools.product(FILTERS, ("default", "always", "ignore")):
        wanted = shown(function(made, filters, inside), around, capsys)
        compiled = capture(function(made, filters, inside))
        assert shown(compiled, around, capsys) == wanted, (filters, around)
        whole = inside in ("nothing", "left early") and filters != "last"
        if whole and around == "ignore":
            assert all("catch" not in b.what for b in compiler_of(compiled).records.breaks)


def write(message):
    print(f"{message.filename}:{message.lineno}: {message.message}", file=sys.stderr)


def test_one_graph(capture, backend):
    def fn(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("not seen", stacklevel=1)
            return x.sin() + 1

    compiled = capture(fn, nopython=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2).sin() + 1)
    assert not said and len(backend) == 1
