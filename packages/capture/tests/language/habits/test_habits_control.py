"""match, try, loops, comprehensions, protocols: each habit is one graph with what eager gives (`GRAPHS`: those that break)."""

# ruff: noqa: B007, F821, B018, E501 - odd code is what programs have
import pytest
import torch
from habit_classes import DC, FDC, IE, ODC, Base, Color

HABITS = []


@HABITS.append
def matches(t):
    out = []
    for v in [1, "a", [1, 2], {"k": 3, "z": 1}, (1, 2, 3), DC(4), None, 2.5, Color.R, [[1], 2]]:
        match v:
            case 1 | 2:
                out.append("one")
            case str() as s:
                out.append(s)
            case [a, b] if a == 1:
                out.append((a, b))
            case {"k": k, **r}:
                out.append((k, r))
            case (a, *rest):
                out.append(rest)
            case DC(a=q):
                out.append(q)
            case None:
                out.append("none")
            case float(x):
                out.append(x)
            case Color.R:
                out.append("red")
            case _:
                out.append("?")
    return t + 1, out


@HABITS.append
def trys(t):
    log = []
    for k in range(3):
        try:
            if k == 0:
                raise ValueError("v")
            if k == 1:
                {}["x"]
        except ValueError as e:
            log.append(str(e))
        except (KeyError, TypeError) as e:
            log.append(e.args)
        else:
            log.append("else")
        finally:
            log.append("f")
    try:
        try:
            raise ValueError("a")
        except ValueError as e:
            raise RuntimeError("b") from e
    except RuntimeError as e:
        log.append((str(e), str(e.__cause__)))
    try:
        assert False, "msg"
    except AssertionError as e:
        log.append(str(e))
    try:
        int("x")
    except ValueError as e:
        log.append(str(e))
    try:
        [][1]
    except IndexError as e:
        log.append(str(e))
    try:
        None.foo
    except AttributeError as e:
        log.append(str(e))
    try:
        1 / 0
    except ZeroDivisionError as e:
        log.append(str(e))
    try:
        _a, _b = [1]
    except ValueError as e:
        log.append(str(e))
    try:
        (lambda a: a)()
    except TypeError as e:
        log.append(str(e))
    try:
        undefined_name
    except NameError as e:
        log.append(str(e))
    return t + 1, log


class MyErr(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code


@HABITS.append
def own_exc(t):
    try:
        raise MyErr(3)
    except MyErr as e:
        return t + e.code, str(e), e.args


@HABITS.append
def whiles(t):
    n = 0
    while True:
        n += 1
        if n == 2:
            continue
        if n > 4:
            break
    else:
        n = 100
    for _i in []:
        pass
    else:
        n += 1
    while (m := n * 2) < 5:
        pass
    return t + n, m


@HABITS.append
def early(t):
    for i in range(3):
        with torch.no_grad():
            if i == 1:
                return t + i


@HABITS.append
def walrus_star(t):
    def f(*a, **k):
        return (a, tuple(k.items()))

    return t + (n := 3), n, f(*[1, 2], *(3,), a=1, b=2), [*range(2), *"ab"], {"a": 1}, (*[1],)


@HABITS.append
def delglobals(t):
    x = 1
    del x
    try:
        x
    except UnboundLocalError:
        r = "ub"
    return t + 1, r


G = 0


@HABITS.append
def globals_(t):
    global G
    G = 0
    G += 1
    return t + G, "G" in globals(), len(locals())


@HABITS.append
def unpack_nested(t):
    for i, (a, (b, *c)) in enumerate([(1, (2, 3, 4))]):
        pass
    return t + i, a, b, c


@HABITS.append
def comps(t):
    return (
        t + 1,
        [[i * j for j in range(2)] for i in range(2)],
        {i: set(range(i)) for i in range(3)},
        [x for x in range(9) if x % 2 if x > 3],
        [y for x in [[1], [2]] for y in x],
    )


@HABITS.append
def chained_cmp(t):
    return (
        t + 1,
        1 < 2 < 3,
        1 < 3 > 2,
        1 not in [1],
        1 != None,
        "a" if t.ndim else "b",
        0 or "x",
        1 and 2,
    )


@HABITS.append
def globals_fn(t):
    return t + globals()["G"]


@HABITS.append
def strenum_fmt(t):
    return (
        t + 1,
        f"{IE.A}",
        f"{Color.R}",
        str(IE.A),
        repr(Color.R),
        f"{Color.R}",
        format(IE.B, "03d"),
    )


@HABITS.append
def obj_repr(t):
    return t + 1, repr(DC(1)), str(FDC(2)), f"{ODC(1)}"


@HABITS.append
def property_builtin(t):
    return (
        t + 1,
        sum(x.numel() for x in [t, t]),
        max(t.shape),
        [*t.shape],
        {"a": t.size(0)},
        divmod(t.numel(), 2),
    )


@HABITS.append
def nested_data(t):
    cfg = {"layers": [{"k": 1}, {"k": 2}], "act": "relu"}
    for c in cfg["layers"]:
        t = getattr(torch, cfg["act"])(t * c["k"])
    return t


@HABITS.append
def frozen_set_attr(t):
    f = FDC(1)
    object.__setattr__(f, "a", 7)
    return t + f.a


@HABITS.append
def init_subclass(t):
    return t + Sub.reg


class Reg:
    def __init_subclass__(cls, **k):
        cls.reg = 5


class Sub(Reg):
    pass


@HABITS.append
def func_attrs(t):
    def f():
        return f.n

    f.n = 3
    return t + f()


@HABITS.append
def method_ref(t):
    m = Base(2).__call__
    l = [].append
    u = str.upper
    k = t.add
    l(1)
    return (
        m(t),
        u("a"),
        k(1),
        [m.__name__, m.__self__.a],
        list(map(str.strip, [" a "])),
        "".join(map(str, [1, 2])),
    )


@HABITS.append
def kwonly_errors(t):
    def f(a, /, b, *, c):
        return a + b + c

    try:
        f(1, 2, 3)
    except TypeError as e:
        r = str(e)
    return t + f(1, 2, c=3), r


@HABITS.append
def iter_proto(t):
    class_it = IterC(3)
    return t + sum(class_it), list(IterC(2)), list(GI())


class IterC:
    def __init__(s, n):
        s.n = n

    def __iter__(s):
        s.i = 0
        return s

    def __next__(s):
        if s.i >= s.n:
            raise StopIteration
        s.i += 1
        return s.i


class GI:
    def __getitem__(s, i):
        if i > 2:
            raise IndexError
        return i


class GenIter:
    def __init__(s, x):
        s.x = x

    def __iter__(s):
        for i in s.x:
            yield i * 2


@HABITS.append
def gen_iter(t):
    return (
        t + 1,
        list(GenIter([1, 2])),
        dict(zip("ab", GenIter([1, 2]))),
        sorted(GenIter([2, 1])),
        4 in GenIter([2]),
    )


GRAPHS = {}


@pytest.mark.parametrize("fn", HABITS, ids=lambda fn: fn.__name__)
def test_habit(fn, one_graph):
    one_graph(fn, GRAPHS.get(fn.__name__, 1))
