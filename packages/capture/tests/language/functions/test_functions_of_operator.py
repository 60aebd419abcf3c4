"""Every function of `operator` is the operator that it is named for, in one graph; what Python
refuses is refused in its words. Generated from the module's own list."""

import inspect
import operator

import pytest

#: what some take in place of numbers
GIVEN = {
    "attrgetter": "'shape'", "itemgetter": "0", "methodcaller": "'relu'", "call": "len, [1]",
    "concat": "[1], [2]", "iconcat": "[1], (2, 3)", "contains": "[1, 2], 2", "countOf": "[1, 1], 1",
    "delitem": "[1, 2], 0", "getitem": "[1, 2], 0", "indexOf": "[1, 2], 2", "length_hint": "[1]",
    "setitem": "[1, 2], 0, 3",
}  # fmt: skip
#: no built-in type has the operator
OF_TENSORS = ("matmul", "imatmul")
FUNCTIONS = [
    name for name in operator.__all__
    if isinstance(getattr(operator, name), type(operator.add)) and name not in OF_TENSORS
]  # fmt: skip


def called(name):
    function = getattr(operator, name)
    count = len(inspect.signature(function).parameters)
    return [GIVEN.get(name, ", ".join(("7", "3", "2")[:count])), ", ".join(["{}", "None"][:count])]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_operator_are_captured(name, one_graph):
    good, bad = called(name)
    lines = [
        "def f(t):", "    t = t + 1", f"    r = operator.{name}({good})", "    try:",
        f"        r = r, operator.{name}({bad})", "    except Exception as error:",
        "        r = r, str(error)", "    return t, r",
    ]  # fmt: skip
    space = {"operator": operator}
    exec("\n".join(lines), space)
    one_graph(space["f"])
