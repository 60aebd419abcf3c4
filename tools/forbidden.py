"""Names of torch's own compile stack in package code, spelled there or made up as it runs.

In: the five packages' sources (or the files given). Out: one line a finding, exit status 1 if any.
Invariant: it looks at the syntax tree - imports, dotted attributes, strings outside docstrings,
names that are computed where only this stack and torch's own could be meant - so that a comment or
a docstring may speak of what the code may not call. What is legitimate is in `ALLOWED`, with its
reason; an entry that nothing needs any more is a finding too. `--reasons` lists them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: modules and functions that the product does without; a name stands for all that is below it
FORBIDDEN = (
    "torch._dynamo",
    "torch._inductor",
    "torch._functorch",
    "torch._prims",
    "torch._prims_common",
    "torch._refs",
    "torch._decomp",
    "torch.compile",
    "torch.export",
    "torch.fx.experimental.proxy_tensor",
    "functorch",
)
#: what they are called by themselves; as a string, that is one of them whatever it is joined to
LAST = (
    "_dynamo", "_inductor", "_functorch", "_prims", "_prims_common", "_refs", "_decomp",
    "proxy_tensor", "make_fx",
)  # fmt: skip
#: what has one of them as an attribute
ABOVE = ("torch", "torch.fx", "torch.fx.experimental")
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Allowed:
    """A file may spell a name (as a string), or compute one ("computed"), so many times."""

    path: str
    """From the folder of the package, be it in the sources or installed."""

    name: str
    times: int
    reason: str


_FRAMES = "the table of modules whose frames are not looked into"
_TOLD = "tells a function of that module, which the program calls, by the name of its module"
_LATE = "loads a module of this package by the table beside it, at first use"
_DTYPE = "a dtype, by its name"
_AGAIN = "a function of the program's, by the module that it says it is from, to write or find it"
_GIVEN = "a backend that the user names by module and function"
_SWITCH = "replaces public names of that compiler at the program's wish, where the program has it"
_CAPTURE, _META = "flambeau_capture/", "flambeau/"
ALLOWED = (
    Allowed(f"{_CAPTURE}frame/skip_rules.py", "torch._dynamo", 1, _FRAMES),
    Allowed(f"{_CAPTURE}frame/skip_rules.py", "torch._inductor", 1, _FRAMES),
    Allowed(f"{_CAPTURE}frame/skip_rules.py", "torch._functorch", 1, _FRAMES),
    Allowed(
        f"{_CAPTURE}_torch_compat/foreign.py",
        "torch._dynamo",
        5,
        f"{_TOLD}; keeps the hook of that compiler, which is part of torch's C module and may be "
        "on, from frames of a compiled call",
    ),
    Allowed(
        f"{_CAPTURE}_torch_compat/light_fakes.py",
        "torch._dynamo",
        1,
        "told from other names that torch's fake tensors import, and looked for in sys.modules",
    ),
    Allowed(
        f"{_CAPTURE}_torch_compat/light_fakes.py",
        "computed",
        2,
        "runs the imports, and reads the attributes, that torch's own methods have; those of its "
        "compiler never get there",
    ),
    Allowed(
        f"{_CAPTURE}_torch_compat/light_fakes.py",
        "torch._refs",
        1,
        "looked for in sys.modules: how torch wraps its rules for shapes",
    ),
    Allowed(f"{_CAPTURE}_torch_compat/light_fakes.py", "torch._decomp", 1, "the same"),
    Allowed("flambeau_aot/_torch_compat/modes.py", "torch._dynamo", 1, "asks whether it is loaded"),
    *(
        Allowed(f"{path}/__init__.py", "computed", 1, _LATE)
        for path in ("flambeau_capture", "flambeau_aot", "flambeau_inductor", "flambeau")
    ),
    Allowed(
        "flambeau_aot/serialize/saved_program.py", "computed", 1, "a dtype or a layout, by its name"
    ),
    Allowed("flambeau_inductor/pipeline.py", "computed", 1, "loads a pass by the list beside it"),
    Allowed(f"{_META}packaging/loading.py", "computed", 1, _DTYPE),
    Allowed("flambeau_prims/conformance/__main__.py", "computed", 1, _DTYPE),
    Allowed("flambeau_prims/sweep/judge.py", "computed", 1, _DTYPE),
    Allowed("flambeau_prims/conformance/check.py", "computed", 1, _GIVEN),
    Allowed(f"{_META}switching/stack.py", "torch._dynamo", 2, _SWITCH),
    Allowed(f"{_META}switching/stack.py", "torch._inductor", 3, _SWITCH),
    Allowed(f"{_META}switching/stack.py", "computed", 1, _SWITCH),
    Allowed(f"{_META}switching/stack.py", "torch.export", 1, _SWITCH),
    Allowed(f"{_META}repro/check.py", "computed", 1, _GIVEN),
    Allowed(f"{_META}backends/engines.py", "computed", 1, "other packages' backends, by a table"),
    Allowed(f"{_META}repro/function_text.py", "computed", 1, _AGAIN),
    Allowed(f"{_META}repro/script.py", "computed", 1, _AGAIN),
    Allowed(
        f"{_META}cache/graph_data.py", "computed", 1, "what a saved graph calls; of listed packages"
    ),
)


@dataclass(frozen=True)
class Found:
    """A place that names something of the stack, or computes what it names."""

    line: int
    name: str
    spelled: bool = False

    def __str__(self) -> str:
        if self.name == "computed":
            return "computes a name of torch's or of a module"
        return f"{'spells' if self.spelled else 'names'} {self.name}, which Flambeau does without"


def forbidden_name(name: str) -> str | None:
    """The forbidden prefix of a dotted name, if it has one."""
    for prefix in FORBIDDEN:
        if name == prefix or name.startswith(prefix + "."):
            return prefix
    return None


_SPELLED = re.compile(
    rf"(?<![\w.])(?:{'|'.join(re.escape(name) for name in FORBIDDEN[:-1])})(?!\w)"
)


def spelled_names(text: str) -> Iterator[str]:
    """The forbidden names that a string spells: anywhere in it, or as all that it is."""
    yield from _SPELLED.findall(text)
    first = text.strip(".").partition(".")[0]
    if first in LAST or text == "functorch":
        yield next(
            (name for name in FORBIDDEN if name.endswith(f".{first}") or name == first), first
        )


class _Reader:
    """One file's tree, with what its imports call things."""

    def __init__(self, tree: ast.AST) -> None:
        self.nodes = [*ast.walk(tree)]
        self.known: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        self.known[alias.asname] = alias.name
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                for alias in node.names:
                    self.known[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def dotted(self, node: ast.expr) -> str | None:
        """`a.b.c` of an attribute chain that starts with a plain name, under its real name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        return ".".join([self.known.get(node.id, node.id), *reversed(parts)])

    def names(self) -> Iterator[tuple[int, str]]:
        """Every dotted name that the file imports, reads, or asks for by a string."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.name
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                yield node.lineno, node.module
                for alias in node.names:
                    yield node.lineno, f"{node.module}.{alias.name}"
                    if alias.name == "make_fx":
                        yield node.lineno, "torch.fx.experimental.proxy_tensor.make_fx"
            elif isinstance(node, ast.Attribute):
                name = self.dotted(node)
                if name is not None:
                    yield node.lineno, name
            elif isinstance(node, ast.Call):
                asked = self.asked(node)
                if asked is not None and asked[1] is not None:
                    yield node.lineno, asked[1]

    def computed(self) -> Iterator[int]:
        """Lines that ask for a module, or for an attribute of torch, by a name that the file does
        not spell there."""
        for node in self.nodes:
            if isinstance(node, ast.Call):
                asked = self.asked(node)
                if asked is not None and asked[1] is None:
                    yield node.lineno
            elif isinstance(node, ast.Subscript) and self.table(node.value) in ABOVE:
                if _text(node.slice) is None:
                    yield node.lineno

    def table(self, node: ast.expr) -> str | None:
        """The module whose attributes `vars(module)` or `module.__dict__` is."""
        if isinstance(node, ast.Attribute) and node.attr == "__dict__":
            return self.dotted(node.value)
        called = self.dotted(node.func) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and called == "vars" and node.args:
            return self.dotted(node.args[0])
        return None

    def asked(self, node: ast.Call) -> tuple[str, str | None] | None:
        """What a call loads or reads by name: who, and the name, where it is spelled there."""
        called = self.dotted(node.func) or ""
        if called in _IMPORTING and node.args:
            return called, _text(node.args[0])
        if called in _READING and len(node.args) > 1:
            module = self.dotted(node.args[0])
            text = _text(node.args[1])
            if module is not None and (text is not None or module in ABOVE):
                return called, None if text is None else f"{module}.{text}"
        return None

    def strings(self) -> Iterator[tuple[int, str]]:
        """Every string that is no docstring; what is joined of several, as one."""
        silent = {
            id(node.value)
            for node in self.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in self.nodes:
            if isinstance(node, ast.BinOp):
                text = _text(node)
                if text is not None and id(node) not in silent:
                    silent |= {id(part) for part in ast.walk(node) if part is not node}
                    yield node.lineno, text
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                if id(node) not in silent:
                    yield node.lineno, node.value


_IMPORTING = {
    "importlib.import_module",
    "import_module",
    "__import__",
    "builtins.__import__",
    "importlib.__import__",
    "pkgutil.resolve_name",
}
_READING = {
    "getattr",
    "hasattr",
    "setattr",
    "delattr",
    "builtins.getattr",
    "inspect.getattr_static",
}


def _text(node: ast.expr) -> str | None:
    """The string that an expression spells, where it does: a constant, or constants joined."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return None if left is None or right is None else left + right
    return None


def found_in(path: Path) -> Iterator[Found]:
    """All that a file names, spells or computes, allowed or not: once a line and name."""
    reader = _Reader(ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))
    seen: set[tuple[int, str]] = set()
    for line, name in reader.names():
        prefix = forbidden_name(name)
        if prefix is not None and (line, prefix) not in seen:
            seen.add((line, prefix))
            yield Found(line, prefix)
    for line, text in reader.strings():
        for name in spelled_names(text):
            if (line, name) not in seen:
                seen.add((line, name))
                yield Found(line, name, spelled=True)
    yield from (Found(line, "computed") for line in sorted(set(reader.computed())))


def allowances(path: Path) -> dict[str, int]:
    """How often a file may spell, or compute, each name."""
    entries = (each for each in ALLOWED if path.as_posix().endswith(f"/{each.path}"))
    return {each.name: each.times for each in entries}


def findings(path: Path) -> Iterator[str]:
    """One readable line for each place that is not allowed, and each that need not be any more."""
    allowed, used = allowances(path), Counter[str]()
    for found in found_in(path):
        if found.spelled or found.name == "computed":
            used[found.name] += 1
            if used[found.name] <= allowed.get(found.name, 0):
                continue
        yield f"{path}:{found.line}: {found}"
    for name, times in allowed.items():
        if used[name] < times:
            yield f"{path}: {times} places for {name!r} are allowed, {used[name]} needed"


def main(arguments: list[str]) -> int:
    """Checks the given files, or all package sources."""
    if arguments == ["--reasons"]:
        for each in ALLOWED:
            print(f"{each.path}: {each.name} ({each.times}): {each.reason}")
        return 0
    paths = [Path(item).resolve() for item in arguments]
    paths = paths or sorted(ROOT.glob("packages/*/src/**/*.py"))
    found = [line for path in paths for line in findings(path)]
    used = sum(sum(allowances(path).values()) for path in paths)
    told = f"{used} places spell or compute a name and are listed with their reason (--reasons)"
    told = f"{len(paths)} files: none names torch's compile stack; {told}"
    print("\n".join(found) if found else told)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
