"""Objects whose attributes are items, namespaces, objects of C: what is written is where eager
writes it."""

import collections
import itertools
import random
import threading
import types

import pytest
import torch


class Settings(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


class Strict(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class Own(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Space(types.SimpleNamespace):
    def __contains__(self, name):
        return name in self.__dict__


class Filled(Space):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.extra = 1


class PerThread(threading.local):
    level = 1

    def __init__(self):
        self.base = 3


def settings(t, given):
    given.k = (given.k or 0) + 1
    made = Settings(z=1)
    made.q = t
    made.z += 1
    del made.z
    return t * given.k, made, made.nothing, list(given)


def strict(t, given):
    made = Strict(a=1)
    made.b = 2
    try:
        made.nothing  # noqa: B018 - it raises
    except KeyError as error:
        made.c = str(error)
    given["t"] = t
    return made, given.t + made.b


def own_dict(t, given):
    made = Own(a=t)
    made.b = t + 1
    made["c"] = 2
    given.b = t
    given["c"] = made.c
    del given["a"]
    return made, made["b"] + made.a * made.c + given["b"] * given.c, hasattr(given, "a"), [*given]


def namespaces(t, given):
    if "a" in given:
        t = t + given.a
    given.b = t
    made, filled = Space(q=1, w=t), Filled(z=2)
    filled.q = 3
    return (
        t * made.q + filled.extra, vars(made), vars(filled), filled.z, repr(filled),
        Filled(z=2) == Filled(z=2), Space(a=1) != Space(a=2), len(vars(given)), "zz" in given,
    )  # fmt: skip


def test_attributes_that_are_items(check, capture, same):
    check(settings, torch.ones(2), Settings(sub=3))
    ours, theirs = Strict(), Strict()
    same(capture(strict)(torch.ones(2), ours), strict(torch.ones(2), theirs))
    assert list(ours) == list(theirs) == ["t"]


def test_items_are_written_at_every_call(capture, backend):
    given, compiled = Settings(sub=3), capture(settings)
    for count in (1, 2, 3):
        compiled(torch.ones(2), given)
        assert dict(given) == {"sub": 3, "k": count}
    assert len(backend) >= 1


def test_a_dict_that_is_its_own_dict(capture, backend):
    results = []
    for run in (own_dict, capture(own_dict)):
        given = Own(a=1, z=5)
        made, value, has, names = run(torch.ones(2), given)
        assert made.__dict__ is made and given.__dict__ is given
        results.append((made["c"], value.tolist(), has, names, given.c, sorted(given)))
    assert results[0] == results[1]
    assert len(backend) == 1


def test_whether_it_is_its_own_dict_is_guarded(capture):
    def fn(t, given):
        given.b = t
        return t + len(given)

    compiled, apart = capture(fn), Own(a=1)
    assert compiled(torch.zeros(1), Own(a=1)).item() == 2
    apart.__dict__ = {}
    assert compiled(torch.zeros(1), apart).item() == 1
    assert "b" not in apart


def test_namespaces_of_the_program(capture, backend):
    results = []
    for run in (namespaces, capture(namespaces)):
        given = Space(a=1)
        found = [run(torch.ones(2), given)]
        del given.a
        found.append(run(torch.ones(2), given))
        results.append([(one[0].tolist(), sorted(one[1]), *one[3:]) for one in found])
    assert results[0] == results[1]
    assert len(backend) == 2


def test_how_many_attributes_there_are_is_guarded(capture):
    compiled, given = capture(lambda t, given: t + len(vars(given)) + bool(vars(given))), Space()
    assert compiled(torch.zeros(1), given).item() == 0
    given.a = 1
    assert compiled(torch.zeros(1), given).item() == 2
    given.b = 1
    assert compiled(torch.zeros(1), given).item() == 3


def test_values_of_each_thread_are_its_own(capture):
    local, plain, lock = PerThread(), threading.local(), threading.Lock()
    plain.k = 2

    def fn(t):
        t = t * 2
        with lock:
            t = t + plain.k
        local.level = local.level + 1
        plain.k += 1
        return t * local.level + local.base

    compiled, found = capture(fn), []
    assert compiled(torch.ones(1)).item() == 4 * 2 + 3 and not lock.locked()

    def elsewhere():
        plain.k = 10
        found.append((compiled(torch.ones(1)).item(), plain.k, local.level))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [(12 * 2 + 3, 11, 2)]
    assert (plain.k, local.level) == (3, 2)


class Noted(threading.local):
    """With what else decides an attribute: a property, a slot, `__getattr__`."""

    __slots__ = ("held",)
    level = 1

    def __init__(self):
        self.base, self.held = 3, 4

    @property
    def twice(self):
        return self.base * 2

    def __getattr__(self, name):
        if name == "other":
            return 9
        raise AttributeError(name)


#: what is done to a thread's attributes; `o`: the object
DONE_PER_THREAD = """
o.count = getattr(o, 'count', 0) + 1; found.append(o.count)
found.append((hasattr(o, 'none'), getattr(o, 'other', n), getattr(o, 'level', n)))
o.a = t; found.append(o.a + 1); del o.a; found.append('a' in o.__dict__)
vars(o)['b'] = n; found.append((o.b, sorted(vars(o)), len(o.__dict__)))
o.log = [*getattr(o, 'log', ()), n]; o.log.append(t); found.append(len(o.log))
found.append((getattr(o, 'twice', 0), getattr(o, 'held', 0), getattr(o, 'base', 0)))
found.append(o.none)
del o.none
o.twice = 2
o.__dict__.update(c=1, d=t); found.append(o.__dict__.pop('c')); found.append(o.d)
""".strip().splitlines()


@pytest.mark.parametrize("kind", [threading.local, PerThread, Noted])
@pytest.mark.parametrize("place", ["given", "made"])
def test_attributes_by_thread(kind, place, capture, same):
    """Each statement in two calls of this thread and two of another, of one object."""
    for done in DONE_PER_THREAD:
        text = f"def fn(t, n, o):\n    found = []\n    try:\n        {done}\n    except Exception "
        text += "as error: found.append((type(error), str(error)))\n    return found, o\n"
        if place == "made":
            text = text.replace("n, o)", "n)").replace("[]", "[]; o = Kind()")
        names = {"Kind": kind}
        exec(text, names)
        fn, told = names["fn"], []
        for run in (fn, capture(fn, nopython=True)):
            rows, given = [], [kind()] if place == "given" else []

            def calls(run=run, rows=rows, given=given):
                for n in (2, 3):
                    found, o = run(torch.ones(2), n, *given)
                    rows.append((found, {k: o.__dict__[k] for k in sorted(o.__dict__)}))

            for _ in range(2):
                thread = threading.Thread(target=calls)
                thread.start()
                thread.join()
            calls()
            told.append(rows)
        assert len(told[0]) == 6
        same(told[1], told[0])


def test_a_generator_of_random_numbers_goes_on(capture):
    ours, theirs = random.Random(3), random.Random(3)
    compiled = capture(lambda t, draw: t * draw.randint(0, 9) + draw.random())
    for _ in range(3):
        got = compiled(torch.ones(1), ours)
        torch.testing.assert_close(got, torch.ones(1) * theirs.randint(0, 9) + theirs.random())


def test_methods_of_classes_in_c(check):
    def fn(t, text):
        table = str.maketrans("a", "b")
        ordered = collections.OrderedDict.fromkeys("ab", t)
        ordered.move_to_end("a")
        found = [bytes.fromhex("00ff"), int.from_bytes(b"ab", "big"), float.fromhex("0x1p3")]
        return t + 1, text.translate(table), found, ordered, dict.fromkeys("ab", 1)

    check(fn, torch.ones(2), "banana")


class Shared:
    state = {}

    def __init__(self):
        self.__dict__ = Shared.state


def through_another(t, one, other):
    one.n += 1
    one.t = t
    return t * other.n + other.t


def through_the_dict(t, one, other):
    one.n += 1
    return t * Shared.state["n"]


def into_the_dict(t, one, other):
    Shared.state["n"] += 1
    vars(other).setdefault("m", 4)
    return t * one.n + one.m


@pytest.mark.parametrize("fn", [through_another, through_the_dict, into_the_dict])
def test_objects_that_share_their_attributes(capture, same, fn):
    results = []
    for run in (fn, capture(fn)):
        Shared.state.clear()
        Shared.state["n"] = 1
        one, other = Shared(), Shared()
        results.append([run(torch.ones(2), one, other) for _ in range(3)] + [one.n, other.n])
    same(results[1], results[0])


def test_a_dict_that_is_the_attributes_of_an_object(capture):
    def fn(t, one, entries):
        entries["k"] = t
        return one.k + 1

    one = Space()
    assert torch.equal(capture(fn)(torch.ones(2), one, one.__dict__), torch.ones(2) + 1)


def _delete(o):
    del o.a


def _take_out(o):
    vars(o).pop("a")


def _set(o):
    o.a = 3


def _set_what_it_was(o):
    o.a = 1


def _set_another(o):
    o.b = 4


def _set_new(o):
    o.c = 5


STEPS = [_delete, _take_out, _set, _set_what_it_was, _set_another, _set_new]


@pytest.mark.parametrize("steps", [*itertools.product(STEPS, repeat=3)])
def test_the_order_of_what_is_deleted_and_set_again(capture, steps):
    class Plain:
        pass

    def run(o, x):
        for step in steps:
            step(o)
        return x + 1, list(vars(o))

    def outcome(call):
        o = Plain()
        o.a, o.b = 1, 2
        try:
            named = call(o, torch.ones(1))[1]
        except (AttributeError, KeyError) as error:
            return type(error)
        return named, vars(o), list(vars(o))

    assert outcome(capture(run)) == outcome(run)
