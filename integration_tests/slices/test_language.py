"""Python's reference: a fixed slice of its constructs, and whether the list of them is whole."""

from __future__ import annotations

import builtins
import sys

import pytest

from integration_tests.conformance import builtin_types, running, special_methods, syntax

EVERY = 45
"""Of the rows of the page, each so many-th is judged here."""
PYTHON = "{}.{}".format(*sys.version_info)


@pytest.fixture(scope="module")
def constructs():
    return [*running.constructs()]


def test_a_slice_is_as_kept(constructs):
    """All of it: `nox -s conformance`."""
    kept = running.kept()
    states = running.states_of(constructs[::EVERY])
    assert len(states) > 20
    wrong = {key: s["why"] for key, s in states.items() if s["state"] == running.WRONG}
    expected = {key for key, s in kept["states"].items() if s["state"] == running.WRONG}
    assert {key: why for key, why in wrong.items() if key not in expected} == {}
    if kept["python"] == PYTHON:
        found = {key: s["state"] for key, s in states.items()}
        assert found == {key: kept["states"][key]["state"] for key in found}


def test_every_class_of_the_syntax_is_used_with_every_field():
    rows = [*syntax.constructs()]
    assert syntax.unmet([p.function() for row in rows for p in row.programs()]) == []


def test_names_of_constructs_are_unique(constructs):
    keys = [construct.key for construct in constructs]
    assert sorted(keys) == sorted(set(keys))


def test_special_methods_and_built_in_names_are_listed():
    """What the data model's own types define, and `builtins`."""
    methods = " ".join(row.name for row in special_methods.constructs())
    for kind in (int, float, str, list, dict, set, type, object):
        named = {name for name in vars(kind) if name.startswith("__") and name.endswith("__")}
        assert {name for name in named if name not in methods} <= INNER
    parts = (builtin_types.functions, builtin_types.exceptions)
    listed = {row.name.partition(":")[0] for part in parts for row in part()}
    assert {*dir(builtins)} - listed - builtin_types.NOT_USED <= {"EncodingWarning"}


#: what C types have for `pickle`, sizes and their own text, which no program of a model defines
INNER = {
    "__getnewargs__", "__sizeof__", "__reduce__", "__reduce_ex__", "__getstate__", "__basicsize__",
    "__itemsize__", "__flags__", "__weakrefoffset__", "__dictoffset__", "__subclasshook__",
    "__text_signature__", "__abstractmethods__", "__getformat__", "__type_params__", "__base__",
    "__doc__",
}  # fmt: skip
