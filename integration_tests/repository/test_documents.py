"""Every Python block in the READMEs and the docs runs as it stands: of the docs, a slice each time.

Each block is a process of its own, forked from one that has compiled a function before; all blocks
of a page that says so are one program.
"""

import dataclasses
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from flambeau_inductor import pipeline

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools import reference  # noqa: E402

ONE_PROGRAM = "<!-- the blocks of this page are one program -->"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


READMES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("packages/*/README.md"))]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def blocks(pages):
    for page in pages:
        text = page.read_text(encoding="utf-8")
        found = BLOCK.findall(text)
        for number, block in enumerate(["\n".join(found)] if ONE_PROGRAM in text else found):
            yield pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")


# runs each program that is named on standard input in a fork; says how it ended
STARTER = """
import os, runpy, sys, traceback
import torch, flambeau
threads = torch.get_num_threads()
torch.set_num_threads(1)  # a process with threads of its own cannot be forked safely
flambeau.compile(lambda x: x.sin() + 1)(torch.ones(3, requires_grad=True)).sum().backward()
torch.manual_seed(int(os.environ.get("FLAMBEAU_TEST_SEED", "0")))  # each block draws the same
for line in sys.stdin:
    program = line.strip()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            out = os.open(program + ".out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0), os.dup2(out, 1), os.dup2(out, 2)
            sys.argv[:] = [program]
            torch.set_num_threads(threads)
            sys.path[:0] = [os.path.dirname(program), os.getcwd()]
            os.chdir(os.path.dirname(program))  # what an example writes is left there
            runpy.run_path(program, run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if not isinstance(end.code, int) and code:
                print(end.code)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def starter():
    command = [sys.executable, "-W", "error::UserWarning", "-c", STARTER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


@pytest.mark.parametrize("block", list(blocks(READMES)))
def test_block_runs(block, tmp_path, starter):
    run_block(block, tmp_path, starter)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("block", list(blocks(PAGES)))
def test_block_of_a_page_runs(block, tmp_path, starter):
    run_block(block, tmp_path, starter)


def run_block(block, tmp_path, starter):
    program = tmp_path / "example.py"
    program.write_text(block, encoding="utf-8")
    starter.stdin.write(f"{program}\n")
    starter.stdin.flush()
    ended = starter.stdout.readline().strip()
    assert ended == "0", (tmp_path / "example.py.out").read_text(encoding="utf-8")


def test_a_block_that_fails_is_seen(tmp_path, starter):
    program = tmp_path / "example.py"
    for text in ("raise ValueError('no')", "raise SystemExit('no')", "import os; os.abort()"):
        program.write_text(text, encoding="utf-8")
        starter.stdin.write(f"{program}\n")
        starter.stdin.flush()
        assert starter.stdout.readline().strip() not in ("", "0")


def test_every_variable_of_the_environment_is_documented():
    read = set().union(*map(reference.read_variables, reference.PACKAGES))
    assert read == set(reference.VARIABLES)


@pytest.mark.parametrize("package", reference.PACKAGES)
def test_every_public_name_has_a_docstring(package):
    assert reference.undocumented(importlib.import_module(package)) == []


def test_a_name_without_a_docstring_is_found():
    made = types.ModuleType("made")

    @dataclasses.dataclass
    class Silent:
        size: int = 0

        def grow(self):
            return self.size + 1

    made.Silent, made.__all__ = Silent, ["Silent"]
    assert reference.undocumented(made) == ["Silent", "Silent.grow"]


def test_every_package_shows_its_use():
    pages = sorted(ROOT.glob("packages/*/README.md"))
    assert len(pages) == 5
    for page in pages:
        assert BLOCK.search(page.read_text(encoding="utf-8")), page


def test_the_readme_names_sessions_that_exist():
    named = re.findall(r'nox -s "?(\w+)', (ROOT / "README.md").read_text(encoding="utf-8"))
    defined = re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(), re.MULTILINE)
    assert named
    assert set(named) <= set(defined)


def test_the_small_part_of_the_demo():
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py"), "--only", "toy"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "__compiled_fn_0" in done.stdout


GLOSSARY_ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def test_each_term_of_the_glossary_lives_where_it_says():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = [row for row in GLOSSARY_ROW.findall(text) if row[0] not in ("term", "question", "---")]
    assert len(rows) >= 120
    assert len({term for term, _, _ in rows}) == len(rows)
    for term, meaning, where in rows:
        assert meaning, term
        for place in re.findall(r"`([^`]+)`", where):
            assert place_of(place).exists(), (term, place)


def place_of(place):
    """The file or folder that the glossary calls so."""
    package, colon, path = place.partition(":")
    if not colon:
        return ROOT / place
    base = ROOT / "packages" / package
    return base / path if (base / path).exists() else base / "src" / SOURCES[package] / path


def unanswered(text):
    """Questions of which an answer gives no name, or one that its files do not have."""
    rows = GLOSSARY_ROW.findall(text.partition("## Where to look")[2].partition("\n## ")[0])[2:]
    for question, answer, where in rows:
        files = [place_of(place).read_text() for place in re.findall(r"`([^`]+)`", where)]
        names = re.findall(r"`([^`]+)`", answer)
        for name in names or [""]:
            word = rf"\b{re.escape(name.rpartition('.')[2])}\b"
            if not name or not any(re.search(word, each) for each in files):
                yield question, name


def test_questions_are_answered_by_names_that_are_there():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert text.partition("## Where to look")[2].count("? |") >= 10
    assert list(unanswered(text)) == []
    assert list(unanswered(text.replace("`candidates` models", "`nowhere` models")))
    assert list(unanswered(text.replace("`GuardKind` shows", "its kind shows")))


def test_the_lists_of_passes_are_those_of_the_driver():
    assert pipeline.page() in (ROOT / "docs" / "inductor.md").read_text(encoding="utf-8")


WRITTEN = re.compile(
    r"\d_\w+\.\w+|report\.json|process\.json|artefacts/|kernels\.(py|cpp)|wrapper\.py|//|/"
    r"|suite/timm-cpu\.json|_opcode_metadata\.py"
)
"""Paths of what runs write, and of the standard library's sources."""
SOURCES = {"meta": "flambeau"} | {
    p: f"flambeau_{p}" for p in ("capture", "aot", "prims", "inductor")
}


def prose_of_pages():
    for page in sorted(
        [*ROOT.glob("*.md"), *ROOT.glob("packages/*/*.md"), *ROOT.rglob("docs/**/*.md")]
    ):
        text = page.read_text(encoding="utf-8")
        yield page, re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def tracked_files():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("needs the repository's list of files")
    return [Path(line) for line in listed.stdout.splitlines()]


def ends_of_paths(files):
    """What a page may call a file or folder: its path from any folder above it on, where the name
    of a package stands for the folder of its sources."""
    found = set()
    for path in {each for file in files for each in (file, *file.parents)}:
        parts = path.parts
        found |= {"/".join(parts[k:]) for k in range(len(parts))}
        if parts[:1] == ("packages",) and len(parts) > 4 and parts[2] == "src":
            found.add("/".join([parts[1], *parts[4:]]))
    return found


def test_a_path_has_each_end_and_the_name_of_its_package():
    found = ends_of_paths([Path("packages/one/src/flambeau_one/a/b.py")])
    assert {"one/a/b.py", "one/a", "a/b.py", "b.py", "packages/one"} <= found
    assert not {"one/b.py", "a/c.py", "flambeau_one/b.py"} & found


def test_every_link_leads_somewhere():
    for page, text in prose_of_pages():
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", re.sub(r"`[^`\n]*`", "", text)):
            if "://" not in link and not link.startswith("mailto:"):
                assert (page.parent / link).exists(), (page.name, link)


def test_every_path_that_a_page_names_is_there():
    known, missing = ends_of_paths(tracked_files()), []
    for page, text in prose_of_pages():
        for path in re.findall(r"`(?:\w+:)?([\w./-]+(?:/|\.(?:py|c|h|md|toml|json|cpp)))`", text):
            if path.rstrip("/") not in known and not WRITTEN.fullmatch(path):
                missing.append((page.name, path))
    assert missing == []


def test_every_module_that_a_page_names_is_there():
    names = {
        name
        for _, text in prose_of_pages()
        for name in re.findall(r"`(flambeau(?:_\w+)?(?:\.\w+)+)[`(]", text)
    }
    assert len(names) > 20
    missing = []
    for name in sorted(names):
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            missing.append(name)
    assert missing == []


def test_the_layout_names_every_module_at_the_top_of_a_package():
    text = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")
    for package, name in SOURCES.items():
        section = text.partition(f"## packages/{package}:")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
        named = {path.split("/")[0] for row in rows for path in re.findall(r"`([^`]+)`", row)}
        here = ROOT / "packages" / package / "src" / name
        real = {
            path.name
            for path in here.iterdir()
            if path.suffix == ".py" or (path / "__init__.py").exists()
        }
        real -= {"__init__.py", "__about__.py", "_torch_compat", "_torch_compat.py"}
        assert real - named == set(), package
        assert {path for path in named if not (here / path).exists()} <= {"csrc"}, package


CELLS = """
import ast, json, linecache, sys
import torch
torch.manual_seed(0)
shared = {"__name__": "__main__"}
cells = [each for each in json.load(open(sys.argv[1]))["cells"] if each["cell_type"] == "code"]
for number, cell in enumerate(cells[: int(sys.argv[2])]):
    text, name = "".join(cell["source"]), f"<cell {number}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    tree = ast.parse(text)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), shared)
    if last is not None:  # a notebook shows it
        repr(eval(compile(ast.Expression(last.value), name, "eval"), shared))
    print("ran", number)
"""


def test_the_notebook_of_the_tutorial_runs_cell_by_cell(tmp_path):
    blocks = BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text("utf-8"))
    runs = len(blocks) if os.environ.get("FLAMBEAU_SWEEPS") else 3
    place = ROOT / "docs" / "tutorial.ipynb"
    command = [sys.executable, "-W", "ignore", "-c", CELLS, str(place), str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ran ") == runs
