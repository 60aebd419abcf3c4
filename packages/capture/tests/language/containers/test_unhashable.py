"""Objects that cannot be hashed, or compare as they like, wherever a container takes a key: the
error and its words are CPython's. Generated: each kind of object, each use, given and made."""

import collections  # noqa: F401, which the generated programs name
import dataclasses
import enum

import pytest
import torch


class Compared:
    def __eq__(self, other):
        return True


class Slotted:
    __slots__ = ("a", "b")

    def __eq__(self, other):
        return True


class Typed:
    __hash__ = 3


class Number(int):
    def __eq__(self, other):
        return True


class Pair(tuple):
    def __eq__(self, other):
        return False


@dataclasses.dataclass(slots=True)
class Record:
    a: int = 1
    b: float = 2.0


class Lost(Slotted):
    """What its objects keep is no longer seen from its class."""

    __slots__ = ("c", "d")

    def __eq__(self, other):
        return True


Lost.c = 9


@dataclasses.dataclass
class Changing:
    a: int = 1


class Kind(enum.Enum):
    A = 1

    def __eq__(self, other):
        return True


class OwnModule(torch.nn.Module):
    def __eq__(self, other):
        return True


class OwnError(Exception):
    def __eq__(self, other):
        return True


MADE = {
    "Compared": "Compared()", "Slotted": "Slotted()", "Typed": "Typed()", "Lost": "Lost()",
    "Number": "Number(3)", "Record": "Record()", "Changing": "Changing()", "Kind": "Kind.A",
    "OwnError": "OwnError()", "OwnModule": "OwnModule()", "list": "[1]",
    "bytearray": "bytearray(b'a')",
    "slice": "slice(1)", "Counter": "collections.Counter()", "deque": "collections.deque()",
    "nested": "(1, Compared())", "pair": "Pair((1, 2))", "other pair": "(1, Compared())",
    "odd": "(Compared(), 1)", "right": "(1, 2)", "wrong": "(1, 3)",
}  # fmt: skip
USES = [
    "hash(o)", "{o: 1}", "{1: 2}[o]", "o in {1: 2}", "{1: 2}.get(o)", "{1: 2}.pop(o, 3)",
    "{1: 2}.setdefault(o, 3) and 4", "dict.fromkeys([o]) and 5", "len({o})", "o in {1}",
    "o in frozenset((1,))", "{1}.add(o)", "{1}.discard(o)", "len({1}.union([o]))",
    "{1}.isdisjoint([o])", "hash((1, o))", "o in {1: 2}.keys()", "o in {1: 2}.items()",
    "o in {1: 2}.values()", "o in {}.items()", "o in collections.OrderedDict({1: 2}).items()",
]  # fmt: skip


def program(uses, made):
    lines = ["def f(t, o):\n    R = []\n    t = t * 2"]
    if made:
        lines.append(f"    o = {made}")
    for use in uses:
        lines.append(f"    try:\n        R.append({use})")
        lines.append("    except Exception as e:\n        R.append((type(e).__name__, str(e)))")
    lines.append("    return t, R")
    exec("\n".join(lines), globals(), space := {})
    return space["f"]


CASES = [(name, how) for name in MADE for how in ("given", "made")]


@pytest.mark.parametrize(("name", "how"), CASES)
def test_uses_as_a_key(capture, name, how):
    given = eval(MADE[name])
    uses = [use for use in USES if not (name == "OwnModule" and "hash" in use)]
    f = program(uses, how == "made" and MADE[name])
    expected = f(torch.ones(2), given)
    got = capture(f)(torch.ones(2), given)
    assert torch.equal(got[0], expected[0])
    for use, want, found in zip(uses, expected[1], got[1]):
        known = use == "hash(o)" and how == "made"  # by its address
        assert found == want or (known and type(found) is int), use
