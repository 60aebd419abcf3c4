"""functools.lru_cache: what a cached function has made is the same object in every call."""

import functools

import pytest
import torch


def of(make):
    """A cached function, a cached method's owner, and both forgotten between worlds."""

    def method(self, n):
        return make(n)

    owner = type("Owner", (), {"method": functools.cache(method)})()
    return functools.lru_cache(make), owner


MAKES = {
    "tensor": lambda n: torch.zeros(n),
    "list": lambda n: [n],
    "pair": lambda n: (torch.zeros(n), n),
    "number": lambda n: n + 1,
}


def first(value):
    return value[0] if isinstance(value, tuple) else value


USES = {
    "read": lambda t, a, b: t * 1 + (len(a) if isinstance(a, list) else first(a)),
    "is the same": lambda t, a, b: (t * 1, a is b, a is not b),
    "written to": lambda t, a, b: (
        t + (first(a).add_(1) if isinstance(first(a), torch.Tensor) else 1)
    ),
    "written to by an operator": lambda t, a, b: t * 2 + _plus(a) + first(b)[:1],
    "appended to": lambda t, a, b: t + (a.append(1) or len(b) if isinstance(a, list) else 0),
    "returned": lambda t, a, b: (t * 2, a),
}


def _plus(value):
    value = first(value)
    if isinstance(value, torch.Tensor):
        value += 1
        return value
    return 1


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("through", ["function", "method"])
def test_it_is_kept_as_in_eager(capture, make, use, through):
    if use == "written to by an operator" and make not in ("tensor", "pair"):
        return
    worlds = []
    for wrap in (lambda fn: fn, capture):
        cached, owner = of(MAKES[make])
        call = cached if through == "function" else owner.method

        def fn(t, call=call):
            return USES[use](t, call(3), call(3))

        run, seen = wrap(fn), []
        for _ in range(3):
            seen.append(repr(run(torch.ones(3))))
        seen.append(repr(call(3)))
        worlds.append(seen)
    assert worlds[0] == worlds[1]


def test_what_is_only_read_is_in_one_graph(capture, backend):
    table = functools.lru_cache(lambda n, device: torch.arange(n, device=device) * 2.0)
    compiled = capture(lambda t: t + table(t.shape[0], t.device) + table(t.shape[0], t.device))
    for _ in range(2):
        assert compiled(torch.ones(3)).tolist() == [1.0, 5.0, 9.0]
    assert len(backend) == 1
