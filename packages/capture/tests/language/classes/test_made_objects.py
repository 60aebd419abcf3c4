"""Objects of classes in C that the frame makes of known values: every attribute of their classes,
with drawn arguments, gives what eager gives: results, errors, and the state of the object that
leaves the frame. Generated: each class, each attribute; operators and functions over all pairs.
"""

import array
import datetime
import decimal
import hashlib
import io
import linecache
import logging
import os
import random
import struct
import threading
import zlib

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of

MODULES = {
    "array": array, "datetime": datetime, "decimal": decimal, "hashlib": hashlib, "io": io,
    "random": random, "struct": struct, "threading": threading, "zlib": zlib,
}  # fmt: skip
#: how objects of each class are made
MAKERS = {
    "date": ["datetime.date(2020, 2, 29)", "datetime.date.fromisoformat('1999-12-31')"],
    "datetime": [
        "datetime.datetime(2020, 2, 29, 1, 2, 3, 4)",
        "datetime.datetime(2021, 5, 6, tzinfo=datetime.timezone.utc)",
        "datetime.datetime(2020, 1, 1, fold=1)",
    ],
    "time": ["datetime.time(1, 2, 3)", "datetime.time(4, tzinfo=datetime.timezone.utc)"],
    "timedelta": ["datetime.timedelta(days=3, seconds=7)", "datetime.timedelta(-1)"],
    "timezone": ["datetime.timezone(datetime.timedelta(hours=2), 'own')", "datetime.timezone.utc"],
    "Decimal": ["decimal.Decimal('1.50')", "decimal.Decimal('nan')", "decimal.Decimal(7)"],
    "Struct": ["struct.Struct('<ih')", "struct.Struct('4s')"],
    "bytearray": ["bytearray(b'ab cd')", "bytearray(3)", "bytearray([1, 2, 97])"],
    "array": ["array.array('i', [3, 1, 2])", "array.array('d')", "array.array('B', b'ab')"],
    "memoryview": ["memoryview(b'abcd')", "memoryview(bytearray(b'abcd'))[1:]"],
    "StringIO": ["io.StringIO('ab\\ncd\\n')", "io.StringIO()"],
    "BytesIO": ["io.BytesIO(b'ab\\ncd\\n')", "io.BytesIO()"],
    "Random": ["random.Random(5)", "random.Random('seed')"],
    "Lock": ["threading.Lock()"],
    "RLock": ["threading.RLock()"],
    "hash": ["hashlib.md5(b'ab')", "hashlib.sha256()", "hashlib.blake2b(b'a', digest_size=8)"],
}
#: arguments that are tried, beside one of the same class
POOL = [
    "1", "0", "-1", "2.5", "'a'", "'utf-8'", "b'a'", "b'cd'", "None", "True", "[1, 2]", "(1, 2)",
    "97", "slice(1, 3)", "'%s'", "''", "b''", "datetime.timedelta(hours=1)", "10**20", "{1: 2}",
    "(x for x in [1, 2])", "range(3)", "decimal.Decimal(2)", "bytearray(b'zz')", "'i'", "'B'",
]  # fmt: skip
#: what would wait, ends the process, or is about the class alone
NOT_TRIED = {"__class__", "__init_subclass__", "__subclasshook__", "__class_getitem__", "__del__",
             "__new__", "_at_fork_reinit", "fromfile", "tofile", "today", "now", "utcnow",
             "buffer_info", "__sizeof__", "__getstate__", "__reduce__", "__reduce_ex__", "__dir__",
             "fromtimestamp", "utcfromtimestamp", "__hash__", "__dict__", "gauss_next",
             "_randbelow", "_abc_impl", "__doc__", "__text_signature__"}  # fmt: skip


def attributes(maker):
    kind = type(eval(maker, dict(MODULES)))
    names = [name for name in dir(kind) if name not in NOT_TRIED]
    return [name for name in names if name not in ("__repr__", "__str__", "__format__")]


def uses(name, maker, draw):
    """Expressions that use an attribute of `o`."""
    if name in ("acquire", "acquire_lock") and "Lock" in maker:
        return [f"o.{name}(False)", f"o.{name}(blocking=False)", f"o.{name}(False, 1)"]
    found = [f"o.{name}()"] if name not in ("__enter__", "seed") else []
    found += [f"o.{name}"] if not callable(getattr(type(eval(maker, dict(MODULES))), name)) else []
    for count in (1, 1, 1, 1, 2, 2, 3):
        given = [draw.choice([*POOL, maker, "o"]) for _ in range(count)]
        found.append(f"o.{name}({', '.join(given)})")
    return found


def program(maker, expressions, path, given=False):
    lines = (
        ["def f(t, o):", "    out = []"] if given else ["def f(t):", f"    out, o = [], {maker}"]
    )
    for use in expressions:
        done = f"{use}" if "= " in use.split("(")[0] or use.startswith("del ") else None
        lines += ["    try:", f"        {done or f'out.append({use})'}"]
        lines += ["    except Exception as error:"]
        lines += ["        out.append((type(error), str(error)))"]
    text = "\n".join([*lines, "    return t + 1, out, o", ""])
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    namespace = dict(MODULES)
    exec(compile(text, path, "exec"), namespace)
    return namespace["f"]


def plain(value):
    """What two runs have in common of a value: its class and its state."""
    kind = type(value)
    if isinstance(value, list | tuple):
        return kind, [plain(item) for item in value]
    if kind in (io.StringIO, io.BytesIO):
        return kind, value.closed or (value.getvalue(), value.tell())
    if kind is random.Random:
        return kind, value.getstate()
    if kind is memoryview:
        try:
            return kind, value.format, value.shape, value.readonly, value.tobytes()
        except ValueError as error:
            return kind, str(error)
    if hasattr(kind, "hexdigest"):
        return value.name, value.hexdigest()
    if kind is struct.Struct:
        return kind, value.format
    if kind is type(threading.Lock()):
        return kind, value.locked()
    if kind is type(threading.RLock()):
        return kind, repr(value).split(" at ")[0]
    if hasattr(kind, "__next__"):
        return "iterator", plain(list(value))
    if isinstance(value, dict):
        return kind, plain(list(value.items()))
    return kind, repr(value) if " at 0x" not in repr(value) else ""


def difference(maker, expressions, path="/made/program.py", given=False):
    """given: the caller has made the object, and sees what became of it."""
    f = program(maker, expressions, path, given)
    compiled = optimize("eager", raise_internal_errors=True)(f)

    def run(f):
        made = [eval(maker, dict(MODULES))] * given
        found = f(torch.ones(1), *made)[1:]
        assert all(found[1] is one for one in made)
        return found

    want = run(f)
    shown = plain(want)
    for _ in range(2):
        got = run(compiled)
        assert not compiler_of(compiled).records.faults
        if plain(got) != shown:
            pairs = zip((*expressions, "o"), (*shown[1][0][1], shown[1][1]),
                        (*plain(got)[1][0][1], plain(got)[1][1]))  # fmt: skip
            return [each for each in pairs if each[1] != each[2]] or ["length"]
        assert [part is got[1] for part in got[0]] == [part is want[1] for part in want[0]]
    return None


def in_one_graph(maker, expressions):
    try:
        f = program(maker, expressions, "/made/one_graph.py")
        optimize("eager", nopython=True)(f)(torch.ones(1))
    except Exception as error:
        assert "FB0" in str(error), error
        return False
    return True


def drawn(kind):
    """Every attribute of a class, with its uses; a third of them unless all are wanted."""
    draw = random.Random(f"{kind} {os.environ.get('FLAMBEAU_TEST_SEED', 0)}")
    every = os.environ.get("FLAMBEAU_SWEEPS") == "1"
    for maker in MAKERS[kind]:
        for name in attributes(maker):
            found = uses(name, maker, draw)
            if every or draw.random() < 1 / 3:
                yield maker, name, found


@pytest.mark.sweep(3)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", MAKERS)
def test_every_attribute_of_a_class_in_c(kind):
    for maker, name, found in drawn(kind):
        for given in (False, True):
            differs = difference(maker, found, f"/made/{kind}_{name}_{given}.py", given)
            assert differs is None, (maker, name, given, differs)


#: programs of one graph; `n` is 3 in the first call and 5 in the second
ONE_GRAPH = {
    "dates": "r = (datetime.date(2020, 1, n) + datetime.timedelta(days=n)).isoformat()",
    "formatted": "d = datetime.date(2020, 1, n); r = f'{d}', str(d), '%s' % d, repr(d), [d]",
    "compared": "a, b = datetime.date(2020, 1, n), datetime.date(2020, 1, 4); r = a < b, a == b, "
                "max(a, b), sorted([b, a]), a in [b], {a: 1}.get(b), hash(a) == hash(b), a is b",
    "zone": "z = datetime.timezone.utc; d = datetime.datetime(2020, 1, n, tzinfo=z); "
            "r = d, d.tzinfo is z, d.timestamp(), d.utcoffset()",
    "class": "r = datetime.date.max - datetime.date.fromordinal(n), datetime.timedelta.max",
    "decimals": "r = decimal.Decimal(n) / 3, round(decimal.Decimal('1.005'), 2), "
                "-decimal.Decimal(n), {decimal.Decimal(n): 1}[n], sorted([decimal.Decimal(n), 1])",
    "fraction": "import fractions; r = fractions.Fraction(n, 7) + decimal.Decimal(2).__int__()",
    "packed": "r = struct.pack('<i', n), struct.Struct('<ii').unpack(bytes(8)), "
              "list(struct.iter_unpack('<h', b'abcd'))",
    "packed_into": "b = bytearray(8); struct.pack_into('<i', b, 2, n); r = b, bytes(b)",
    "bytearray": "b = bytearray(b'ab'); b += bytes([n]); b[0] = n; b.extend([1, 2]); del b[1]; "
                 "r = b, len(b), list(b), b[1:], b == b'a', sum(b), 3 in b, b[::-1], bool(b)",
    "aliases": "b = bytearray(n); c = b; c.append(1); r = b, c, b is c, [b, c]",
    "view": "b = bytearray(8); v = memoryview(b)[2:6]; v[0] = n; r = b, v, v.obj is b, bytes(v)",
    "array": "a = array.array('i', range(n)); a.append(n); a[0] += 2; r = a, a.tolist(), sum(a), "
             "[x + 1 for x in a], list(reversed(a)), a + a, a * 2, max(a)",
    "text": "s = io.StringIO(); s.write('a\\nb' * n); s.seek(0); r = s.readline(), list(s), s, "
            "s.getvalue(), s.tell()",
    "printed": "s = io.BytesIO(b'a\\nb\\nc'); r = next(s), [line for line in s], s.read(), s",
    "with": "with io.StringIO('ab') as s: r = s.read()\n    r = r, s.closed, s",
    "random": "g = random.Random(n); a = [1, 2, 3, t, None]; g.shuffle(a); r = a, g.random(), "
              "g.choice([t, 5]), g.sample(range(9), n), g.gauss(0, 1), g.randint(1, 9), g",
    "lock": "l = threading.Lock()\n    with l: r = l.locked()\n"
            "    r = r, l.locked(), l.acquire(), l, {l: 1}[l], l == l, l in [l]",
    "rlock": "l = threading.RLock()\n    with l:\n        with l: r = l.acquire()\n    r = r, l",
    "digest": "h = hashlib.sha256(b'a'); h.update(bytes(n)); r = h.hexdigest(), h.copy(), h",
    "checksum": "r = zlib.crc32(bytes(n)), zlib.decompress(zlib.compress(b'a' * n))",
    "caught": "r = []\n    for make in (lambda: datetime.date(2020, n, 40), lambda: bytearray(b'a')"
              ".pop(9), lambda: decimal.Decimal('x'), lambda: memoryview(b'a')[n], lambda: "
              "struct.unpack('<i', b'a'), lambda: threading.Lock().release(), lambda: hash("
              "bytearray(n)), lambda: datetime.date(1, 1, 1) + 1):\n        try: make()\n"
              "        except Exception as error: r.append((type(error), str(error)))",
    "in_objects": "r = {'at': datetime.date(2020, 1, n), 'of': (bytearray(n), {n: io.BytesIO()})}",
}  # fmt: skip


def written(body):
    text = f"def f(t, n):\n    {body}\n    return t * 2, r\n"
    namespace = dict(MODULES)
    exec(compile(text, "/made/one.py", "exec"), namespace)
    return namespace["f"]


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_made_in_one_graph(name):
    f = written(ONE_GRAPH[name])
    compiled = optimize("eager", nopython=True)(f)
    for n in (3, 5, 3):
        with decimal.localcontext() as theirs:
            want = plain(f(torch.ones(1), n)[1])
        with decimal.localcontext() as ours:
            assert plain(compiled(torch.ones(1), n)[1]) == want
        assert dict(ours.flags) == dict(theirs.flags)


#: what is done with an object `o` that the caller has made, in one graph
GIVEN_IN_ONE_GRAPH = {
    "date": ("datetime.date(2020, 2, 3)", "r = o.day, o.replace(day=4), o"),
    "packing": ("struct.Struct('<ih')", "r = o.unpack(o.pack(1, 2)), o.size"),
    "bytes": ("bytearray(b'ab')", "o.append(3); o[0] = 9; r = len(o), o.upper(), o[1:], o"),
    "numbers": ("array.array('i', [1, 2])", "o.extend([4, 5]); r = o.tolist(), o[1], o, sum(o)"),
    "text": ("io.StringIO('abc')", "o.seek(0, 2); r = o.write('d'), o.getvalue(), o.tell()"),
    "buffer": ("io.BytesIO(b'ab')", "r = o.read(1), o.getvalue(); o.truncate(1); o.close()"),
    "view": ("memoryview(b'abcd')", "r = o[1:].tobytes(), o.nbytes, o[2], o.format, o[1:3]"),
    "digest": ("hashlib.sha256(b'a')", "c = o.copy(); c.update(b'b'); r = c.digest(), o.digest()"),
    "aliases": ("bytearray(b'ab')", "p = [o, o]; p[0].append(1); r = p, p[1] is o, o == p[0]"),
}  # fmt: skip


@pytest.mark.parametrize("name", GIVEN_IN_ONE_GRAPH)
def test_given_in_one_graph(name):
    maker, body = GIVEN_IN_ONE_GRAPH[name]
    namespace = dict(MODULES)
    exec(f"def f(t, o):\n    {body}\n    return t * 2, r, o", namespace)
    compiled = optimize("eager", nopython=True)(namespace["f"])
    for _ in range(3):
        ours, theirs = eval(maker, dict(MODULES)), eval(maker, dict(MODULES))
        found, want = compiled(torch.ones(1), ours), namespace["f"](torch.ones(1), theirs)
        assert plain(found[1]) == plain(want[1]) and found[2] is ours
        assert plain(ours) == plain(theirs)


def test_given_objects_in_other_states_and_shared_memory(capture, backend):
    def grown(t, o):
        o.append(1)
        return t + len(o), bytes(o)

    compiled, ours, theirs = capture(grown), bytearray(b"a"), bytearray(b"a")
    made = []
    for _ in range(7):  # what it has left is the next call's state, which is data from then on
        assert plain(list(compiled(torch.ones(1), ours))) == plain(
            list(grown(torch.ones(1), theirs))
        )
        assert ours == theirs
        made.append(len(backend))
    assert made[-1] == made[-2]

    def shared(t, o, view):
        view[0] = 7
        return t + 1, bytes(o)

    def of_tensor(t, o, x):
        x += 1
        o[1] = 5
        return t * x.sum(), bytes(o)

    made = bytearray(b"abcd"), bytearray(b"abcd")
    for f, other in (
        (shared, memoryview),
        (of_tensor, lambda o: torch.frombuffer(o, dtype=torch.uint8)),
    ):
        found = [run(torch.ones(1), o, other(o)) for run, o in zip((capture(f), f), made)]
        assert plain(list(found[0])) == plain(list(found[1])) and made[0] == made[1]


def test_messages_to_a_given_stream_are_in_it_before_it_is_read(capture):
    def f(t, stream, logger):
        t = t + 1
        stream.write("first ")
        logger.error("second")
        stream.write("third ")
        return t, stream.getvalue()

    logger, found = logging.getLogger("made"), []
    for run in (f, capture(f), capture(f)):
        stream = io.StringIO()
        logger.handlers, logger.propagate = [logging.StreamHandler(stream)], False
        found.append((run(torch.ones(1), stream, logger)[1], stream.getvalue()))
    assert found[0] == found[1] == found[2] and "second" in found[0][0]


WHEN = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)


def test_existing_objects_are_guarded_by_what_they_are(backend, capture):
    def f(t, day, price):
        return t + day.day, day, day.replace(day=3), price * 2, WHEN.tzinfo, WHEN

    compiled = capture(f)
    days = [datetime.date(2020, 1, 2), datetime.date(2020, 1, 2), datetime.date(2020, 1, 9)]
    for day in days:
        for price in (decimal.Decimal("1.0"), decimal.Decimal("1.00"), decimal.Decimal(2)):
            ours, theirs = compiled(torch.ones(1), day, price), f(torch.ones(1), day, price)
            assert plain(list(ours)) == plain(list(theirs))
            assert ours[1] is day and ours[4] is datetime.UTC and ours[5] is WHEN
    compiled = capture(lambda t, day: (t + 1, day))  # passed along, it is not looked at
    backend.clear()
    for number in range(1, 20):
        day = datetime.date(2020, 1, number)
        assert compiled(torch.ones(1), day)[1] is day
    assert len(backend) == 1


def test_the_decimal_context_is_guarded(capture):
    compiled = capture(lambda t: (t + 1, decimal.Decimal(2) / 3, str(decimal.Decimal("1e9"))))
    for precision, capitals in ((28, 1), (5, 1), (5, 0), (28, 1)):
        with decimal.localcontext() as context:
            context.prec, context.capitals = precision, capitals
            _, found, text = compiled(torch.ones(1))
            assert (found, text) == (decimal.Decimal(2) / 3, str(decimal.Decimal("1e9")))
        with decimal.localcontext() as context:
            context.traps[decimal.Inexact] = True
            with pytest.raises(decimal.Inexact):
                compiled(torch.ones(1))


#: what breaks, and is right: it asks for more than capture knows, or meets what it does not know
BREAKS = {
    "clock": "r = datetime.datetime.now() > datetime.datetime(2020, 1, n)",
    "locale": "r = datetime.date(2020, 1, n).strftime('%A'), f'{datetime.date(2020, 1, n):%B}'",
    "format": "r = '{:%A}'.format(datetime.date(2020, 1, n))",
    "seed": "g = random.Random(n); g.seed(); r = type(g.random())",
    "unseeded": "r = type(random.Random())",
    "address": "r = repr(io.StringIO())[:9], str(threading.Lock())[:9]",
    "held": "l = threading.Lock(); l.acquire(); r = l.acquire(timeout=0.01)",
    "view_that_ended": "b = bytearray(n); memoryview(b)[0]; b.append(1); r = b",
    "resized_under_a_view": "b = bytearray(n); v = memoryview(b)\n    try: b.append(1); r = 'grown'"
                            "\n    except BufferError as error: r = str(error), v",
    "state": "b = bytearray(n); s = io.StringIO('abc'); s.read(1); g = random.Random(n); "
             "g.random(); l = threading.RLock(); v = memoryview(b)[1:]\n    with l:\n"
             "        print(end='')\n        b[1] = 7; r = s.read(), g.random(), b, v, v.obj is b",
    "tensors": "b = bytearray(8); x = torch.frombuffer(b, dtype=torch.int8); x += n; r = x, b",
    "unknown": "b = bytearray(n); b[0] = int(t.item()); r = b",
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_not_known_is_left_to_python(capture, name):
    f = written(BREAKS[name])
    f.__globals__["torch"] = torch
    compiled = capture(f)
    for n in (3, 5, 3):
        assert plain(compiled(torch.ones(1), n)[1]) == plain(f(torch.ones(1), n)[1])


def test_what_is_made_is_made_anew_in_each_call(capture):
    """And a function that a body maps may not change what was made outside of it."""

    def f(t):
        made = bytearray(2), datetime.date(2020, 1, 1), decimal.Decimal(3), threading.Lock()
        return t + 1, made

    one, two = (capture(f)(torch.ones(1))[1] for _ in range(2))
    compiled = capture(f)
    three, four = compiled(torch.ones(1))[1], compiled(torch.ones(1))[1]
    assert all(a is not b for a, b in zip((*one, *three), (*two, *four)))

    def mapped(t):
        seen = bytearray()
        return torch.vmap(lambda x: (seen.append(1), x * 2)[1])(t), seen

    assert capture(mapped)(torch.ones(3))[1] == mapped(torch.ones(3))[1]


if __name__ == "__main__":  # one use at a time, to see what a difference comes from
    import sys
    import warnings

    warnings.simplefilter("ignore")
    os.environ["FLAMBEAU_SWEEPS"] = "1"
    for kind in sys.argv[1:] or MAKERS:
        broken = []
        for maker, _, found in drawn(kind):
            for use in found:
                try:
                    differs = difference(maker, [use])
                except Exception as error:
                    differs = type(error), str(error)[:600]
                if differs is not None:
                    print(maker, use, differs, flush=True)
                elif not in_one_graph(maker, [use]):
                    broken.append(use)
        print(kind, "breaks:", " ".join(broken), flush=True)
