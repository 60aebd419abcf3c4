"""Attributes that compiled code gives a class which had none of the name."""

import flambeau_capture as fc
import pytest
import torch


def classes(root):
    class Base(root):
        base = 1

    class Middle(Base):
        known = 2

        def __init__(self):
            super().__init__()
            self.own = 3

        def method(self):
            return self.added if hasattr(self, "added") else -1

    class Answering(Middle):
        def __getattr__(self, name):
            if name == "fallback":
                return 7
            parent = getattr(super(), "__getattr__", None)
            if parent is None:
                raise AttributeError(name)
            return parent(name)

    return Base, Middle, Answering


#: `B`, `C`, `D` derive from each other, `o` and `p` are of `C` and `D`; whether in one graph
PROGRAMS = {
    "C.added = 5; found = C.added, o.added, D.added, p.added, hasattr(B, 'added')": True,
    "was = hasattr(o, 'added'); C.added = 5; found = was, hasattr(o, 'added'), o.method()": True,
    "B.added = 6; found = o.added, p.added, C.added, p.method()": True,
    "found = [p.fallback]; C.fallback = 8; found.append(p.fallback)": True,
    "C.own = 9; found = C.own, D.own": True,
    "C.own = 9; found = o.own, C.own, D().own": False,
    "D.known = 10; found = C.known, D.known, p.known, o.known": True,
    "C.added = 1; found = 'added' in C.__dict__, 'added' in vars(o), 'added' in vars(D)": True,
    "C.added = 1; found = 'added' in dir(C), 'added' in dir(D)": False,
    "found = [getattr(o, 'added', 0)]; C.added = 1; found.append(getattr(o, 'added', 0))": True,
    "C.added = getattr(C, 'added', 0) + 1; found = C.added": True,
    "C.added = 1; o.added = 2; found = C.added, o.added, D().added": False,
    "C.added = torch.ones(2); found = o.added + 1, C.added.shape": True,
    "C.added = [1]; o.added.append(2); found = C.added, p.added is C.added": True,
    "C.added = 1; found = C().added, [kind.added for kind in (C, D)]": True,
    "B.known = 1; found = super(C, o).known, C.known": True,
    "C.a = 1; B.a = 2; found = C.a, B.a, D.a, o.a": False,
    "C.added = lambda self: 5; found = o.added()": False,
    "C.added = property(lambda self: 5); found = o.added": False,
    "C.__len__ = lambda self: 3; found = len(o)": False,
    "C.added = 1; del C.added; found = hasattr(o, 'added')": False,
}


@pytest.mark.parametrize("root", [object, torch.nn.Module])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager(program, root) -> None:
    lines = "\n".join(f"    {line.strip()}" for line in program.split(";"))
    text = f"def fn(x, B, C, D, o, p):\n    x = x + 1\n{lines}\n    return x * 2, found"
    scope = {"torch": torch}
    exec(text, scope)
    fn, seen = scope["fn"], []
    for call in (fn, fc.compile(fn, backend="eager", fullgraph=PROGRAMS[program])):
        kinds = classes(root)
        given = (*kinds, kinds[1](), kinds[2]())
        for _ in range(3):
            _, found = call(torch.ones(1), *given)
            own = [{k: str(v) for k, v in vars(kind).items() if not hasattr(v, "__get__")}
                   for kind in kinds]  # fmt: skip
            seen.append((str(found), [_visible(names) for names in own]))
    assert seen[:3] == seen[3:]


def _visible(names):
    return {name: value for name, value in names.items() if not name.startswith("_")}
