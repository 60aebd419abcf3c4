"""Watched parts of guard trees: armed after a few calls, cheap in number, dropped when due."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from flambeau_capture.guards import GuardSet
from flambeau_capture.source import Attr, ConstantSource, Global, InstanceAttr, Item, Local, Scope


def frame(self: Any) -> None:
    return None


class Plain:
    level = 1


def tree_of(root: Any, *rows: Any, namespace: dict[str, Any] | None = None):
    guards = GuardSet(frame.__code__)
    guards.add(Local("self"), "ID_MATCH", root)
    for source, kind, *params in rows:
        guards.add(source, kind, *params)
    finished = guards.finish()
    names = namespace if namespace is not None else {}

    def ask(value: Any = root) -> bool:
        native = finished.native.check((value,), None, names, {})
        assert native == finished.check(Scope({"self": value}, {}, names, {}))
        return native

    return finished.native, ask


def test_a_part_is_watched_from_the_third_call_on():
    root = Plain()
    root.x = 5
    native, ask = tree_of(root, (InstanceAttr(Local("self"), "x"), "CONSTANT_MATCH", 5))
    counts = []
    for _ in range(4):
        assert ask()
        counts.append(native.witnesses()["armed"])
    assert counts == [0, 1, 1, 1]
    assert native.witnesses()["residues"] == 0 and native.witnesses()["words"] == 2


def test_a_busy_dict_is_looked_at_and_stays_watched():
    root = Plain()
    root.x, root.calls = 5, 0
    native, ask = tree_of(root, (InstanceAttr(Local("self"), "x"), "CONSTANT_MATCH", 5))
    for _ in range(20):
        root.calls += 1
        assert ask()
    assert native.witnesses()["armed"] == 1
    root.x = 6
    assert not ask() and native.witnesses()["armed"] == 0
    root.x = 5
    assert ask()


def test_namespaces_and_held_objects_are_one_part():
    names = {"a": 1, "cls": Plain}
    native, ask = tree_of(
        Plain(),
        (Global("a"), "CONSTANT_MATCH", 1),
        (Attr(ConstantSource(Plain, "Plain"), "level"), "CONSTANT_MATCH", 1),
        namespace=names,
    )
    for i in range(5):
        names["i"] = i
        assert ask()
    assert native.witnesses()["armed"] == 1
    Plain.level = 2
    try:
        assert not ask()
    finally:
        Plain.level = 1
    assert ask()


def test_properties_are_asked_every_time():
    class Moody:
        answers = [1, 1, 1, 1, 2]
        mood = property(lambda self: self.answers.pop(0))

    root = Moody()
    guards = GuardSet(frame.__code__)
    guards.add(Local("self"), "ID_MATCH", root)
    guards.add(Attr(Local("self"), "mood"), "CONSTANT_MATCH", 1)
    native = guards.finish().native
    assert [native.check((root,), None, {}, {}) for _ in range(5)] == [True] * 4 + [False]
    assert native.witnesses()["residues"] == 0 or root.answers == []


def test_special_methods_of_a_class():
    class Quiet:
        pass

    root = Quiet()
    native, ask = tree_of(root, (ConstantSource(Quiet, "Quiet"), "CLASS_SPECIALS", Quiet))
    for _ in range(4):
        assert ask()
    Quiet.calls = 1  # no special method
    assert ask()
    Quiet.__getattr__ = lambda self, name: 1
    assert not ask()
    del Quiet.__getattr__
    assert ask()
    Quiet.__call__ = lambda self: 1
    assert not ask()
    assert native.witnesses()["regions"] == 1


def test_what_changed_is_let_go():
    class Big:
        pass

    root = Plain()
    root.big = Big()
    alive = weakref.ref(root.big)
    _, ask = tree_of(root, (InstanceAttr(Local("self"), "big"), "TYPE_MATCH", Big))
    for _ in range(4):
        assert ask()
    root.big = None
    assert not ask()
    gc.collect()
    assert alive() is None


def test_trees_are_collected_with_what_they_watch():
    root = Plain()
    root.items = [Plain()]
    alive = weakref.ref(root)
    native, ask = tree_of(
        root, (Item(InstanceAttr(Local("self"), "items"), 0, "list"), "TYPE_MATCH", Plain)
    )
    for _ in range(4):
        assert ask()
    assert native.witnesses()["armed"] == 1
    root.tree = native  # a cycle through the watched part
    del root, native, ask
    gc.collect()
    assert alive() is None


def test_python_code_that_asks_the_tree_again():
    class Nested:
        pass

    root = Nested()
    root.x = 1
    guards = GuardSet(frame.__code__)
    guards.add(Local("self"), "ID_MATCH", root)
    guards.add(InstanceAttr(Local("self"), "x"), "CONSTANT_MATCH", 1)
    depth = []

    def ask_again(value: Any) -> bool:
        if len(depth) < 3:
            depth.append(1)
            try:
                return native.check((root,), None, {}, {})
            finally:
                depth.pop()
        return True

    guards.add(Local("self"), "CALL", ask_again, "asked again")
    native = guards.finish().native
    assert [native.check((root,), None, {}, {}) for _ in range(6)] == [True] * 6
    root.x = 2
    assert not native.check((root,), None, {}, {})


@pytest.mark.parametrize("rows", [((("a",),),), ((1, 2),), [("a", 1)]])
def test_tables_of_methods_are_pairs(rows):
    from flambeau_capture._native import ACCESS, CHECK, GuardTree

    with pytest.raises(ValueError, match="does not fit"):
        GuardTree(((-1, ACCESS["ROOT"], None),), ((0, CHECK["TYPE_METHODS"], rows),), 0, (), ())
