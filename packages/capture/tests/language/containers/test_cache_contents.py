"""What functools' caches hold and have counted after compiled calls, where what cached functions
read changes."""

import functools
import itertools
import os

import pytest
import torch

CACHES = {
    "cache": functools.cache,
    "bounded": functools.lru_cache,
    "of one": functools.lru_cache(1),
    "of two": functools.lru_cache(2),
    "typed": functools.lru_cache(maxsize=None, typed=True),
    "of none": functools.lru_cache(0),
}


class State:
    number = 1
    tensor = torch.zeros(2)
    log: list = []


def _raise(n):
    raise ValueError(n * State.number)


def _record(n):
    State.log.append(n)
    return n * len(State.log)


#: what a cached function does with its argument as a number
MAKES = {
    "number": lambda n: n * State.number,
    "tuple": lambda n: (n * State.number, n),
    "list": lambda n: [i * State.number + n for i in range(3)],
    "tensor": lambda n: torch.full((2,), 1.0 * n) * State.number,
    "from a tensor": lambda n: State.tensor * n,
    "drawn": lambda n: torch.rand(()) * n,
    "raises": _raise,
    "writes": _record,
}

#: what it is called with, of the program's tensor and module
ARGS = {
    "constant": lambda t, module: 3,
    "size": lambda t, module: t.shape[0],
    "sizes": lambda t, module: tuple(t.shape),
    "tensor": lambda t, module: t,
    "parameter": lambda t, module: module.weight,
    "module": lambda t, module: module,
    "new tensor": lambda t, module: t + 1,
}


def _as_number(arg):
    if isinstance(arg, tuple):
        return arg[0]
    if isinstance(arg, torch.Tensor):
        return arg.flatten()[0]
    return 5 if isinstance(arg, torch.nn.Module) else arg


def _use(t, answer):
    return t.sum() * (answer[0] if isinstance(answer, tuple | list) else answer)


def _change_before(call, arg, t):
    State.number += 1
    return _use(t, call(arg))


def _change_after(call, arg, t):
    out = _use(t, call(arg))
    State.number += 1
    return out


def _change_between(call, arg, t):
    one = call(arg)
    State.number += 1
    other = call(arg)
    return _use(t, one), one is other


def _call_of_another(call, arg, t):
    one = call(arg)
    State.number += 1
    other = call(2)
    return _use(t, one), _use(t, other), _use(t, call(arg))


def _write_to_a_tensor(call, arg, t):
    State.tensor.add_(1)
    return _use(t, call(arg))


def _in_a_branch(call, arg, t):
    State.number += 1
    return _use(t, call(arg)) if t.shape[0] > 3 else t.sum() * State.number


def _in_a_mode(call, arg, t):
    State.number += 1
    with torch.no_grad():
        return _use(t, call(arg))


def _give_it_back(call, arg, t):
    return t * 2, call(arg)


def _clear(call, arg, t):
    one = _use(t, call(arg))
    State.number += 1
    getattr(call, "__self__", call).cache_clear()
    return one, _use(t, call(arg))


BODIES = {
    body.__name__.strip("_").replace("_", " "): body
    for body in (
        _change_before,
        _change_after,
        _change_between,
        _call_of_another,
        _write_to_a_tensor,
        _in_a_branch,
        _in_a_mode,
        _give_it_back,
        _clear,
    )
}

GRID = [*itertools.product(CACHES, MAKES, ARGS, BODIES)]
EVERY = 1 if os.environ.get("FLAMBEAU_SWEEPS") == "1" else 97


def _shown(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [*map(_shown, value)] if isinstance(value, tuple | list) else value


def life(wrap, cache, make, arg, body, others=lambda fn: fn):
    """What a program sees of calls with several sizes, some of them made by another one."""
    State.number, State.tensor, State.log = 1, torch.zeros(2), []
    torch.manual_seed(0)
    cached = CACHES[cache](lambda n: MAKES[make](_as_number(n)))
    module = torch.nn.Linear(2, 2)
    torch.nn.init.ones_(module.weight)

    def program(t):
        try:
            return BODIES[body](cached, ARGS[arg](t, module), t)
        except ValueError as error:
            return t + 1, str(error)

    run, other, seen = wrap(program), others(lambda t: t * 2 + program(t)[0]), []
    for place, rows in enumerate([3, 3, 4, 5, 3, 6, 4]):
        seen.append((_shown(run(torch.ones(rows, 2))), *cached.cache_info(), State.number))
        if place == 3:
            State.number += 3
        if place == 4 and body in ("change between", "give it back"):
            other(torch.ones(7, 2))
    return seen


@pytest.mark.parametrize("case", GRID[::EVERY], ids=" - ".join)
def test_caches_hold_what_they_hold_in_eager(capture, case):
    assert life(lambda fn: fn, *case) == life(capture, *case)


@pytest.mark.parametrize("arg", ["constant", "size", "module"])
def test_two_compiled_functions_share_a_cache(capture, arg):
    case = ("cache", "tuple", arg, "change between")
    assert life(lambda fn: fn, *case) == life(capture, *case, others=capture)


def test_entries_of_other_answers_are_seen_at_open_sizes(capture):
    worlds = []
    for wrap in (lambda fn: fn, capture):
        State.number, cached = 1, functools.cache(lambda n: n * State.number)
        run, seen = wrap(lambda t, cached=cached: t.sum() * cached(t.shape[0])), []
        for rows in (5, 6):
            cached(rows)
        State.number = 2
        for rows in (3, 4, 5, 6, 7):
            seen.append((run(torch.ones(rows)).item(), *cached.cache_info()))
        cached.cache_clear()
        seen.append((run(torch.ones(5)).item(), *cached.cache_info()))
        worlds.append(seen)
    assert worlds[0] == worlds[1]


def test_entries_of_the_same_answers_leave_sizes_open(capture, backend):
    def factors(sizes, order):
        return [sizes[place] for place in order], [*order]

    cached = functools.lru_cache(256)(factors)

    def program(t):
        shape, order = cached(tuple(t.shape), (2, 0, 1))
        return t.permute(order).reshape(shape) * 2

    run = capture(program, nopython=True)
    for rows in (4, 5, 6, 7, 4, 9):
        t = torch.arange(rows * 6.0).reshape(rows, 3, 2)
        assert torch.equal(run(t), program(t))
    assert len(backend) == 2
    assert cached.cache_info().misses == 5


def nested(part):
    inner = functools.cache(lambda n: [n * State.number])
    outer = functools.cache(lambda n: (inner(n)[0] + inner(n + 1)[0], inner(n)))

    def program(t):
        State.number += 1
        n = t.shape[0] if part == "size" else 3
        two, one = outer(n), inner(n)
        if part == "inner first":
            one, two = inner(n), outer(n + 1)
        return t.sum() * two[0] + one[0], two[1] is one

    return program, (inner, outer)


@pytest.mark.parametrize("part", ["constant", "size", "inner first"])
def test_cached_functions_that_call_cached_functions(capture, part):
    worlds = []
    for wrap in (lambda fn: fn, capture):
        State.number = 1
        program, caches = nested(part)
        run = wrap(program)
        seen = [_shown(run(torch.ones(rows))) for rows in (3, 3, 4, 5, 3, 6)]
        # of a frame that has no tensor, what it made while it was captured is found when it runs
        worlds.append((seen, [each.cache_info()[part == "size" :] for each in caches]))
    assert worlds[0] == worlds[1]


TRANSFORMS = {
    "vmap": lambda t, cached: torch.vmap(lambda row: row * cached(3)[0])(t),
    "grad": lambda t, cached: torch.func.grad(lambda row: (row * cached(3)[0]).sum())(t),
    "checkpoint": lambda t, cached: torch.utils.checkpoint.checkpoint(
        lambda row: row * cached(3)[0], t.clone().requires_grad_(), use_reentrant=False
    ),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_first_calls_inside_of_transforms(capture, transform):
    worlds = []
    for wrap in (lambda fn: fn, capture):
        State.number, cached = 1, functools.cache(lambda n: torch.ones(2) * (n * State.number))
        run, seen = wrap(lambda t, cached=cached: TRANSFORMS[transform](t, cached)), []
        for _ in range(3):
            seen.append((run(torch.ones(4, 2)).tolist(), cached.cache_info().misses))
            State.number += 1
        worlds.append(seen)
    assert worlds[0] == worlds[1]
