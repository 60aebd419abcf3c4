"""`in` of sets of functions and classes, and of iterators, which it moves on."""

import pytest
import torch
from flambeau_capture.api import compiler_of


def own(x):
    return x


FROZEN = frozenset([torch.add, own, int, "name", torch.Tensor.mul, torch.ops.aten.sin])
MUTABLE = {torch.add, own, int, "name", torch}
MEMBERS = [torch.add, torch.sub, own, len, int, float, "name", torch.Tensor.mul, torch.ops.aten.sin]


@pytest.mark.parametrize("members", ["FROZEN", "MUTABLE"])
def test_of_a_set_of_functions(capture, members):
    held = globals()[members]

    def fn(x, f):
        return x + 1 if f in held else x - 1

    x = torch.ones(2)
    for some in (MEMBERS[:5], MEMBERS[5:]):
        compiled = capture(fn)
        for member in some:
            assert torch.equal(compiled(x, member), fn(x, member)), member
        assert not compiler_of(compiled).records.breaks


def test_a_set_that_changes(capture):
    held = {torch.add}

    def fn(x):
        return x + 1 if own in held else x - 1

    compiled, x = capture(fn), torch.ones(2)
    for change in (lambda: None, lambda: held.add(own), lambda: held.remove(own), held.clear):
        change()
        assert torch.equal(compiled(x), fn(x))


ITERATORS = {
    "list": "iter([1, 2, 3, 2])",
    "generator": "(i for i in (1, 2, 3, 2))",
    "zip": "zip([1, 2], [3, 4])",
    "map": "map(lambda i: i + 1, [0, 1, 2, 3])",
    "items": "iter({'a': 1, 'b': 2}.items())",
    "reversed": "reversed([1, 2, 3])",
    "enumerate": "enumerate('ab')",
}
ITEMS = ["2", "9", "(1, 3)", "('b', 2)", "(1, 'b')", "None"]


@pytest.mark.parametrize("iterator", ITERATORS)
def test_of_an_iterator(capture, iterator):
    for item in ITEMS:
        space = {}
        text = f"def fn(x):\n it = {ITERATORS[iterator]}\n there = {item} in it\n"
        text += f" again = {item} in it\n return x + 1, there, again, list(it), 2 not in it\n"
        exec(text, space)
        compiled = capture(space["fn"])
        ours, theirs = compiled(torch.ones(2)), space["fn"](torch.ones(2))
        assert ours[1:] == theirs[1:], item
        assert not compiler_of(compiled).records.breaks


def test_of_an_iterator_of_the_programs_own(capture):
    def fn(x, it):
        return x + 1, 2 in it

    compiled, ours, theirs = capture(fn), iter([1, 2, 3]), iter([1, 2, 3])
    for _ in range(2):
        assert compiled(torch.ones(1), ours)[1] == fn(torch.ones(1), theirs)[1]
    assert list(ours) == list(theirs)
