"""Minimum cuts against brute force."""

import itertools

import pytest
from flambeau_aot.partition.mincut import Unbounded, minimum_cut
from hypothesis import given, settings
from hypothesis import strategies as st


def brute_force(edges, vertices):
    best = None
    for size in range(len(vertices) + 1):
        for chosen in itertools.combinations(vertices, size):
            near = {"s", *chosen}
            crossing = [c for a, b, c in edges if a in near and b not in near]
            if None in crossing:
                continue
            total = sum(crossing)
            best = total if best is None else min(best, total)
    return best


edge = st.tuples(
    st.sampled_from(["s", 0, 1, 2, 3]),
    st.sampled_from([0, 1, 2, 3, "t"]),
    st.one_of(st.none(), st.integers(0, 9)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(edge, max_size=14))
def test_minimum_cut_is_minimal(edges) -> None:
    edges = [item for item in edges if item[0] != item[1]]
    expected = brute_force(edges, [0, 1, 2, 3])
    if expected is None:
        with pytest.raises(Unbounded):
            minimum_cut(edges, "s", "t")
        return
    value, near = minimum_cut(edges, "s", "t")
    assert value == expected
    assert sum(c for a, b, c in edges if a in near and b not in near) == expected
    assert "s" in near
    assert "t" not in near
