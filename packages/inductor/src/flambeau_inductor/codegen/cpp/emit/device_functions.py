"""Device functions in C++, for the primitives that have one body in both languages.

In: the names of functions of `runtime/device_functions/pointwise/`. Out: C++ text that defines each
for one element and, as `each_<name>`, for an element or a vector alike. Invariant: the text has the
operations of the Triton function in its order and in its types, so both languages round alike.

A function is a template of its operands' type T, in which numbers are written; what it converts has
the type that it is converted to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache

from flambeau_inductor.codegen import device_functions
from flambeau_inductor.errors import CppUnsupported

NUMBER = "number"
"""The type of a literal: that of what it is combined with."""
TYPES = {"float64": "f64", "float32": "f32", "int64": "i64", "int32": "i32"}
BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "/", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|", ast.RShift: ">>", ast.LShift: "<<",
}  # fmt: skip
COMPARE = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip

Typed = tuple[str, str]
"""C++ text and its type: `T`, one of `TYPES`, `bool` or `NUMBER`."""


def definitions(names: Iterable[str]) -> str:
    """Text that defines `each_<name>` for all `names`, and what they call."""
    written: dict[str, None] = {}
    for name in sorted(set(names)):
        _define(_translated(name), written)
        written[_each(name)] = None
    return f"namespace fl {{\n{''.join(written)}}}\n\n" if written else ""


def _define(made: _Translation, written: dict[str, None]) -> None:
    for other in made.called:
        _define(other, written)
    written[made.text] = None


@cache
def _translated(name: str, kinds: tuple[str, ...] = ()) -> _Translation:
    return _Translation(device_functions.function(name), kinds)


def _each(name: str) -> str:
    arguments = [a.arg for a in device_functions.function(name).args.args]
    parameters = ", ".join(f"V {a}" for a in arguments)
    result, sign = {"T": ("lane<V>", ""), "bool": ("i32", "-(i32)")}.get(
        kind := _translated(name).result, (kind, "")
    )
    one = ", ".join(f"(lane<V>){a}[l]" for a in arguments)
    return (
        f"template <class V> FL_INLINE auto each_{name}({parameters}) {{\n"
        f"  if constexpr (lanes_of<V> == 0) return {sign}{name}({', '.join(arguments)});\n"
        f"  else {{\n    lanes<{result}, lanes_of<V>> r;\n"
        f"    for (int l = 0; l < lanes_of<V>; ++l) r[l] = {sign}{name}({one});\n"
        "    return r;\n  }\n}\n"
    )


class _Translation:
    """One function on operands of `kinds` (all T if not given): `text`, its `result`'s type, and
    the functions of its kind that are `called`."""

    def __init__(self, function: ast.FunctionDef, kinds: tuple[str, ...]) -> None:
        self.called: list[_Translation] = []
        self.result = ""
        self.name = function.name
        arguments = [a.arg for a in function.args.args]
        self.types = dict(zip(arguments, kinds or ["T"] * len(arguments), strict=True))
        lines = self._block(function.body, "  ")
        parameters = ", ".join(f"{self.types[a]} {a}" for a in arguments)
        head = f"template <class T> static inline {self.result} {self.name}({parameters}) {{\n"
        self.text = head + "".join(lines) + "}\n"

    def _block(self, body: list[ast.stmt], indent: str) -> list[str]:
        lines: list[str] = []
        for statement in body:
            match statement:
                case ast.Expr(value=ast.Constant(value=str())):  # the docstring
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    text, kind = self._expression(value)
                    if kind == NUMBER:
                        raise self._refused(value)
                    if name not in self.types:
                        self.types[name] = kind
                        lines.append(f"{indent}{kind} {name} = {text};\n")
                        continue
                    text = self._as((text, kind), self.types[name], value)
                    lines.append(f"{indent}{name} = {text};\n")
                case ast.For(target=ast.Name(), iter=ast.Call(args=[ast.Constant(value=int(n))])):
                    lines.append(f"{indent}for (int step = 0; step < {n}; ++step) {{\n")
                    lines += [*self._block(statement.body, indent + "  "), f"{indent}}}\n"]
                case ast.While(test=ast.Call(func=ast.Attribute(attr="some"), args=[condition])):
                    asked = self._expression(condition)[0]
                    lines.append(f"{indent}while ({asked}) {{\n")
                    lines += [*self._block(statement.body, indent + "  "), f"{indent}}}\n"]
                case ast.Return(value=ast.expr() as value):
                    text, self.result = self._expression(value)
                    lines.append(f"{indent}return {text};\n")
                case _:
                    raise self._refused(statement)
        return lines

    def _refused(self, node: ast.AST) -> CppUnsupported:
        return CppUnsupported(f"device function {self.name}: {ast.unparse(node)}")

    def _expression(self, node: ast.expr) -> Typed:
        match node:
            case ast.Constant(value=int() | float() as number):
                wide = isinstance(number, int) and number >= 2**31
                return repr(number) + "L" * wide, NUMBER
            case ast.Name(id=name):
                return name, self.types[name]
            case ast.Attribute(attr="primitive_bitwidth"):
                return "(i32)(8 * sizeof(T))", "i32"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                text, kind = self._expression(operand)
                return f"(-{text})", kind
            case ast.BinOp(left=left, op=op, right=right):
                a, b, kind = self._joined(left, right, node)
                text = f"({a} {BINARY[type(op)]} {b})"
                return (f"(T){text}" if kind == "T" else text), kind
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                a, b, _ = self._joined(left, right, node)
                return f"({a} {COMPARE[type(op)]} {b})", "bool"
            case ast.Call():
                return self._call(node)
        raise self._refused(node)

    def _call(self, node: ast.Call) -> Typed:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr="to"), args=[target]):
                text, _ = self._expression(value)
                kind = "T" if ast.unparse(target).endswith(".dtype") else self._type(target)
                return f"{'bits_as' if node.keywords else 'to'}<{kind}>({text})", kind
            case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str() as word)]):
                return f"__builtin_{word}({chr(34) * 2 if word == 'nan' else ''})", NUMBER
            case ast.Call(func=ast.Attribute(attr="where"), args=[condition, left, right]):
                a, b, kind = self._joined(left, right, node)
                return f"({self._expression(condition)[0]} ? {a} : {b})", kind
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments):
                typed = [self._expression(a) for a in arguments]
            case _:
                raise self._refused(node)
        first = next((kind for _, kind in typed if kind != NUMBER), NUMBER)
        kinds = [first if kind == NUMBER else kind for _, kind in typed]
        given = [self._as(one, kind, node) for one, kind in zip(typed, kinds, strict=True)]
        result = first
        if isinstance(node.func, ast.Name):  # a function of these files
            made = _translated(name, tuple("T" if kind == first else kind for kind in kinds))
            self.called.append(made)
            result = first if made.result == "T" else made.result
        return f"{name}({', '.join(given)})", result

    def _type(self, node: ast.expr) -> str:
        if isinstance(node, ast.Attribute) and node.attr in TYPES:
            return TYPES[node.attr]
        raise self._refused(node)

    def _joined(self, left: ast.expr, right: ast.expr, node: ast.AST) -> tuple[str, str, str]:
        """Two operands in the type that both have, or that the one has that is no literal."""
        a, b = self._expression(left), self._expression(right)
        kind = b[1] if a[1] == NUMBER else a[1]
        if isinstance(node, ast.Compare) and kind == "bool":  # with 0
            return a[0], b[0], kind
        return self._as(a, kind, node), self._as(b, kind, node), kind

    def _as(self, value: Typed, kind: str, node: ast.AST) -> str:
        text, own = value
        if own == kind:
            return text
        if own == NUMBER:
            return f"({kind}){text}"
        raise self._refused(node)
