"""Slices and extremes of open sizes, where which answer holds differs from call to call."""

import types
from collections.abc import Callable
from typing import Any

import flambeau_capture as capture
import pytest
import torch

BOUNDS = [-9, -5, -1, 0, 1, 4, 9]
SLICES = [f"{a}:{b}" for a in ["", *BOUNDS] for b in ["", *BOUNDS]]
SIZES = (8, 6, 3, 12, 2, 5, 4, 9, 10)


def _compiled(program: Callable[..., Any], **choices: Any) -> tuple[Callable[..., Any], list[Any]]:
    graphs: list[Any] = []

    def backend(module: Any, example_inputs: Any) -> Any:
        graphs.append(module)
        return module.forward

    return capture.compile(program, backend=backend, **choices), graphs


@pytest.mark.parametrize("key", SLICES)
def test_a_slice_is_left_open_once_it_was_cut_off(key: str) -> None:
    program = eval(f"lambda x: (x[{key}], x[:, ..., {key}] * 2, x[None, {key}, 0])")
    compiled, graphs = _compiled(program)
    for size in SIZES:
        x = torch.arange(float(size * size)).reshape(size, size)
        for given, wanted in zip(compiled(x), program(x), strict=True):
            assert torch.equal(given, wanted) and given.stride() == wanted.stride(), (key, size)
    # each bound is decided once, and open from the second on; sizes of results are 0 or 1 besides
    assert len(graphs) <= 7, key


@pytest.mark.parametrize("key", ["-5:", ":-5", "3:", ":7"])
def test_gradients_of_a_slice_left_open(key: str) -> None:
    program = eval(f"lambda x: (x[{key}] * 3).sin().sum() + x.sum()")
    compiled, _ = _compiled(program)
    for size in SIZES:
        one = torch.randn(size, requires_grad=True)
        other = one.detach().clone().requires_grad_()
        program(one).backward()
        compiled(other).backward()
        torch.testing.assert_close(other.grad, one.grad)


class Window:
    """Keys of the last calls, as a decoder keeps them."""

    def __init__(self) -> None:
        self.keys = torch.zeros(1, 0)
        self.seen = 0

    def last(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += x.shape[1]
        keys = torch.cat([self.keys, x], 1)
        self.keys = keys[:, -5:]
        return keys.cumsum(1) + max(self.seen - 6, 0) + min(4, self.seen)


def test_what_a_frame_grows_is_left_open_from_its_first_graph_on() -> None:
    compiled, graphs = _compiled(Window.last)
    one, other = Window(), Window()
    for _ in range(12):
        x = torch.randn(1, 1)
        assert torch.equal(compiled(one, x), other.last(x))
        assert torch.equal(one.keys, other.keys) and one.seen == other.seen
    assert len(graphs) <= 4  # of 0, 1 and 2 are results of another form


class Kept:
    """The last five along a dimension: a part of a longer tensor, as long in each call."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.keys = torch.zeros([0 if each == dim else 2 for each in range(3)])

    def narrowed(self, x: torch.Tensor) -> torch.Tensor:
        keys = torch.cat([self.keys, x], self.dim)
        length = keys.shape[self.dim]
        self.keys = keys.narrow(self.dim, max(length - 5, 0), min(length, 5))
        return keys.cumsum(self.dim)

    def sliced(self, x: torch.Tensor) -> torch.Tensor:
        keys = torch.cat([self.keys, x], self.dim)
        self.keys = keys.movedim(self.dim, 0)[-5:].movedim(0, self.dim)
        return keys.cumsum(self.dim)


@pytest.mark.parametrize("name", ["narrowed", "sliced"])
@pytest.mark.parametrize("dim", range(3))
def test_strides_of_a_part_that_is_kept_are_open(name: str, dim: int) -> None:
    compiled, graphs = _compiled(getattr(Kept, name))
    one, other = Kept(dim), Kept(dim)
    for length in (3, 1, 1, 1, 1, 1, 1, 2, 4, 9, 1, 1, 2):
        x = torch.randn([length if each == dim else 2 for each in range(3)])
        assert torch.equal(compiled(one, x), getattr(other, name)(x))
        assert torch.equal(one.keys, other.keys) and one.keys.stride() == other.keys.stride()
    assert len(graphs) <= 3  # of 3, of 1, and of any length


def test_an_extreme_follows_python() -> None:
    def program(x: torch.Tensor, n: int) -> tuple[torch.Tensor, int, int]:
        return x + max(n, 7, x.shape[0]), min(n, 7), max(3 - n, 0)

    compiled, graphs = _compiled(program)
    for size, n in ((4, 9), (8, 3), (20, 30), (7, 7), (6, -2), (3, 100), (9, 8), (5, 6)):
        given, wanted = compiled(torch.ones(size), n), program(torch.ones(size), n)
        assert torch.equal(given[0], wanted[0]) and given[1:] == wanted[1:], (size, n)
    assert len(graphs) <= 5


def test_what_comes_out_the_same_stays_a_constant() -> None:
    compiled, graphs = _compiled(lambda x: x[:4])
    for size in (8, 9, 20):
        compiled(torch.ones(size))
    assert graphs[-1].graph.output_node().args[0][0].meta["val"].shape == (4,)


#: branches that only compute numbers; `k` is read after them
BRANCHES = [
    "if {0}:\n        k = n // 2\n    else:\n        k = 3",
    "if {0}:\n        k = n * n - 4\n    elif n > 9:\n        k = n\n    else:\n        k = 2",
    "k = 2\n    if {0}:\n        k = n - 1",
    "k = n - 1 if {0} else 2 * n",
    "k, m = (n, 5) if {0} else (2, n + 1)\n    k = k * m",
    "full = {0}\n    k = chosen(full, n)",
    "k = returned(n) + ({0})",
]
CONDITIONS = ["n > 4", "n >= 6", "n < 5", "n <= 8", "4 < n", "n * 2 > x.shape[1] + 3", "not n > 6"]
_CALLED = """
def chosen(full, n):
    if full:
        return n - 1
    return 4

def returned(n):
    if n > 6:
        small, large = n, 1
    else:
        small, large = 2, n
    return small + 2 * large
"""


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_branch_that_computes_numbers_is_left_open(branch: str, condition: str) -> None:
    scope: dict[str, Any] = {"torch": torch}
    text = f"{_CALLED}\ndef program(x):\n    n = x.shape[0]\n    {branch.format(condition)}\n"
    exec(text + "    return x * k, torch.arange(k), k", scope)
    compiled, graphs = _compiled(scope["program"])
    for size in (*SIZES, 7, 11, 3, 6):
        x = torch.randn(size, 7)
        for given, wanted in zip(compiled(x), scope["program"](x), strict=True):
            assert type(given) is type(wanted)
            assert torch.equal(torch.as_tensor(given), torch.as_tensor(wanted)), (text, size)
    # a comparison used as a number is decided, each way
    assert len(graphs) <= (5 if "elif" in branch or "({0})" in branch else 4), text


class Counter:
    """A property that counts how often it is read."""

    reads = 0

    @property
    def value(self) -> int:
        self.reads += 1
        return 3


#: branches of other kinds, which are decided: arms that write, read what writes, raise, or differ
DECIDED = [
    "k = 2\n    if {0}:\n        x += 1",
    "k = 2\n    if {0}:\n        x = x + n\n        k = n",
    "k = counter.value if {0} else n",
    "k = n\n    if {0}:\n        k = counter.value + counter.reads",
    "k = n // (n - n) if n > 100 else 2\n    k = k if {0} else n",
    "k = 2.5 if {0} else n",
    "k = None if {0} else n\n    k = 7 if k is None else k",
    "if {0}:\n        k = 4\n    if not ({0}):\n        k = n",
    "k = n\n    if {0}:\n        del k\n        k = 2",
    "k = -n if {0} else +n\n    k = k if k > 0 else 3 - k",
]


@pytest.mark.parametrize("branch", DECIDED)
@pytest.mark.parametrize("condition", ["n > 4", "n <= 6"])
def test_a_branch_of_another_kind_is_decided(branch: str, condition: str) -> None:
    scope: dict[str, Any] = {"torch": torch}
    text = f"def program(x, counter):\n    n = x.shape[0]\n    {branch.format(condition)}\n"
    exec(text + "    return x * k, k", scope)
    compiled, _ = _compiled(scope["program"])
    one, other = Counter(), Counter()
    for size in (*SIZES, 7, 11, 3, 6):
        given, wanted = torch.ones(size, 3), torch.ones(size, 3)
        answers = compiled(given, one), scope["program"](wanted, other)
        assert torch.equal(answers[0][0], answers[1][0]) and answers[0][1] == answers[1][1], size
        assert torch.equal(given, wanted) and one.reads == other.reads, (text, size)


#: where the answer of a comparison goes; `o` is an object of the program's, `{}` the comparison
LEAVES = {
    "a result": "r = {}",
    "an item": "r = [{}, 0]",
    "a key": "r = {{{}: 1}}",
    "negated": "r = not {}",
    "a number": "r = ({}) + 1",
    "a text": "r = f'{{{}}}'",
    "one of two": "r = ({}) and x.dim() > 0",
    "an attribute": "o.seen = {}; r = 0",
    "through a break": "r = {}; print(end='')",
    "a closure": "r = {}; r = (lambda: r)()",
    "a default": "r = (lambda k={}: k)",
    "chosen by": "r = 3 if {} else 4",
    "an identity": "r = ({}) is True",
}
NUMBERS = {"a counter": "o.n", "a size": "x.shape[0]", "both": "x.shape[0] + o.n"}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("leaves", LEAVES)
def test_the_answer_of_a_comparison_is_the_calls_own(leaves: str, number: str) -> None:
    for relation in ("<", "<=", "==", "!=", ">=", ">"):
        use = LEAVES[leaves].format(f"{NUMBERS[number]} {relation} 4")
        space: dict[str, Any] = {}
        exec(f"def f(x, o):\n    {use}\n    o.n = o.n + 1\n    return x + 1, r", space)
        seen = []
        for program in (space["f"], _compiled(space["f"])[0]):
            o = types.SimpleNamespace(n=2, seen=None)
            seen.append([])
            for size in (2, 3, 4, 5, 3):
                out, r = program(torch.ones(size), o)
                seen[-1].append((out.tolist(), r() if callable(r) else r, o.n, o.seen))
        assert seen[0] == seen[1], (relation, seen)
