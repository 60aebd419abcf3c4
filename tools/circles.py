"""Circles of imports in the packages, those inside functions among them.

In: the five packages' sources. Out: a circle a run with the lines that make it, exit status 1 if
there is one. Invariant: an import counts wherever it is, but for types alone; a module that only
its folder's `__init__` imports is not in a circle with it.
"""

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Imports = dict[str, dict[str, int]]
"""By module, the modules that it imports, and in which line."""
TYPES_ALONE = ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Every module of the packages by its name."""
    found: dict[str, Path] = {}
    for source in sorted(root.glob("packages/*/src")):
        for path in source.rglob("*.py"):
            parts = path.relative_to(source).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(found: Mapping[str, Path]) -> Imports:
    """Who imports whom."""
    made: Imports = {}
    for module, path in found.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        lines = {name: line for line, name in imported(tree, found) if name != module}
        made[module] = lines
    return made


def for_types_alone(test: ast.expr) -> bool:
    return isinstance(test, ast.Name | ast.Attribute) and ast.unparse(test) in TYPES_ALONE


def imported(node: ast.AST, known: Mapping[str, object]) -> Iterator[tuple[int, str]]:
    """The known modules that code imports as it runs, each with its line."""
    if isinstance(node, ast.If) and for_types_alone(node.test):
        for each in node.orelse:
            yield from imported(each, known)
        return
    if isinstance(node, ast.Import):
        yield from ((node.lineno, alias.name) for alias in node.names if alias.name in known)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        for alias in node.names:
            below = f"{node.module}.{alias.name}"
            if (name := below if below in known else node.module) in known:
                yield node.lineno, name
    for child in ast.iter_child_nodes(node):
        yield from imported(child, known)


def circle(made: Imports) -> list[str]:
    """Modules of which each imports the next, the first again at the end; none if none do."""
    try:
        TopologicalSorter(made).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found[::-1]  # the sorter lists what must come first, first
    return []


def main() -> int:
    """Prints what was found."""
    found = modules()
    made = imports(found)
    names = circle(made)
    for one, other in itertools.pairwise(names):
        print(f"{found[one].relative_to(ROOT)}:{made[one][other]}: imports {other}")
    print(f"{len(found)} modules: {'a circle of imports' if names else 'no circle of imports'}")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
