"""Finds every place where package code names torch's own compile stack.

In: the five packages' sources (or the files given). Out: one line a finding, exit status 1 if any.
Invariant: it looks at names in the syntax tree - imports, dotted attributes, strings given to
`import_module` - so that a comment or a docstring may speak of what it may not call.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
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
ROOT = Path(__file__).resolve().parent.parent


def forbidden_name(name: str) -> str | None:
    """The forbidden prefix of a dotted name, if it has one."""
    for prefix in FORBIDDEN:
        if name == prefix or name.startswith(prefix + "."):
            return prefix
    return None


def dotted(node: ast.expr) -> str | None:
    """`a.b.c` of an attribute chain that starts with a plain name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every dotted name that a module imports, reads, or asks for by string."""
    for node in ast.walk(tree):
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
            name = dotted(node)
            if name is not None:
                yield node.lineno, name
        elif isinstance(node, ast.Call):
            called = dotted(node.func)
            first = node.args[0] if node.args else None
            if called in {"importlib.import_module", "import_module", "__import__"} and (
                isinstance(first, ast.Constant) and isinstance(first.value, str)
            ):
                yield node.lineno, first.value


def findings(path: Path) -> Iterator[str]:
    """One readable line for each line of the file that names something forbidden."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    seen: set[tuple[int, str]] = set()
    for line, name in names(tree):
        prefix = forbidden_name(name)
        if prefix is not None and (line, prefix) not in seen:
            seen.add((line, prefix))
            yield f"{path}:{line}: names {prefix}, which Flambeau does without"


def main(arguments: list[str]) -> int:
    """Checks the given files, or all package sources."""
    paths = [Path(item) for item in arguments] or sorted(ROOT.glob("packages/*/src/**/*.py"))
    found = [line for path in paths for line in findings(path)]
    print("\n".join(found) if found else f"{len(paths)} files: none names torch's compile stack")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
