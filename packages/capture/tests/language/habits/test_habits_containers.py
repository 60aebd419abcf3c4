"""Lists, tuples, dicts, sets and their kin, strings: each habit is one graph with what eager gives (`GRAPHS`: those that break)."""

# ruff: noqa: E501, UP031 - odd code is what programs have
import collections
import string

import pytest

HABITS = []


@HABITS.append
def tuples(t):
    a, *b, c = (1, 2, 3, 4)
    (_d, _e), f = (1, 2), t
    return (
        f + 1,
        a,
        b,
        c,
        (1,) + (2,),
        (1, 2) * 2,
        (1, 2) == (1, 2),
        hash((1, 2)),
        (1, 2, 3).index(2),
        t.shape + (1,),
        (1,),
    )


@HABITS.append
def dicts(t):
    d = {"a": 1, "b": 2}
    d |= {"c": 3}
    d.update(e=5)
    d.setdefault("f", t)
    p = d.pop("a")
    q = d.pop("zz", None)
    k = list(d.items())
    e = dict(zip("xy", [1, 2]))
    g = {**e, "x": 9}
    del d["b"]
    s = d.keys() & {"c"}
    r = dict.fromkeys([1, 2], 0)
    last = g.popitem()
    return (
        d["f"] + 1,
        p,
        q,
        len(k),
        e,
        g,
        s,
        r,
        last,
        list(reversed(e)),
        {k: v for k, v in e.items() if v > 1},
        e | {"z": 1},
        "x" in e,
        e.get("q", 3),
        list(d.values())[0],
        len(d.keys() - {"c"}),  # in an order that a removed string may leave behind
        r.keys() - {1},
        e == {"x": 1, "y": 2},
        list(e),
    )


@HABITS.append
def sets(t):
    s = {1, 2}
    s.add(3)
    s |= {4}
    s -= {1}
    s.discard(9)
    u = frozenset([1, 2])
    return (
        t + 1,
        sorted(s),
        s & {2, 3},
        s | u,
        s - u,
        s ^ u,
        s >= {2},
        2 in s,
        u.union([5]),
        len(s),
        {x * 2 for x in s},
        s.isdisjoint({9}),
        hash(u) == hash(frozenset([2, 1])),
        {1, 2} == {2, 1},
        s.pop() in (2, 3, 4),
    )


@HABITS.append
def deques(t):
    d = collections.deque([1, 2], maxlen=3)
    d.append(t)
    d.appendleft(0)
    d.rotate(1)
    d.popleft()
    d.extend([1, 1])
    return t + 1, len(d), d.maxlen, d[0]


@HABITS.append
def defdict(t):
    d = collections.defaultdict(list)
    d["a"].append(t)
    d["b"]
    e = collections.defaultdict(int)
    e["x"] += 2
    return d["a"][0] + 1, len(d), dict(e), e


@HABITS.append
def counters(t):
    c = collections.Counter("abca")
    c["z"] += 2
    c.update("a")
    return (
        t + c["a"],
        c.most_common(1),
        c["nope"],
        dict(c),
        sum(c.values()),
        c + collections.Counter(a=1),
        sorted(c.elements()),
    )


@HABITS.append
def odict(t):
    d = collections.OrderedDict(a=1, b=t)
    d.move_to_end("a")
    d["c"] = 3
    return d["b"] + 1, list(d), d.popitem(last=False)[0]


@HABITS.append
def chainmap(t):
    return t + collections.ChainMap({"a": 1}, {"b": 2})["b"]


@HABITS.append
def ranges(t):
    r = range(1, 10, 3)
    return (
        t + sum(r),
        list(r),
        r[1],
        len(r),
        4 in r,
        list(reversed(r)),
        r[::2],
        r.start,
        range(3) == range(3),
    )


@HABITS.append
def slices_(t):
    s = slice(1, None)
    return t[s], [1, 2, 3][s], s.start, s.indices(5), s == slice(1, None)


@HABITS.append
def strs(t):
    s = "Hello,World"
    return (
        t + 1,
        s.upper(),
        s.split(","),
        ",".join(["a", "b"]),
        s.startswith(("He", "x")),
        s.replace("l", "L"),
        s.find("W"),
        "%s-%d-%.2f-%(x)s".__class__,
        "%s %d %5.2f" % ("a", 3, 2.5),
        f"{1}",
        "{} {a!r:>5}".format(1, a="b"),
        f"{3:>4}|{2.5:.1f}|{s!r}|{s=}",
        s[::-1],
        s.strip("H"),
        s.partition(","),
        "a" * 3,
        "x" in s,
        s.encode(),
        b"ab".decode(),
        b"ab" + b"c",
        b"a"[0],
        s.isalpha(),
        s.zfill(15),
        s.center(13, "*"),
        "a\nb".splitlines(),
        s.casefold(),
        s.rsplit(",", 1),
        s.removeprefix("He"),
        s.count("l"),
        ord("a"),
        chr(98),
        s < "I",
        s.title(),
        string.ascii_lowercase[:3],
        s.translate({72: "J"}),
        str(3),
        str([1, "a"]),
        repr({"a": (1,)}),
        ascii("é"),
        format(3.14159, ".2f"),
        bytes([1, 2]),
        bytearray(b"a") == b"a",
        "abc".index("c"),
        s.maketrans("a", "b"),
    )


@HABITS.append
def fstr_tensor_meta(t):
    return t + 1, f"{t.shape} {t.dtype} {t.device} {tuple(t.shape)} {t.ndim}"


GRAPHS = {}


@pytest.mark.parametrize("fn", HABITS, ids=lambda fn: fn.__name__)
def test_habit(fn, one_graph):
    one_graph(fn, GRAPHS.get(fn.__name__, 1))
