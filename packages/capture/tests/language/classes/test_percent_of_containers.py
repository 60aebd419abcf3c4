"""`text % container`: what has items by key takes no place of the text."""

import collections

import pytest
import torch


class Keyed(collections.deque):
    def __getitem__(self, key):
        return key


class Items(collections.deque):
    pass


KINDS = [Keyed, Items, collections.deque, list, dict, collections.OrderedDict, set, str]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_only_a_mapping_may_be_left_over(kind, capture):
    def fn(x, given):
        try:
            return x + 1, "s" % given  # noqa: F507, UP031
        except TypeError as error:
            return x - 1, str(error)

    x, given = torch.ones(2), kind()
    (told, text), (expected, words) = capture(fn)(x, given), fn(x, given)
    assert told.tolist() == expected.tolist()
    assert text == words
