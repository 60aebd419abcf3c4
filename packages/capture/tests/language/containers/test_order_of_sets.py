"""The order of a set is the one that Python's own set has after the same calls: what it iterates
over, what `pop` takes. Generated: random calls on new sets and on the program's own, of what has a
hash that is known and of objects, in processes with several seeds of hashes of strings.
"""

import os
import random
import subprocess
import sys

import pytest
import torch

ITEMS = (
    "1", "2.5", "'a'", "'b'", "'cd'", "(1, 'a')", "('b', (2,))", "None", "-1", "17", "33", "8",
    "16", "int", "str", "'k%d' % n", "n", "Own(n)", "Own(3)", "(Own(3), 'a')",
)  # fmt: skip
CALLS = (
    "{s}.add({i})", "{s}.discard({i})", "{s}.update([{i}, {j}])", "{s}.update({o})",
    "{s}.update(dict.fromkeys({o}))", "{s} |= {o}", "{s} &= {o} | {{ {i}, {j} }}", "{s} -= {o}",
    "{s} ^= {{ {i}, {j} }}", "{s}.difference_update([{i}], {o})", "{s}.update(range({n}))",
    "{s}.intersection_update({s}, {s})", "{s}.clear()", "{s}.__init__([{i}, {j}])",
    "seen.append({s}.pop() if {s} else 0)", "seen += {s}", "{s} = {s} | {o}",
    "{s} = {s}.copy()", "{s} = set({o})", "{s} = {s} - {o}", "{s} = set(frozenset({s}))",
    "{s} = {{v for v in {s}}}", "seen.append({i} in {s})", "{s} = {s} ^ {o}",
    "{s}.difference_update(list({s})[:{n}])", "{s}.discard(next(iter({s}), None))",
)  # fmt: skip


class Own:
    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return self.n * 8

    def __eq__(self, other):
        return isinstance(other, Own) and other.n == self.n

    def __repr__(self):
        return f"Own({self.n})"


class Sub(set):
    def add(self, item):
        raise TypeError(item)

    update = discard = clear = add


def program(seed):
    """A function of a tensor, a number and two sets, which are left changed."""
    draw = random.Random(seed)
    lines = ["def f(x, n, s, o):", "    seen, u = [], {1, 'a', n}", "    x = x + 1"]
    for _ in range(draw.randint(1, 9)):
        s, o = draw.sample(["s", "o", "u"], 2)
        given = {"s": s, "o": o, "i": draw.choice(ITEMS), "j": draw.choice(ITEMS)}
        lines.append("    " + draw.choice(CALLS).format(**given, n=draw.randint(1, 20)))
    return "\n".join([*lines, "    return x * 2, seen, u, frozenset(u), s, o"])


def given(draw):
    """A set as programs make it: some keys come and go."""
    made = set()
    for _ in range(draw.randint(0, 30)):
        item = draw.choice([1, 2, "a", "b", "cd", "ef", None, -1, 17, 33, 8, 16, 64, "k5", int])
        (made.add if draw.random() < 0.7 else made.discard)(item)
    return made


def told(sets):
    """Sets in their order, and that of their copies and of what they are without an item."""
    shown = []
    for one in sets:
        shown.append(([*one], [*one.copy()]))
        if isinstance(one, frozenset):
            continue
        set.add(one, "new")
        shown.append([*one])
        shown.append([one.pop() for _ in range(len(one))])
    return repr(shown)


def play(seed, compiled):
    space = {"Own": Own}
    exec(program(seed), space)
    draw = random.Random(seed)
    target, seen = compiled(space["f"]), []
    for size in (2, 2, 3):
        s, o = given(draw), given(draw)
        if seed % 5 == 0 and compiled is not None:
            s = Sub(s)
        try:
            found = target(torch.ones(size), 5, s, o)
            seen.append((found[0].tolist(), repr(found[1]), told(found[2:4])))
        except Exception as error:
            seen.append((type(error), str(error)))
        seen.append(told([s, o]))
    return seen


def differ(seeds):
    """The programs whose sets differ from Python's."""
    from flambeau_capture import optimize

    def compiled(fn):
        return optimize("eager", raise_internal_errors=True)(fn)

    return [n for n in seeds if play(n, compiled) != play(n, lambda fn: fn)]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("hash_seed", [0, 1, 2])
def test_sets_are_ordered_as_python_orders_them(hash_seed):
    first = 40 * hash_seed
    made = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, str(first), str(first + 40)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert made.stdout.strip() == "[]"


if __name__ == "__main__":
    print(differ(range(int(sys.argv[1]), int(sys.argv[2]))))
