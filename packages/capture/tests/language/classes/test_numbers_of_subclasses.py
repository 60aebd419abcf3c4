"""Numbers and texts of subclasses that define special methods of their own: what the built-in
functions of numbers ask them, in which order, and in whose name they refuse."""

import math
import operator
import random

import pytest
import torch

BASES = {"int": "7", "float": "2.5", "complex": "1 + 2j", "str": "'12'", "bytes": "b'12'"}
METHODS = {
    "__int__": "41", "__float__": "1.25", "__complex__": "3j", "__index__": "5",
    "__trunc__": "6", "__round__": "'r'", "__abs__": "'a'", "__divmod__": "'d'",
    "__rdivmod__": "'rd'", "__pow__": "'p'", "__rpow__": "'rp'", "__hash__": "77",
    "__format__": "'f'", "__str__": "'S'", "__bool__": "False", "__floor__": "'fl'",
    "__ceil__": "'ce'", "__neg__": "'n'",
}  # fmt: skip
USES = [
    "int(o)", "float(o)", "complex(o)", "complex(o, 1)", "complex(1, o)", "format(o)",
    "format(o, '>6')", "f'{o}'", "round(o)", "round(o, 1)", "abs(o)", "divmod(o, 2)",
    "divmod(9, o)", "pow(o, 2)", "pow(2, o)", "hash(o)", "operator.index(o)", "bool(o)", "-o",
    "math.floor(o)", "math.ceil(o)", "math.trunc(o)", "int(o, 10)", "bin(o)", "math.sqrt(o)",
    "sum([o, 1])", "range(o)", "'%d' % o",
]  # fmt: skip


def program(base, draw):
    methods = draw.sample([*METHODS], draw.randint(1, 5))
    lines = [f"class C({base}):"]
    for name in methods:
        lines += [f"    def {name}(self, *given):", f"        LOG.append('{name}')"]
        lines += [f"        return {METHODS[name]}"]
    lines += ["def f(x, o):", "    R = []"]
    for use in draw.sample(USES, 12):
        lines += [f"    try: R.append(repr({use}))"]
        lines += ["    except Exception as error: R.append((type(error).__name__, str(error)))"]
    return "\n".join([*lines, "    return x + 1, R"])


@pytest.mark.parametrize("base", BASES)
def test_they_are_asked_and_refused_as_uncompiled(base, capture):
    draw = random.Random(base)
    for _ in range(3):
        source, seen = program(base, draw), []
        for by in (lambda f: f, capture):
            space = {"LOG": [], "math": math, "operator": operator}
            exec(compile(source, "<numbers>", "exec"), space)
            given = space["C"](eval(BASES[base]))
            seen.append((by(space["f"])(torch.ones(1), given)[1], space["LOG"]))
        assert seen[0] == seen[1], source
