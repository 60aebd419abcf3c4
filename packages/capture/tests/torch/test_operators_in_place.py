"""`left symbol= right` with tensors: which writes to `left`, and what a refusal says."""

import flambeau_capture
import pytest
import torch

SYMBOLS = ["+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>"]
LEFT = {
    "floats": lambda: torch.arange(3.0),
    "integers": lambda: torch.arange(3),
    "booleans": lambda: torch.tensor([True, False, True]),
    "a number": lambda: 2,
    "a list": lambda: [1, 2],
}
RIGHT = {
    "floats": lambda: torch.ones(3),
    "integers": lambda: torch.ones(3, dtype=torch.long),
    "a matrix": lambda: torch.ones(3, 3),
    "a number": lambda: 2,
    "nothing": lambda: None,
    "text": lambda: "a",
}


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_what_another_name_sees_and_what_is_said(symbol):
    space = {}
    exec(
        "def program(left, right, x):\n"
        "    x = x + 1\n"
        "    other = left\n"
        "    try:\n"
        f"        left {symbol}= right\n"
        "    except Exception as error:\n"
        "        return type(error).__name__, str(error), left, x\n"
        "    return left, other, left is other, x\n",
        space,
    )
    program, wrong = space["program"], []
    for left in LEFT:
        for right in RIGHT:
            if not {left, right} - {"a number", "a list", "nothing", "text"}:
                continue
            expected = program(LEFT[left](), RIGHT[right](), torch.ones(1))
            compiled = flambeau_capture.compile(program, backend="eager", dynamic=False)
            found = compiled(LEFT[left](), RIGHT[right](), torch.ones(1))
            if str(found) != str(expected):
                wrong.append((left, right, expected, found))
    assert not wrong, wrong[0]


@pytest.mark.parametrize("caught", [RuntimeError, NotImplementedError, ValueError])
def test_a_handler_gets_what_no_kernel_is_for(capture, caught):
    """Fake tensors take any dtype; a call that has written is not run again without capture."""

    def program(a, name):
        b = a * 2
        try:
            getattr(a, name)(*[b][: name != "bitwise_not_"])
        except caught as error:
            return type(error).__name__, str(error), a + b
        return a * b

    def outcome(run, name):
        a = torch.ones(3)
        try:
            return str(run(a, name)), a.tolist()
        except NotImplementedError as error:
            return str(error), a.tolist()

    for name in ("__iand__", "__ior__", "bitwise_xor_", "bitwise_not_", "lcm_", "add_"):
        assert outcome(capture(program), name) == outcome(program, name)


WRONG_DTYPES = {
    "masked_fill_": lambda a, b: a.masked_fill_(b, 1.0),
    "index_fill_": lambda a, b: a.index_fill_(0, b, 1.0),
    "index_add_": lambda a, b: a.index_add_(0, b, b),
    "index_copy_": lambda a, b: a.index_copy_(0, b, b),
    "put_": lambda a, b: a.put_(b, b),
    "index_put_": lambda a, b: a.index_put_((b,), b),
    "setitem": lambda a, b: a.__setitem__(b, 1.0),
}


@pytest.mark.parametrize("name", WRONG_DTYPES)
def test_a_handler_gets_what_no_index_of_that_dtype_is_taken_for(capture, name):
    def program(a, b):
        try:
            WRONG_DTYPES[name](a, b)
        except (RuntimeError, IndexError) as error:
            return type(error).__name__, str(error), a + b
        return a * b

    compiled = capture(program)
    for size in (3, 4, 5):
        given = torch.ones(size), torch.zeros(size)
        assert str(compiled(*given)) == str(program(*given))


def test_a_view_whose_base_was_written_to_unrecorded_is_written_to(capture):
    """Autograd knows no history of such a view, and says so when it is asked."""

    def f(x, base):
        with torch.no_grad():
            base[::2] += 2
        view = x.view(x.dtype)
        view[::2] *= x.add(1)
        return view

    def given():
        base = torch.ones(2, 2, requires_grad=True) * 1
        return base[1:], base

    assert torch.equal(capture(f)(*given()), f(*given()))
