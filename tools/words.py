"""Check of the code's words: names and first lines of modules in the field's terms.

In: the packages' sources. Out: what does not read as a compiler engineer would write it, a line
each; the exit status is 1 if there is any. Invariant: nothing is imported.

A first line is a noun phrase, since it stands in the page of all modules; a class name is used once
in a package; no two modules of a folder differ by an ending alone; and the paraphrases that the
glossary lists occur in no name, because it has the term.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 97
CLAUSES = frozenset(
    """are can do does every from has how is it its may must of that there they this what when
    where whether which who whose why""".split()  # noqa: SIM905 - words read best as words
)
"""Words with which a first line begins that is a clause or a question."""
PARAPHRASE = re.compile(r"^\| `([\w ]+)` \| ([^|]+) \|$", re.MULTILINE)
ENDINGS = ("s", "es", "ed", "er", "ing")


def sources(root: Path = ROOT) -> Iterator[Path]:
    return (path for path in sorted(root.glob("packages/*/src/**/*.py")))


def paraphrases(root: Path = ROOT) -> dict[str, str]:
    """Words of names that stand for a term, and the term: a table of the glossary."""
    text = (root / "docs" / "glossary.md").read_text(encoding="utf-8")
    table = text.partition("## Words that are not used")[2]
    return {word: term for words, term in PARAPHRASE.findall(table) for word in words.split()}


def words_of(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower()))


def first_line_faults(tree: ast.Module) -> Iterator[str]:
    text = ast.get_docstring(tree)
    if text is None:
        yield "no docstring"
        return
    line = text.partition("\n")[0]
    first = re.match(r"[A-Za-z]+", line)
    if first and first.group().lower() in CLAUSES:
        yield f"the first line is a clause, not a noun phrase: {line!r}"
    if len(line) > LONGEST or not line.endswith((".", "?")):
        yield f"the first line is not one sentence of at most {LONGEST} characters: {line!r}"


def name_faults(tree: ast.Module, table: dict[str, str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for word in sorted(words_of(node.name) & table.keys()):
                yield f"line {node.lineno}: {node.name} says {word!r}; the term is {table[word]}"


def class_faults(trees: dict[Path, ast.Module], root: Path = ROOT) -> Iterator[str]:
    homes: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path, tree in trees.items():
        package = path.relative_to(root).parts[1]
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                homes[package, node.name.lstrip("_")].append(path)
    for (package, name), paths in homes.items():
        if len(paths) > 1:
            where = " and ".join(str(path.relative_to(root)) for path in paths)
            yield f"{package}: two classes are called {name}: {where}"


def module_faults(paths: list[Path], root: Path = ROOT) -> Iterator[str]:
    by_folder: dict[Path, set[str]] = defaultdict(set)
    for path in paths:
        by_folder[path.parent].add(path.stem)
    for folder, names in by_folder.items():
        for name in sorted(names):
            for other in (name + ending for ending in ENDINGS):
                if other in names:
                    where = folder.relative_to(root)
                    yield f"{where}: {name} and {other} differ by an ending"


def faults(root: Path = ROOT) -> list[str]:
    table, found = paraphrases(root), []
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sources(root)}
    for path, tree in trees.items():
        own = [*first_line_faults(tree), *name_faults(tree, table)]
        found += [f"{path.relative_to(root)}: {fault}" for fault in own]
    return [*found, *class_faults(trees, root), *module_faults(list(trees), root)]


def main() -> int:
    found = faults()
    print("\n".join(found) or "words: nothing to say")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
