"""`|` of mappings and `%` of text whose classes derive from built-in ones, and operators of views:
every pair of operands, as an operator and by the methods."""

import pytest
import torch

CLASSES = """
import collections, enum
class D(dict): pass
class WithOr(dict):
    def __or__(self, other): return "or", dict(self), dict(other)
class WithRor(dict):
    def __ror__(self, other): return "ror", dict(self), dict(other)
class O(collections.OrderedDict): pass
class ORor(collections.OrderedDict):
    def __ror__(self, other): return "oror", dict(self)
class F(collections.defaultdict): pass
class C(collections.Counter): pass
class S(str): pass
class SMod(str):
    def __mod__(self, other): return "mod", other
class SRmod(str):
    def __rmod__(self, other): return "rmod", other
class SStr(str):
    def __str__(self): return "sstr"
class I(int):
    def __str__(self): return "istr"
class R:
    def __rmod__(self, other): return "r", str(other)
    __ror__ = __rand__ = __rsub__ = __rxor__ = __rmod__
    def __repr__(self): return "R"
class E(str, enum.Enum):
    A = "%s"
"""
MAPPINGS = (
    "{'a': 1}", "D(a=1, b=2)", "WithOr(a=3)", "WithRor(c=2)", "collections.OrderedDict(a=1)",
    "O(b=2)", "ORor(a=3)", "collections.defaultdict(int, a=1)", "F(list, b=3)",
    "collections.Counter('aab')", "C('ab')", "collections.ChainMap({'a': 1})", "[('a', 2)]",
)  # fmt: skip
TEXTS = (
    "'%s'", "S('%s!')", "SMod('%s')", "SRmod('%d')", "SStr('%s')", "S('%(a)s')", "b'%s'",
    "'%d %s'", "S('none')", "S('')", "S('%%')", "E.A",
)  # fmt: skip
GIVEN = (
    "3", "(3,)", "(1, 'a')", "{'a': 1}", "D(a=2)", "S('x')", "SRmod('y')", "SMod('z')",
    "SStr('w')", "I(4)", "[1]", "()", "None", "(SStr('q'), I(3))", "b'q'", "R()",
)  # fmt: skip
VIEWS = ("{'a': 1}.keys()", "{'a': 1}.items()", "{'a': 1}.values()", "D(a=1).keys()")
CASES = [
    *((a, b, "a | b", "a.__or__(b)", "a.__ror__(b)") for a in MAPPINGS for b in MAPPINGS),
    *((a, b, "a % b", "b % a") for a in TEXTS for b in GIVEN),
    *((a, b, "a | b", "a & b", "a - b", "a ^ b") for a in VIEWS for b in ("R()", "{'a'}", "['a']")),
    ("bytearray(b'%s')", "R()", "a % b"),
]


def shown(value):
    kind = type(value).__name__
    if isinstance(value, dict):
        factory = getattr(value, "default_factory", None)
        return kind, [(shown(key), shown(each)) for key, each in value.items()], factory
    if isinstance(value, list | tuple):
        return kind, [shown(each) for each in value]
    return kind, str.__repr__(value) if isinstance(value, str) else repr(value)


def answer(a, b, uses, held, wrap):
    tried = "".join(
        f"    try: found.append({use})\n"
        "    except Exception as error: found.append((type(error).__name__, str(error)))\n"
        for use in uses
    )
    left, right = ("A", "B") if held else (a, b)
    names = {"__name__": "__main__"}
    body = f"    a, b, found = {left}, {right}, []\n{tried}    return x + 1, found, a, b\n"
    exec(f"{CLASSES}A, B = {a}, {b}\ndef f(x):\n{body}", names)
    return shown(list(wrap(names["f"])(torch.ones(2))[1:]))


@pytest.mark.sweep(20)
@pytest.mark.parametrize("held", [False, True], ids=["made", "given"])
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_pairs_of_operands(capture, case, held):
    a, b, *uses = case
    assert answer(a, b, uses, held, capture) == answer(a, b, uses, held, lambda fn: fn)
