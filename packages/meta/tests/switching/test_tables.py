"""The tables of the documentation have a row for every name of torch's, with a word in it."""

import ast
import inspect
import re
from pathlib import Path

import pytest
import torch
import torch.export

from flambeau.switching import install, translation

PAGE = Path(__file__).parents[4] / "docs" / "coming-from-torch-compile.md"
if not PAGE.exists():
    pytest.skip("the documentation is not beside the package", allow_module_level=True)


def tables():
    """Section and heading of each table, to its rows: the names of the first cell, the second."""
    found = {}
    section = ""
    rows = None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("|"):
            rows = None
        elif rows is None:
            rows = found[section, cells[0]] = {}
        elif not set(cells[0]) <= {"-"}:
            (named, here) = cells
            rows.update(dict.fromkeys(re.findall(r"`([\w.-]+)`", named) or [named], here))
    return found


TABLES = tables()


def test_no_row_is_empty():
    assert len(TABLES) == 9
    for rows in TABLES.values():
        assert rows
        assert all(here for here in rows.values())


def test_every_name_of_torch_compiler():
    rows = TABLES["torch.compiler", "name"]
    assert set(torch.compiler.__all__) - rows.keys() == set()
    assert set(install.NAMES["torch.compiler"].split()) <= rows.keys()


def test_every_argument_of_torch_compile():
    rows = TABLES["torch.compile", "argument"]
    assert set(inspect.signature(torch.compile).parameters) - rows.keys() == set()
    assert translation.ARGUMENTS.keys() <= rows.keys()
    assert all("said" in rows[name] for name in translation.ARGUMENTS)


def test_every_mode_option_and_variable():
    modes = TABLES["torch.compile", "mode"]
    assert modes.keys() == translation.MODES.keys() - {"never-slower"}
    options = TABLES["Options and configuration", "option"]
    assert options.keys() == translation.OPTIONS.keys()
    variables = TABLES["Variables of the environment", "variable"]
    assert variables.keys() - {"others of torch's compiler"} == translation.VARIABLES.keys()
    for rows, table in ((options, translation.OPTIONS), (variables, translation.VARIABLES)):
        for name, row in table.items():
            last = row.name.rpartition(".")[2]
            assert last in rows[name] or last == "cache_dir", name


def test_every_name_of_torch_dynamo_that_is_replaced():
    rows = TABLES["torch._dynamo", "name"]
    assert set(install.NAMES[install.STACK["dynamo"]].split()) - rows.keys() == set()


def test_every_name_of_torch_export():
    rows = TABLES["torch.export", "name"]
    assert set(torch.export.__all__) == rows.keys()
    own = {name for name in dir(torch.export.ExportedProgram) if not name.startswith("_")}
    assert own == TABLES["torch.export", "of an ExportedProgram"].keys()


def test_every_public_name_of_torch_dynamo():
    rows = TABLES["torch._dynamo", "name"]
    assert _named_in("_dynamo/__init__.py", "__all__") - rows.keys() == set()


def test_every_documented_name_of_configuration():
    rows = TABLES["Options and configuration", "name"]
    assert _named_in("compiler/config.py", "__all__") - rows.keys() == set()
    known = _assigned_in("compiler/config.py") | _assigned_in("_dynamo/config.py")
    assert rows.keys() - known == {"all others"}


def test_what_is_read_of_the_configuration_says_what_it_becomes():
    rows = TABLES["Options and configuration", "name"]
    with torch.compiler.config.patch(force_disable_caches=True):
        assert translation.options_of_config()["inductor.disk_cache"] is False
    assert rows["force_disable_caches"] == "`disk_cache=False`"
    source = inspect.getsource(translation)
    for name in re.findall(r'_of_dynamo\("(\w+)"', source):
        assert "not read" not in rows[name], name


def _module(path):
    """The code of a module of torch, which is not imported."""
    return ast.parse((Path(torch.__file__).parent / path).read_text(encoding="utf-8"))


def _named_in(path, name):
    """The strings of a list that a module assigns to a name."""
    for statement in _module(path).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            return set(ast.literal_eval(statement.value))
    raise AssertionError(f"{path} assigns no {name}")


def _assigned_in(path):
    """The names that a module assigns."""
    found = set()
    for statement in _module(path).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = getattr(statement, "targets", None) or [statement.target]
            found |= {ast.unparse(target) for target in targets}
    return found
