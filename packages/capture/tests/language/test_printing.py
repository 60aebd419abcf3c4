"""What a compiled function prints is what eager prints, in its order and among its other effects.

Generated: arguments of every kind, with every option of `print`, to every kind of file.
"""

import contextlib
import io
import itertools
import sys

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.breaks import Unsupported


class Own:
    def __init__(self):
        self.got = []

    def write(self, text):
        self.got.append(text)

    def flush(self):
        self.got.append("flushed")

    def __str__(self):
        return f"own{len(self.got)}"


class Reader(io.StringIO):
    """A stream of the program's, which sees what is printed as it comes."""


ARGUMENTS = ["", "t", "n", "'a', n", "[n, 'b'], (1,), {'k': n}", "own", "t, t + n", "*[1, n]",
             "f'{n:03}'", "t.sum().item()", "t.shape, t.dtype", "None, True, 1.5, Own, len",
             "u * 1"]  # fmt: skip
OPTIONS = ["", "sep='|'", "end=''", "sep=None, end=None", "flush=True", "sep='', end='!', flush=1",
           "sep=3", "end=b''"]  # fmt: skip
FILES = ["", "file=None", "file=own", "file=io.StringIO()", "file=sys.stdout", "file=3"]
AROUND = """def f(t, n, own, u):
    own.got.append(n)
    {call}
    t.add_(1)
    {call}
    own.got.append(t.shape[0])
    return t * 2
"""


def outcome(fn, n, stream):
    own, printed = Own(), stream()
    u = torch.ones(2, requires_grad=True)
    with contextlib.redirect_stdout(printed):
        try:
            found = str(fn(torch.ones(2), n, own, u))
        except Exception as error:
            found = type(error), str(error)
    return found, own.got, printed.getvalue()


def function(call):
    world = dict(globals())
    exec(AROUND.format(call=call), world)
    return world["f"]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("options", OPTIONS)
def test_every_argument(options, file):
    """With a fourth of the options and files; with all with FLAMBEAU_SWEEPS=1."""
    for given in ARGUMENTS:
        fn = function(f"print({', '.join(part for part in (given, options, file) if part)})")
        compiled = optimize(lambda gm, _: gm.forward)(fn)
        for n in (3, 4, 5):
            assert outcome(compiled, n, io.StringIO) == outcome(fn, n, io.StringIO), (given, n)


@pytest.mark.parametrize("given", [each for each in ARGUMENTS if "u" not in each])
def test_in_one_graph(given):
    fn = function(f"print({given})")
    expected = outcome(fn, 3, io.StringIO)
    assert (
        outcome(optimize(lambda gm, _: gm.forward, nopython=True)(fn), 3, io.StringIO) == expected
    )


@pytest.mark.parametrize("call", ["print(u * 1)", "print([t])", "print(t.tolist())"])
def test_what_a_graph_does_not_print(call):
    """A derivative's name is eager's alone; a list of tensors, and data, are texts of what runs."""
    fn = function(call)
    with pytest.raises(Unsupported):
        optimize(lambda gm, _: gm.forward, nopython=True)(fn)(
            torch.ones(2), 3, Own(), torch.ones(2, requires_grad=True)
        )
    compiled = optimize(lambda gm, _: gm.forward)(fn)
    assert outcome(compiled, 3, io.StringIO) == outcome(fn, 3, io.StringIO)


def test_a_stream_of_the_program_sees_every_line_when_it_comes():
    """Its class may look at anything: the graph ends, and each line is printed where it is."""
    seen = []

    class Watching(Reader):
        def write(self, text):
            seen.append((text, len(STATE)))
            return super().write(text)

    def fn(t):
        STATE.append(1)
        print("one")
        STATE.append(2)
        return t + 1

    compiled = optimize(lambda gm, _: gm.forward)(fn)
    for run in (fn, compiled, compiled):
        STATE.clear()
        seen.clear()
        with contextlib.redirect_stdout(Watching()):
            run(torch.ones(2))
        assert seen == [("one", 1), ("\n", 1)]


STATE: list = []


def test_what_is_printed_before_an_error_is_printed():
    def fn(t, n):
        for i in itertools.count():
            print(i, file=sys.stdout)
            t = t + 1
            if i == n:
                raise ValueError(n)

    compiled = optimize(lambda gm, _: gm.forward)(fn)
    for run in (fn, compiled, compiled):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), pytest.raises(ValueError, match="2"):
            run(torch.ones(2), 2)
        assert printed.getvalue() == "0\n1\n2\n"
