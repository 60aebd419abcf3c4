"""Compiling ends: below a frame at its limit, and in a program that never settles."""

import functools
import warnings

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of
from flambeau_capture.errors import CaptureWarning

CALLS = 40


def counters(fn):
    return compiler_of(fn).cache.counters()


class State:
    def __init__(self):
        self.text = ""


def decorated(fn):
    @functools.wraps(fn)
    def wrapper(*args):
        return fn(*args)

    return wrapper


class Method:
    def __init__(self, fn):
        self.fn = fn

    def run(self, *args):
        return self.fn(*args)


class Forward(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


WRAPPINGS = {
    "a decorator": decorated,
    "a method": lambda fn: Method(fn).run,
    "a module": Forward,
    "a lambda": lambda fn: lambda *args: fn(*args),
}


@pytest.mark.filterwarnings("ignore::flambeau_capture.errors.CaptureWarning")
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_below_a_frame_at_its_limit_nothing_is_captured(backend, wrapping, depth):
    def growing(x, state):
        state.text += "a"
        return x + len(state.text)

    fn = growing
    for _ in range(depth):
        fn = WRAPPINGS[wrapping](fn)
    state, fn = State(), optimize(backend, raise_internal_errors=True)(fn)
    for turn in range(CALLS):
        assert torch.equal(fn(torch.ones(2), state), torch.ones(2) + turn + 1)
    assert len(backend) == 8
    assert counters(fn)["conversions"] <= 8 + 2  # a module's own call is looked at


def test_a_compiled_function_below_it_stays_compiled(capture, backend):
    ran = []
    inner = optimize(lambda module, inputs: lambda *args: ran.append(1) or module(*args))(
        lambda x: x * 2
    )

    def outer(x, text):
        return inner(x) + len(text)

    fn = capture(outer, cache_size_limit=1)
    with pytest.warns(CaptureWarning, match="all that it calls"):
        for turn in range(5):
            assert torch.equal(fn(torch.ones(2), "a" * turn), torch.ones(2) * 2 + turn)
    assert len(ran) >= 4  # whatever becomes of the outer function


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("count", [3, 12, 20])
def test_places_to_go_on_use_up_nobodys_limit(capture, count, depth):
    """As many functions to go on in as there are breaks, each compiled once."""
    body = "".join(f"    x = x + {n}\n    print(end='')\n" for n in range(count))
    names = {}
    exec(f"def f0(x):\n{body}    return x * 2\n", names)
    for level in range(1, depth + 1):
        exec(f"def f{level}(x):\n    return f{level - 1}(x.sin()) + {level}\n", names)
    plain = names[f"f{depth}"]
    fn = capture(plain, cache_size_limit=2)
    for _ in range(3):
        assert torch.equal(fn(torch.ones(2)), plain(torch.ones(2)))
        compiled = counters(fn)["conversions"]
    assert counters(fn)["limit_reached"] == 0
    assert torch.equal(fn(torch.ones(2)), plain(torch.ones(2)))
    assert counters(fn)["conversions"] == compiled


@pytest.mark.filterwarnings("ignore::flambeau_capture.errors.CaptureWarning")
def test_recursion_has_its_limit(capture):
    """How deep a call is when it breaks is one place, however deep."""

    def deep(x, depth):
        x = deep(x + 1, depth - 1) if depth else x
        print(end="")
        return x * 2

    fn = capture(deep)
    for depth in range(30):
        assert torch.equal(fn(torch.ones(2), depth), deep(torch.ones(2), depth))
    assert counters(fn)["conversions"] < 100


class Ticking:
    def __init__(self, seconds):
        self.now, self.seconds = 0.0, seconds

    def __call__(self):
        self.now += self.seconds
        return self.now


@pytest.mark.parametrize("seconds", [0.001, 1.0, 100.0])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_program_that_compiles_in_call_after_call_ends(backend, seconds, every):
    """No function is at its limit: what counts is how often, and the time."""
    fn = optimize(backend, cache_size_limit=64, compile_seconds=10.0)(lambda x, text: x + len(text))
    compiler = compiler_of(fn)
    compiler.converter.clock = Ticking(seconds)
    told = []
    for turn in range(60):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            text = "a" * (turn // every)
            assert torch.equal(fn(torch.ones(2), text), torch.ones(2) + len(text))
        told += [(turn, str(one.message)) for one in caught]
    if every == 3 or seconds < 0.1:
        assert not told and len(backend) == 60 // every
        return
    ((turn, text),) = told
    assert turn < 34 and len(backend) == 16
    assert "compile_seconds" in text and "'text'" in text and "Try: " in text
    assert compiler.records.settled == [text]
    compiler.reset()
    fn(torch.ones(2), "another")
    assert len(backend) == 17


@pytest.mark.filterwarnings("ignore::flambeau_capture.errors.CaptureWarning")
def test_equal_code_made_in_every_call_ends(capture, backend):
    def calling(x):
        names = {}
        exec("def made(x):\n    return x + 1\n", names)
        return names["made"](x) * 2

    fn = capture(calling)
    for _ in range(CALLS):
        assert torch.equal(fn(torch.ones(2)), torch.full((2,), 4.0))
    assert len(backend) <= 18
    before = counters(fn)["conversions"]
    fn(torch.ones(2))
    assert counters(fn)["conversions"] == before


@pytest.mark.parametrize(
    ("values", "is_number"),
    [
        (lambda turn: f"text{turn}", False),
        (lambda turn: str(turn).encode(), False),
        (lambda turn: range(turn), False),
        (lambda turn: complex(turn, 1), True),
        (lambda turn: 0.5 + turn, True),
    ],
    ids=["str", "bytes", "range", "complex", "float"],
)
def test_the_hint_is_of_the_kind_of_the_value(backend, values, is_number):
    def f(x, value):
        return x + 1 if hash(value) == 0 else x - 1

    compiled = optimize(backend, dynamic=False)(f)
    with pytest.warns(CaptureWarning) as told:
        for turn in range(CALLS):
            compiled(torch.ones(2), values(turn))
    text = str(told[0].message)
    assert ("pass the number as a tensor" in text) is is_number, text
