"""An index that varies is left open, whatever else is among the keys: read and written."""

import pytest
import torch

KEYS = ("n", "n, 1", ":, n", "..., n", "1, n", "n, :2", "1:, n", ":, n, None", "n, n")
VALUES = ("1.5", "2", "True", "k", "v.sum()", "v", "v[None]", "x[0, 0] * 2", "x[{key}] + 1")


def program(key, value):
    names = {"torch": torch}
    exec(
        f"def f(x, n, v, k):\n    x = x.clone()\n    x[{key}] = {value.format(key=key)}\n"
        f"    return x * 2, x[{key}]\n",
        names,
    )
    return names["f"]


def outcome(fn, *args):
    try:
        written, read = fn(*args)
        return written.tolist(), read.tolist(), written.dtype
    except (RuntimeError, IndexError, TypeError) as error:
        return type(error)


@pytest.mark.sweep(6)
@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        *((value, torch.float32) for value in VALUES),
        *((value, torch.int64) for value in ("1.5", "True", "k")),
    ],
)
def test_a_write(capture, backend, value, dtype):
    for key in KEYS:
        plain = program(key, value)
        fn = capture(plain)
        for n in (2, 3, 5, 7, -1, 9):
            x, v = torch.arange(64).reshape(8, 8).to(dtype), torch.full((1,), 9).to(dtype)
            assert outcome(fn, x, n, v, n / 2) == outcome(plain, x, n, v, n / 2), (key, n)
        if key != ":, n, None":
            assert len(backend) <= 4, key
        backend.clear()


def test_a_cache_is_written_by_one_graph(capture, backend):
    def f(cache, i, v):
        cache[:, i] = v
        return cache + 1

    fn = capture(f)
    ours, theirs = torch.zeros(4, 16), torch.zeros(4, 16)
    for i in range(2, 16):
        assert torch.equal(fn(ours, i, torch.full((4,), i)), f(theirs, i, torch.full((4,), i)))
        assert torch.equal(ours, theirs)
    assert len(backend) == 2
