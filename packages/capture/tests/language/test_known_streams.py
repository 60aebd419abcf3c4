"""What goes to a stream that the frame knows, queues and conditions that it has made, new types:
results, output and errors are eager's; in one graph, but for what stands in `BREAKS`."""

import contextlib
import io
import logging
import queue
import sys
import threading
import typing

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of

UserId = typing.NewType("UserId", int)
REDIRECTED = "with contextlib.redirect_stdout(io.StringIO()) as o:"
ONE_GRAPH = {
    "file": "o = io.StringIO(); print('a', n, [t.shape], 1.5, sep='-', end='', file=o)\n"
            "    r = o.getvalue()",
    "own": "w = Writer(); print('a', n, file=w, end=None, flush=True); r = w.pieces",
    "redirected": f"{REDIRECTED}\n        print('in', n)\n    r = o.getvalue(), sys.stdout is o",
    "twice": f"{REDIRECTED}\n        print('a')\n        with contextlib.redirect_stdout("
             "io.StringIO()) as p: print('b')\n        print('c')\n"
             "    r = o.getvalue(), p.getvalue()",
    "raised": f"r = []\n    try:\n        {REDIRECTED}\n            print('a'); 1 / 0\n"
              "    except ZeroDivisionError: r = o.getvalue()",
    "errors": "with contextlib.redirect_stderr(io.StringIO()) as o: print('e', file=sys.stderr)\n"
              "    r = o.getvalue()",
    "set": "old = sys.stdout; sys.stdout = io.StringIO(); print('k'); r = sys.stdout.getvalue(); "
           "sys.stdout = old",
    "queue": "q = queue.Queue(); q.put(t); q.put(n); "
             "r = q.get() + 1, q.qsize(), q.get(), q.empty()",
    "full": "q = queue.LifoQueue(1); q.put(1)\n    try: q.put_nowait(2)\n"
            "    except queue.Full as error: r = type(error), q.full()",
    "empty": "q = queue.PriorityQueue(); q.put((2, 'b')); q.put((1, 'a')); r = q.get(), q.get()\n"
             "    try: q.get_nowait()\n    except queue.Empty as error: r = r, type(error)",
    "event": "e = threading.Event(); r = e.is_set(); e.set(); r = r, e.is_set(), e.clear()",
    "condition": "c = threading.Condition()\n    with c: c.notify_all(); r = n\n"
                 "    try: c.notify()\n    except RuntimeError as error: r = str(error)",
    "semaphore": "s = threading.Semaphore(2)\n    with s: "
                 "r = s.acquire(), s.acquire(blocking=False)",
    "new type": "T = typing.NewType('T', int); r = UserId(n), T(t) is t\n    try: UserId()\n"
                "    except TypeError as error: r = r, str(error)",
}  # fmt: skip
BREAKS = {
    "output of a tensor": "print('a', n); print(t); r = n",
    "tensor": f"{REDIRECTED}\n        print(t)\n    r = o.getvalue()",
    "between": f"{REDIRECTED}\n        print('a')\n        k = t.sum().item()\n        print(k)\n"
               "    print('after', n); r = o.getvalue()",
    "messages": "logging.getLogger('known').warning('w'); sys.stdout.flush()\n"
                "    with contextlib.redirect_stderr(io.StringIO()) as o: pass\n"
                "    r = o.getvalue()",
    "no such argument": "r = n\n    try: print('a', color=n)\n"
                        "    except TypeError as error: r = str(error)",
    "waits": "q = queue.Queue(1); q.put(1)\n    try: q.put(2, timeout=0.01)\n"
             "    except queue.Full: r = n",
    "leaves": "q = queue.Queue(); q.put(t); e = threading.Event(); r = (q, e)[0].get()",
}  # fmt: skip


class Writer:
    def __init__(self):
        self.pieces = []

    def write(self, text):
        self.pieces.append(text)

    def flush(self):
        self.pieces.append(None)


def written(body, head="", end="t * 2, r"):
    space = {**globals(), "sys": sys, "logging": logging}
    exec(f"def f(t, n):\n    {head}{body}\n    return {end}\n", space)
    return space["f"]


def shown(f):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        found = [repr(f(torch.ones(n), n)) for n in (3, 3, 4)]
    return found, out.getvalue()


PRINTED = {
    "numbers": "print('a', n, 2.5 * n, [n, (n,)], {n: 'é'.isascii()})",
    "nothing": "print(); print(end='.'); print(sep='')",
    "separators": "print(1, n, sep='-', end='|', flush=True); print(2, sep=None, end=None)",
    "streams": "print('b', n, file=sys.stdout); print('c', file=sys.stderr); print('d')",
    "shapes": "print(t.shape, t.dtype, len(t)); print(f'{n:4d}|{t.shape[0]}', '%d' % n)",
    "objects": "print(Said(n), [Said(2)], {'k': Said(3)}, str((Said(n),)))",
    "itself": "k = [n]; k.append(k); print(k, {1: k})",
    "called": "helper(n); print('after'); helper(2)",
    "raises": "print('before', n)\n    try: print('x', Said(None), 'y', sep='/')\n"
              "    except TypeError as error: print(error)",
    "leaves": "print('before', n)\n    if n > 3: raise KeyError(n)\n    print('not', n)",
    "loop": "\n    for k in range(n): print(k, end=' ')",
    "list": "r.append(n); print(r); r.append(2); print(r)",
}  # fmt: skip


class Said:
    def __init__(self, k):
        self.k = k

    def __str__(self):
        print("asked", self.k)
        return "said " + self.k * 2 if self.k is None else f"said {self.k}"

    def __repr__(self):
        return f"<{self.k}>"


def helper(n):
    print("helper", n, helper.__name__)


class Loud(io.StringIO):
    def write(self, text):
        return super().write(text.upper())


def printed(f, streams):
    found = []
    for n, stream in zip((3, 3, 4, 5), streams):
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(io.StringIO()) as err:
            try:
                found.append(repr(f(torch.ones(n), n)))
            except KeyError as error:
                found.append(repr(error))
        found.append((stream.getvalue(), err.getvalue()))
    return found


PLACES = {
    "before": ("r = []; ", "t * 2, r"),
    "after": ("r = []; t = t * 2; ", "t, r"),
    "between": ("r = []; t = t * 2; ", "t + 1, r"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", PRINTED)
def test_what_is_printed_is_what_eager_prints(name, place, capture):
    f = written(PRINTED[name], *PLACES[place])
    ours = capture(f)
    expected = printed(f, [io.StringIO() for _ in range(4)])
    assert printed(ours, [io.StringIO() for _ in range(4)]) == expected
    reasons = {report.reason.id for report in compiler_of(ours).records.breaks}
    assert reasons == ({"FB0023"} if place == "between" else set())
    assert printed(ours, [Loud() for _ in range(4)]) == printed(f, [Loud() for _ in range(4)])
    if name not in ("leaves", "raises"):
        assert {"FB0005", "FB0023"} & {one.reason.id for one in compiler_of(ours).records.breaks}


@pytest.mark.parametrize("name", sorted(PRINTED.keys() - {"leaves"}))
def test_where_one_graph_is_wanted_all_that_is_printed_waits(name):
    f = written(PRINTED[name], *PLACES["between"])
    ours = optimize("eager", nopython=True)(f)
    expected = printed(f, [io.StringIO() for _ in range(4)])
    assert printed(ours, [io.StringIO() for _ in range(4)]) == expected


def test_what_may_not_be_written_is_printed_where_it_stands(capture):
    def f(t, text):
        t = t + 1
        print(text)
        return t * 2

    ours = capture(f)
    for text in ("é", "\ud800", "a"):
        for stream in (io.StringIO, lambda: io.TextIOWrapper(io.BytesIO(), "ascii")):
            found = []
            for fn in (f, ours):
                with contextlib.redirect_stdout(stream()) as out:
                    try:
                        found.append(fn(torch.ones(2), text).tolist())
                    except UnicodeEncodeError as error:
                        found.append(str(error))
                    out.seek(0)
                    found.append(out.read())
            assert found[:2] == found[2:]


@pytest.mark.parametrize("name", [*ONE_GRAPH, *BREAKS])
def test_streams_and_queues(name):
    f = written({**ONE_GRAPH, **BREAKS}[name])
    with contextlib.redirect_stderr(io.StringIO()):
        compiled = optimize("eager", raise_internal_errors=True, nopython=name in ONE_GRAPH)(f)
        assert shown(compiled) == shown(f)


def test_a_queue_that_leaves_the_frame(capture):
    def f(t):
        made, event = queue.Queue(), threading.Event()
        made.put(t + 1)
        event.set()
        return made, event

    made, event = capture(f)(torch.ones(2))
    assert made.get(timeout=5).tolist() == [2, 2] and event.is_set() and made.empty()
    worker = threading.Thread(target=made.put, args=(3,))
    worker.start()
    assert made.get(timeout=5) == 3
    worker.join()
