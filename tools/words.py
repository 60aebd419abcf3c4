"""Check of the code's words: names and first lines of modules in the field's terms.

In: the packages' sources, Python's and those of C and C++; tools and benchmarks. Out: what does not
read as a compiler engineer would write it, a line each; the exit status is 1 if there is any.
Invariant: nothing is imported.

A first line is a noun phrase, since the page of all modules lists it; a class name is used once in
a package; no two modules of a folder differ by an ending alone; the paraphrases that the glossary
lists occur in no name, docstring or comment, because it has the term; and no docstring or comment
carries a measured time, which ages there: it belongs in `docs/decisions/` or tuning data. Of C and
C++, the comments and every identifier are read, what is quoted is not; of the history, the subject
of the newest commit that is no merge, which has at most 72 characters.

    python tools/words.py [part of a path ...]     only the files whose paths contain one of these
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 97
LONGEST_SUBJECT = 72
CLAUSES = frozenset(
    """are can do does every from has how is it its may must of that there they this what when
    where whether which who whose why""".split()  # noqa: SIM905 - words read best as words
)
"""Words with which a first line begins that is a clause or a question."""
PARAPHRASE = re.compile(r"^\| `([\w ]+)` \| ([^|]+) \|$", re.MULTILINE)
NAMES_ONLY = frozenset({"stands"})
"""Paraphrases that are plain English in a sentence."""
MEASURED = re.compile(r"\b\d[\d.,]* ?(?:ns|us|µs|ms|[GT]B/s|[GT]FLOP/s)\b")
ENDINGS = ("s", "es", "ed", "er", "ing")
NATIVE_ENDINGS = frozenset({".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"})
NATIVE = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<quoted>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<name>[A-Za-z_]\w*)",
    re.DOTALL,
)
"""What of a text in C or C++ has words: a quotation hides a comment in it, and the reverse."""


def sources(root: Path = ROOT) -> Iterator[Path]:
    return (path for path in sorted(root.glob("packages/*/src/**/*.py")))


def programs(root: Path = ROOT) -> Iterator[Path]:
    """Programs beside the packages, of which the first lines are looked at."""
    for folder in ("tools", "benchmarks"):
        yield from sorted(root.glob(f"{folder}/**/*.py"))


def native_sources(root: Path = ROOT) -> Iterator[Path]:
    """The files of C and C++ beside and within the packages' sources."""
    for folder in ("csrc", "src"):
        for path in sorted(root.glob(f"packages/*/{folder}/**/*")):
            if path.suffix in NATIVE_ENDINGS:
                yield path


def paraphrases(root: Path = ROOT) -> dict[str, str]:
    """Words of names that stand for a term, and the term: a table of the glossary."""
    text = (root / "docs" / "glossary.md").read_text(encoding="utf-8")
    table = text.partition("## Words that are not used")[2]
    return {word: term for words, term in PARAPHRASE.findall(table) for word in words.split()}


def words_of(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", re.sub(r"(?<![A-Z])([A-Z])", r"_\1", name).lower()))


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


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Every statement within, without a look at expressions, which are most of a tree."""
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        for node in getattr(tree, part, ()):
            if isinstance(node, ast.stmt):
                yield node
            yield from statements(node)


def name_faults(tree: ast.Module, table: dict[str, str]) -> Iterator[str]:
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from name_fault(node.lineno, node.name, table)


def name_fault(number: int, name: str, table: dict[str, str]) -> Iterator[str]:
    for word in sorted(words_of(name) & table.keys()):
        yield f"line {number}: {name} says {word!r}; the term is {table[word]}"


def prose(text: str, tree: ast.Module, table: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Lines of docstrings and comments, with their numbers; of comments, where one may say a word
    of the table."""
    for node in statements(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield from enumerate(node.value.value.splitlines(), node.lineno)
    if not may_have_faults("\n".join(re.findall("#.*", text)), table):
        return  # to tell comments from text takes a while
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def native_faults(text: str, table: dict[str, str]) -> Iterator[str]:
    """Faults of a file in C or C++: its comments' lines, and each identifier where it is first."""
    comments: list[tuple[int, str]] = []
    names: dict[str, int] = {}
    for found in NATIVE.finditer(text):
        number = text.count("\n", 0, found.start()) + 1
        if found.lastgroup == "comment":
            comments += enumerate(found.group().splitlines(), number)
        elif found.lastgroup == "name":
            names.setdefault(found.group(), number)
    for name, number in names.items():
        yield from name_fault(number, name, table)
    yield from prose_faults(comments, table)


def may_have_faults(text: str, table: dict[str, str]) -> bool:
    """Whether a word of the table or a measured time occurs at all: in few files, and to find names
    and comments takes a while."""
    return not words_of(text).isdisjoint(table) or MEASURED.search(text) is not None


def prose_faults(lines: Iterable[tuple[int, str]], table: dict[str, str]) -> Iterator[str]:
    for number, line in lines:
        plain = re.sub(r"`[^`]*`", "", line.lower())
        for word in sorted(set(re.findall(r"[a-z]+", plain)) & table.keys() - NAMES_ONLY):
            yield f"line {number}: prose says {word!r}; the term is {table[word]}"
        if MEASURED.search(line):
            yield f"line {number}: a measured time; it belongs in docs/decisions or tuning data"


def class_faults(classes: dict[Path, list[str]], root: Path = ROOT) -> Iterator[str]:
    homes: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path, names in classes.items():
        package = path.relative_to(root).parts[1]
        for name in names:
            homes[package, name.lstrip("_")].append(path)
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
    classes: dict[Path, list[str]] = {}
    for path in sources(root):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        classes[path] = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        own = [*first_line_faults(tree)]
        if may_have_faults(text, table):
            own += name_faults(tree, table)
            own += prose_faults(prose(text, tree, table), table)
        found += [f"{path.relative_to(root)}: {fault}" for fault in own]
    for path in programs(root):
        own = [*first_line_faults(ast.parse(path.read_text(encoding="utf-8")))]
        found += [f"{path.relative_to(root)}: {fault}" for fault in own]
    for path in native_sources(root):
        native = native_faults(path.read_text(encoding="utf-8"), table)
        found += [f"{path.relative_to(root)}: {fault}" for fault in native]
    return [*found, *class_faults(classes, root), *module_faults(list(classes), root)]


def subject_faults(root: Path = ROOT) -> Iterator[str]:
    """Of the newest commit, where there is a history."""
    command = ("git", "-C", str(root), "log", "-1", "--no-merges", "--format=%h %s")
    commit, _, subject = _said(command).strip().partition(" ")
    if len(subject) > LONGEST_SUBJECT:
        yield f"commit {commit}: a subject of {len(subject)} characters, not {LONGEST_SUBJECT}"


def _said(command: tuple[str, ...]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:  # no git
        return ""


def main() -> int:
    found = [*faults(), *subject_faults()]
    found = [f for f in found if not sys.argv[1:] or any(part in f for part in sys.argv[1:])]
    print("\n".join(found) or "words: nothing to say")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
