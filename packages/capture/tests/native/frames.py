"""Stand-ins for compiled code: what the tests of the hook convert frames to."""

from __future__ import annotations

from flambeau_capture._native import SKIP, Entry, FrameCache, GuardTree


def swap_constant(code, old, new):
    """The same code with one constant changed: a stand-in for compiled code."""
    assert old in code.co_consts
    return code.replace(co_consts=tuple(new if c == old else c for c in code.co_consts))


def replacing(old, new, log=None):
    """A `convert` that swaps a constant in the codes that have it and skips all others."""

    def convert(code, func, locals, free, cache):
        if log is not None:
            log.append((code.co_name, dict(locals), dict(free)))
        if old not in code.co_consts:
            return SKIP
        return Entry(swap_constant(code, old, new), None)

    return FrameCache(convert)


def keep_all(code, func, locals, free, cache):
    """Every code is 'compiled' to itself, line for line."""
    return Entry(code.replace(), None)


def local_is(index, value):
    from flambeau_capture._native import ACCESS, CHECK

    return GuardTree(
        ((-1, ACCESS["ROOT"], None), (0, ACCESS["LOCAL"], index)),
        ((1, CHECK["SAME"], value),),
        0,
        (),
        (),
    )


def fails(x):
    y = x + 1000
    raise ValueError(y)  # line 3 of the function
