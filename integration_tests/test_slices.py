"""Slices of sweeps: the tests run one case in n of a product, and every kind if they can."""

import itertools
from types import SimpleNamespace

import pytest

from tools import testing


def family(**kinds):
    """The cases of a product, as pytest collects them."""
    return [
        SimpleNamespace(
            path=testing.ROOT / "test_it.py", nodeid=f"test_it.py::test_it[{values}]",
            callspec=SimpleNamespace(params=dict(zip(kinds, values, strict=True))),
        )
        for values in itertools.product(*kinds.values())
    ]  # fmt: skip


@pytest.mark.parametrize("first, second", [(2, 3), (5, 5), (3, 20), (1, 7)])
def test_every_kind_is_in_a_slice_that_can_hold_all(first, second):
    cases = family(first=[f"a{n}" for n in range(first)], second=range(second))
    ordered = testing.spread(cases)
    taken = ordered[: first + second]
    for name in ("first", "second"):
        kinds = {case.callspec.params[name] for case in cases}
        assert {case.callspec.params[name] for case in taken} == kinds
    assert sorted(map(id, ordered)) == sorted(map(id, cases))
    assert testing.spread(cases[::-1]) == ordered
