"""What a class and its instances become between calls: an attribute is looked up as Python does at
each. Generated: kinds of classes, under uses of instance and class, through a row of changes. No
guard runs code of the program: what was logged is eager's too.
"""

import enum

import pytest
import torch

KINDS = {
    "plain": """
        class C:
            a = 3""",
    "answering metaclass": """
        class Meta(type):
            m = 4
            def __getattr__(cls, name):
                LOG.append(name)
                return 5
        class C(metaclass=Meta):
            a = 3""",
    "asked metaclass": """
        class Meta(type):
            m = 4
            def __getattribute__(cls, name):
                if name in ("a", "b", "m"): LOG.append(name)
                return type.__getattribute__(cls, name)
        class C(metaclass=Meta):
            a = 3""",
    "property of the metaclass": """
        class Meta(type):
            m = 4
            @property
            def a(cls): return 6
        class Base(metaclass=Meta):
            a = 2
        class C(Base):
            pass""",
    "module": """
        class C(nn.Module):
            a = 3""",
    "base": """
        class Base:
            a = 2
        class C(Base):
            def __getattr__(self, name):
                LOG.append(name)
                raise AttributeError(name)""",
    "flag": """
        class C(enum.Flag):
            A = 1
            B = 2""",
    "enumeration": """
        class C(enum.Enum):
            A = 1
            B = (2, 3)
            def __init__(self, *given): self.a = given[0]
            @property
            def m(self): return self.a""",
    "number": """
        class C(enum.IntEnum):
            A = 1
            B = 2
            @classmethod
            def m(cls): return cls.a""",
}
#: made in the frame, or found by it
MAKES = {"flag": "C.B", "enumeration": "C.B", "number": "C.B"}
USES = (
    "o.a", "o.b", "o.m", "C.a", "C.m", "type(o).b", "getattr(o, 'a', 7)", "hasattr(o, 'b')",
    "hasattr(C, 'b')", "setattr(o, 'a', o.a + 1)", "setattr(o, 'b', o.a) or o.b", "o._x",
    "MADE.a", "MADE.b", "MADE.zz",
)  # fmt: skip
CHANGES = (
    "C.a = 11", "C.b = torch.full((2,), 2.0)", "o.a = 12", "o._x = 1; C._x = 2",
    "C.__getattr__ = lambda self, name: LOG.append(name) or 13",
    "del C.a", "C.a = property(lambda self: 14)",
)  # fmt: skip


def played(kind, use, breaks, wrap):
    lines = KINDS[kind].split("\n")
    space = {"torch": torch, "nn": torch.nn, "enum": enum, "LOG": [], "__name__": "program"}
    exec("\n".join(line[8:] for line in lines), space)
    made = MAKES.get(kind, "C()")
    more = "\n    breaks()" if breaks else ""
    exec(f"def f(x, o):{more}\n    return x * 2, {use.replace('MADE', made)}", space)
    space["breaks"] = lambda: print("", end="")
    o = space["o"] = eval(made, space)
    target = wrap(space["f"])
    seen = []
    for change in ("", *CHANGES):
        try:
            exec(change, space)
        except Exception as error:
            seen.append(type(error))
        for size in (2, 2, 3):
            try:
                found = target(torch.ones(size), o)
            except Exception as error:
                found = type(error), str(error)
            seen.append(shown(found))
        seen.append((shown(vars(o).get("a")), shown(vars(o).get("b")), [*space["LOG"]]))
    return seen


def shown(found):
    """A text without where the object is."""
    return str(found).partition(" at 0x")[0]


@pytest.mark.sweep(4)
@pytest.mark.filterwarnings("ignore:.*cache_size_limit")  # of hooks that log
@pytest.mark.parametrize("kind", KINDS)
def test_an_attribute_after_each_change(capture, kind):
    for breaks, use in enumerate(USES):
        eager = played(kind, use, breaks % 2, lambda f: f)
        assert played(kind, use, breaks % 2, capture) == eager, use
