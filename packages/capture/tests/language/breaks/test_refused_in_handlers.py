"""An operator that refuses its arguments where the program handles it: one graph, eager's words."""

import contextlib

import flambeau_capture
import pytest
import torch
from flambeau_capture.api import compiler_of

REFUSED = {
    "sizes of a product": lambda x: x @ torch.ones(7, 7),
    "a view": lambda x: x.view(5, -1),
    "a view of what is transposed": lambda x: x.t().view(-1),
    "broadcasting": lambda x: x + torch.ones(7),
    "a dimension": lambda x: x.sum(4),
    "an index": lambda x: x[:, 9],
    "too many indices": lambda x: x[0, 0, 0],
    "a cat": lambda x: torch.cat([x, torch.ones(3)]),
    "dtypes": lambda x: torch.nn.functional.linear(x, torch.ones(2, 3, dtype=torch.float64)),
    "a number": lambda x: torch.full((2,), "a"),
    "an argument": lambda x: x.clamp("low"),
    "a method's name": lambda x: x.to("nowhere"),
    "a write": lambda x: x.clone().add_(torch.ones(4, 2, 3)),
    "a convolution": lambda x: torch.conv1d(x, torch.ones(1, 1, 1)),
    "a loss": lambda x: torch.nn.functional.nll_loss(x, torch.zeros(5, dtype=torch.long)),
    "a dtype of a square root": lambda x: torch.bitwise_and(x, x),
    "a leaf": lambda x: torch.ones(3, requires_grad=True).add_(1),
}


def caught(refused, x):
    try:
        return refused(x)
    except Exception:
        return x * 3


def told(refused, x):
    try:
        return refused(x)
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        return x * 2, type(error).__name__, str(error), len(error.args)


def suppressed(refused, x):
    with contextlib.suppress(Exception):
        x = x + 1
        x = refused(x)
    return x - 1


def of_another_class(refused, x):
    try:
        try:
            return refused(x)
        except KeyError:
            return x
        finally:
            x = x + 1
    except Exception as error:
        return x, str(error.__context__)


def in_a_loop(refused, x):
    for form in (refused, torch.sin, torch.cos):
        try:
            return form(x)
        except Exception:
            x = x + 1
    return x


HANDLERS = [caught, told, suppressed, of_another_class, in_a_loop]


def assert_same(found, expected):
    found, expected = (x if isinstance(x, tuple) else (x,) for x in (found, expected))
    torch.testing.assert_close(found[0], expected[0])
    assert found[1:] == expected[1:]


@pytest.mark.parametrize("name", REFUSED)
def test_handlers_get_what_eager_raises_in_one_graph(name):
    for handler in HANDLERS:

        def program(x, handler=handler):
            return handler(REFUSED[name], x)

        x = torch.arange(6.0).reshape(2, 3)
        compiled = flambeau_capture.compile(program, backend="eager")
        expected, drawn = program(x), torch.get_rng_state()
        assert_same(compiled(x), expected)
        assert_same(compiled(x), expected)
        assert torch.equal(torch.get_rng_state(), drawn)
        records = compiler_of(compiled).records
        assert (len(records.graphs), records.breaks) == (1, []), handler.__name__


@pytest.mark.parametrize("name", REFUSED)
def test_without_a_handler_the_program_raises_it(name):
    x = torch.arange(6.0).reshape(2, 3)
    with pytest.raises(Exception) as expected:
        REFUSED[name](x)
    with pytest.raises(type(expected.value)) as found:
        flambeau_capture.compile(lambda x: REFUSED[name](x * 1), backend="eager")(x)
    assert str(found.value) == str(expected.value)


def test_what_is_refused_by_a_function_of_the_programs_is_not_tried_apart():
    calls = []

    @torch.library.custom_op("tests_refused::checked", mutates_args=())
    def checked(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        raise RuntimeError("no")

    @checked.register_fake
    def _(x):
        raise RuntimeError("none")

    def program(x):
        try:
            return checked(x)
        except RuntimeError as error:
            return x, str(error)

    x = torch.ones(3)
    assert_same(flambeau_capture.compile(program)(x), (x, "no"))
    assert calls == [1]


@pytest.mark.parametrize("symbol", ["+", "-", "@", "%", "<<", "|", "<"])
def test_operators_refuse_tensors_of_open_sizes_in_one_graph(symbol):
    space: dict = {}
    wrong = ", ".join(
        f"attempt(lambda: ({left}) {symbol} ({right}))"
        for left, right in (("x", "None"), ("x", "x"), ("x > 0", "x < 1"), ("x", "b'a'"))
    )
    exec(f"def program(x, attempt): return x + 1, {wrong}", space)

    def attempt(run):
        try:
            run()
        except Exception as error:
            return type(error).__name__, str(error)
        return None

    compiled = flambeau_capture.compile(space["program"], backend="eager")
    for size in (3, 4, 5):
        x = torch.ones(size)
        assert_same(compiled(x, attempt), space["program"](x, attempt))
    records = compiler_of(compiled).records
    assert (len(records.graphs), records.breaks) == (2, [])
