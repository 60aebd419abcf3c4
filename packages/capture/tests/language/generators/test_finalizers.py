"""Finalizers that a frame registers, looks at, detaches: called when the object ends, once."""

import weakref

import torch


class Thing:
    pass


def test_a_finalizer_is_python_s_own(capture):
    called = []

    def f(t, thing):
        t = t + 1
        found = weakref.finalize(thing, called.append, 1)
        return t * 2, found, found.alive

    for fn in (f, capture(f)):
        for _ in range(2):
            thing = Thing()
            _, found, alive = fn(torch.ones(2), thing)
            assert alive and found.alive and not called
            del thing
            assert called == [1] and not found.alive
            called.clear()
