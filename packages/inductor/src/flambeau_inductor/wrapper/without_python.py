"""The wrapper as a program that needs no Python to run.

In: the text that `wrapper.source` generates. Out: the same steps as nested lists in parentheses,
which the C++ runtime of packages reads. Invariant: a step is spelled or `NoForm` names what has no
such spelling; nothing is left out. A list begins with what is done; a float is in hexadecimal
digits, so that it comes back exactly.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from flambeau_inductor.runtime.cpu.blocked_linear import IN_BLOCKS
from flambeau_inductor.runtime.operators import CROSSING, OWN, ROWS, WEIGHT


class NoForm(Exception):
    """What only Python can do, in a few words."""


ARITHMETIC: Mapping[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.Div: "/",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.And: "and", ast.Or: "or", ast.USub: "negative", ast.Not: "not",
}  # fmt: skip
"""Operators between numbers, by Python's name in a syntax tree."""

FUNCTIONS = {
    "empty_strided": "empty", "empty_large": "empty", "kept": "empty", "reuse": "reuse",
    "seen_as": "seen_as", "laid_out": "laid_out", "scalar": "scalar", "check_index": "check_index",
    "max": "max", "min": "min", "float": "float",
}  # fmt: skip
METHODS = {
    "as_strided": "as_strided", "detach": "detach", "data_ptr": "address", "size": "size",
    "stride": "stride",
}  # fmt: skip
KERNEL = re.compile(r"kernel(\d+)")
LEFT_OUT = ("profiler", "ROWS")


GIVEN, OUTPUT = "given_{}", "output_{}"
"""Names of the inputs and outputs of a program, whatever its steps do to their own names."""


def steps(wrapper: str) -> tuple[list[str], int]:
    """The steps of a wrapper, a line each, and how many inputs it takes. Inputs and outputs have
    names; what is returned is for the caller to say. Raises NoForm."""
    tree = ast.parse(wrapper)
    known = _Names({}, {})
    found: list[str] = []
    inputs = 0
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            known.define(statement)
        elif isinstance(statement, ast.FunctionDef):
            for each in statement.body:
                if isinstance(each, ast.Assign) and ast.unparse(each.value) == "args":
                    (target,) = each.targets
                    assert isinstance(target, ast.Tuple)
                    inputs = len(target.elts)
                    names = [ast.unparse(name) for name in target.elts]
                    found.append(listed("inputs", *names))
                    found += [listed("set", GIVEN.format(k), n) for k, n in enumerate(names)]
                elif isinstance(each, ast.Return):
                    assert isinstance(each.value, ast.Tuple)
                    for k, value in enumerate(each.value.elts):
                        found.append(listed("set", OUTPUT.format(k), known.spelled(value)))
                elif line := known.statement(each):
                    found.append(line)
    return found, inputs


def expression(text: str) -> str:
    """Arithmetic on sizes, as `steps` spells it. Raises NoForm."""
    return _Names({}, {}).spelled(ast.parse(text, mode="eval").body)


def called(operator: Any, args: Sequence[str], kwargs: Mapping[str, str]) -> str:
    """A call of an operator on values that are spelled."""
    by_name = [listed(quoted(key), value) for key, value in kwargs.items()]
    space, name, overload = str(operator).split(".")
    overload = "" if overload == "default" else overload
    return listed("call", quoted(f"{space}::{name}"), quoted(overload),
                  listed("list", *args), listed("names", *by_name))  # fmt: skip


def listed(*parts: str) -> str:
    return f"({' '.join(parts)})"


def quoted(text: str) -> str:
    return json.dumps(text)


class _Names:
    """What the names of a wrapper stand for: library operators, devices."""

    def __init__(self, operators: dict[str, str], devices: dict[str, str]) -> None:
        self.operators, self.devices = operators, devices

    def define(self, statement: ast.Assign) -> None:
        """A definition above the function."""
        name, value = ast.unparse(statement.targets[0]), statement.value
        if name in LEFT_OUT:
            return
        if not isinstance(value, ast.Call):
            raise NoForm(f"the definition {ast.unparse(statement)}")
        made, given = ast.unparse(value.func), value.args
        if made in ("operator", "in_blocks"):
            self.operators[name] = ast.literal_eval(given[0])
        elif made == "device":
            self.devices[name] = ast.literal_eval(given[0])
        elif made == "bernoulli_by":
            raise NoForm("random numbers")
        elif made != "KeptMemory":
            raise NoForm(f"{made} of the wrapper")

    def statement(self, each: ast.stmt) -> str:
        """A step; "" for one that means nothing without Python."""
        match each:
            case ast.If(test=ast.Attribute(value=ast.Name(id="profiler"))):
                return ""
            case ast.If(test=ast.Name(id=name), body=[inner], orelse=[]):
                return listed("if", name, self.statement(inner))
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="clear"))):
                return ""
            case ast.Expr(value=value):
                return listed("do", self.spelled(value))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return listed("set", name, self.spelled(value))
            case ast.Delete(targets=names):
                return listed("free", *map(ast.unparse, names))
        raise NoForm(f"the step {ast.unparse(each)}")

    def spelled(self, tree: ast.expr) -> str:
        """An expression."""
        match tree:
            case ast.Name(id=name) if name in self.devices:
                return listed("device", quoted(self.devices[name]))
            case ast.Name(id="inf" | "nan" as name):
                return f"+{name}"
            case ast.Name(id=name):
                return name
            case ast.Constant(value=value):
                return _constant(value)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return listed("list", *map(self.spelled, parts))
            case ast.BinOp(left=a, op=op, right=b) if type(op) in ARITHMETIC:
                return listed(ARITHMETIC[type(op)], self.spelled(a), self.spelled(b))
            case ast.UnaryOp(op=op, operand=a) if type(op) in ARITHMETIC:
                return listed(ARITHMETIC[type(op)], self.spelled(a))
            case ast.BoolOp(op=op, values=parts):
                return listed(ARITHMETIC[type(op)], *map(self.spelled, parts))
            case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in ARITHMETIC:
                return listed(ARITHMETIC[type(op)], self.spelled(a), self.spelled(b))
            case ast.Attribute(value=ast.Name(id="torch"), attr=name):
                return listed("torch", quoted(name))
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(place))):
                return listed("item", name, str(place))
            case ast.Call():
                return self._call(tree)
        raise NoForm(f"the expression {ast.unparse(tree)}")

    def _call(self, tree: ast.Call) -> str:
        given = [self.spelled(each) for each in tree.args]
        named = {str(each.arg): self.spelled(each.value) for each in tree.keywords}
        match tree.func:
            case ast.Name(id=name) if kernel := KERNEL.fullmatch(name):
                return listed("kernel", kernel[1], *given)
            case ast.Name(id=name) if name in self.operators:
                return self._operator(self.operators[name], given, named)
            case ast.Name(id="device"):
                return listed("device", *given)
            case ast.Name(id=name) if name in FUNCTIONS:
                return listed(FUNCTIONS[name], *given, *_known(name, named))
            case ast.Attribute(value=owner, attr=name) if name in METHODS:
                return listed(METHODS[name], self.spelled(owner), *given)
        raise NoForm(f"the call {ast.unparse(tree)}")

    def _operator(self, target: str, given: Sequence[str], named: Mapping[str, str]) -> str:
        target = target.removesuffix(".packed")
        if target in OWN or target in CROSSING or target.startswith("flambeau"):
            raise NoForm(f"the operator {target}")
        parts = [*given]
        if target in WEIGHT or target in IN_BLOCKS:
            place = WEIGHT[target]
            parts[place] = listed("dense", parts[place])
        if target in ROWS:
            count = ROWS[target]
            parts[:count] = [listed("rows", each) for each in parts[:count]]
            named = {k: listed("mask", v) if k == "attn_mask" else v for k, v in named.items()}
        return called(target, parts, named)


_IN_ORDER: Mapping[str, tuple[str, ...]] = {"empty_strided": ("dtype",), "laid_out": ("eager",)}
"""Keywords of functions that come after their arguments; the CPU is the only device."""


def _known(name: str, named: Mapping[str, Any]) -> list[str]:
    for key, value in named.items():
        if key == "device" and value != '(device "cpu")':
            raise NoForm("memory of another device than the CPU")
        if key != "device" and key not in _IN_ORDER.get(name, ()):
            raise NoForm(f"{key}= of {name}")
    return [named[key] for key in _IN_ORDER.get(name, ()) if key in named]


def _constant(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, str):
        return quoted(value)
    raise NoForm(f"the constant {value!r}")
