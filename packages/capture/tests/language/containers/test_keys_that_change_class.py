"""A key that a container is only given is of any class in a later call: one that cannot be hashed
raises where it is put in, before the program's handlers."""

import pytest
import torch

KEYS = (1, 2, "a", None, 1.5, [], (1,), ([],), {}, (1, ()), (1, {}), slice(1), "b")
PUT = {
    "dict": ({}, lambda d, key: d.__setitem__(key, 5)),
    "dict, by default": ({}, lambda d, key: d.setdefault(key, 5)),
    "set": (set(), lambda d, key: d.add(key)),
    "set, discarded": ({1}, lambda d, key: d.discard(key)),
    "set, removed": ({1, 2}, lambda d, key: d.remove(key)),
}


@pytest.mark.parametrize("put", PUT)
def test_a_key_of_another_class(put, capture, same):
    given, put_in = PUT[put]

    def fn(t, held, key):
        try:
            put_in(held, key)
        except (TypeError, KeyError) as error:
            return t + 1, type(error), str(error)
        return t + 1, held

    compiled = capture(fn, cache_size_limit=len(KEYS) + 1)
    for key in KEYS:
        same(compiled(torch.ones(1), given.copy(), key), fn(torch.ones(1), given.copy(), key))
