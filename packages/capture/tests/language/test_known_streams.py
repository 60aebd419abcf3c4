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
    "output": "print('a', n); print('b', file=sys.stdout); r = n",
    "tensor": f"{REDIRECTED}\n        print(t)\n    r = o.getvalue()",
    "between": f"{REDIRECTED}\n        print('a')\n        k = t.sum().item()\n        print(k)\n"
               "    print('after', n); r = o.getvalue()",
    "messages": "logging.getLogger('known').warning('w'); sys.stdout.flush()\n"
                "    with contextlib.redirect_stderr(io.StringIO()) as o: pass\n"
                "    r = o.getvalue()",
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


def written(body):
    space = {**globals(), "sys": sys, "logging": logging}
    exec(f"def f(t, n):\n    {body}\n    return t * 2, r\n", space)
    return space["f"]


def shown(f):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        found = [repr(f(torch.ones(n), n)) for n in (3, 3, 4)]
    return found, out.getvalue()


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
