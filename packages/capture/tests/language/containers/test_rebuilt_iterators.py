"""An iterator that a program has taken items from goes on where it was when it leaves capture."""

import collections
import itertools
import random

import pytest
import torch
from flambeau_capture import disable

MADE = {
    "list": "iter([3, 4, 5])", "tuple": "iter((3, 4, 5))", "str": "iter('abc')",
    "bytes": "iter(b'abc')", "range": "iter(range(3))", "set": "iter({1, 2, 3})",
    "dict": "iter({1: 2, 3: 4, 5: 6})", "values": "iter({1: 2, 3: 4, 5: 6}.values())",
    "items": "iter({1: 2, 3: 4}.items())", "frozen": "iter(frozenset('abc'))",
    "given": "iter(S)", "empty": "reversed({})",
    "default": "reversed(collections.defaultdict(int))",
    "ordered": "iter(collections.OrderedDict(a=1, b=2, c=3))",
    "deque": "iter(collections.deque([3, 4, 5]))", "existing": "iter(D)",
    "reversed": "reversed([3, 4, 5])", "reversed tuple": "reversed((3, 4, 5))",
    "reversed dict": "reversed({1: 2, 3: 4, 5: 6})",
    "reversed keys": "reversed({1: 2, 3: 4, 5: 6}.keys())",
    "reversed values": "reversed({1: 2, 3: 4, 5: 6}.values())",
    "reversed items": "{1: 2, 3: 4, 5: 6}.items().__reversed__()",
    "reversed ordered": "reversed(collections.OrderedDict(a=1, b=2).items())",
    "reversed counter": "reversed(collections.Counter('aab'))",
    "reversed deque": "reversed(collections.deque([3, 4, 5]))",
    "enumerate": "enumerate([3, 4, 5], 2)", "zip": "zip([3, 4, 5], 'ab')",
    "map": "map(str, [3, 4, 5])", "filter": "filter(None, [0, 1, 2, 3])",
    "calls": "iter([3, 4, 5].pop, 3)", "chain": "itertools.chain([3], [4, 5])",
    "count": "itertools.count(3, 2)", "repeat": "itertools.repeat(3, 3)",
    "cycle": "itertools.cycle([3, 4])", "islice": "itertools.islice([3, 4, 5, 6], 1, 4)",
    "accumulate": "itertools.accumulate([3, 4, 5])", "product": "itertools.product('ab', [3, 4])",
    "pairs": "itertools.pairwise([3, 4, 5])", "generator": "(a + 1 for a in [3, 4, 5])",
}  # fmt: skip
#: of these the class is another, once items were taken
OTHER_CLASS = {"cycle", "islice", "accumulate", "product", "pairs"}
LEAVES = {
    "break": "brk()\nR.append([*itertools.islice(it, 6)])",
    "argument": "brk(it)\nR.append([*itertools.islice(it, 6)])",
    "stored": "W['it'] = it",
    "returned": "pass",
}


def program(made, taken, leaves):
    lines = "".join(f"    {line}\n" for line in LEAVES[leaves].splitlines())
    return (
        f"def f(x):\n    R = []\n    it = {MADE[made]}\n"
        f"    for _ in range({taken}): R.append(next(it, None))\n{lines}    return x + 1, R, it"
    )


def outcome(source, by):
    brk = disable(lambda *given: None)
    space = {"collections": collections, "itertools": itertools, "brk": brk, "W": {}}
    space |= {"D": collections.deque([3, 4, 5]), "S": {"a", "b", "c"}}
    exec(compile(source, "<iterators>", "exec"), space)
    call, found = by(space["f"]), []
    for _ in range(2):
        _, told, iterator = call(torch.ones(1))
        found.append((told, [*itertools.islice(iterator, 6)], type(iterator).__name__))
    return found


@pytest.mark.parametrize("made", MADE)
def test_goes_on_where_it_was(made, capture):
    draw = random.Random(made)
    for leaves in draw.sample([*LEAVES], 2):
        source = program(made, draw.choice([0, 1, 2, 9]), leaves)
        ours, theirs = outcome(source, capture), outcome(source, lambda f: f)
        if made in OTHER_CLASS:
            ours, theirs = ([one[:2] for one in each] for each in (ours, theirs))
        assert ours == theirs, source
