"""Variables of the environment: what none of them can be is an error that names it."""

import re
from pathlib import Path

import flambeau_aot
import flambeau_capture
import flambeau_inductor
import flambeau_prims
import pytest

import flambeau
from flambeau.errors import FlambeauWarning, UnknownName
from flambeau.variables import CHECKS, KNOWN, BadSetting, check_variables

RIGHT = {
    "FLAMBEAU_DISABLE": ("0", "1"),
    "FLAMBEAU_INSTALL": ("0", "1"),
    "FLAMBEAU_COMPILE_ONCE": ("0", "1"),
    "FLAMBEAU_LOGS": ("graph", "graph, code", "all"),
    "FLAMBEAU_FAULTS": ("raise",),
    "FLAMBEAU_CACHE_SIZE": ("500M", "2G", "100000"),
    "FLAMBEAU_TRACE": ("{tmp}/made/on/the/way",),
    "FLAMBEAU_DEBUG_DIR": ("{tmp}/made/too",),
    "FLAMBEAU_PROGRESS": ("0", "1"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_each_value(name, monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(name, f"{tmp_path}/file/in/it" if "tmp" in RIGHT[name][0] else "grph")
    with pytest.raises((BadSetting, UnknownName), match=name):
        flambeau.compile(lambda x: x)
    for value in ("", *RIGHT[name]):
        monkeypatch.setenv(name, value.replace("{tmp}", str(tmp_path)))
        check_variables()


def test_a_misspelt_name_is_told_once(monkeypatch) -> None:
    monkeypatch.setenv("FLAMBEAU_LOG", "graph")
    monkeypatch.setenv("FLAMBEAU_SOMETHING_OF_A_PROGRAMS_OWN", "1")
    with pytest.warns(FlambeauWarning) as told:
        for _ in range(2):
            flambeau.compile(lambda x: x)
    assert [str(each.message) for each in told] == [
        "FLAMBEAU_LOG is not read by Flambeau: did you mean FLAMBEAU_LOGS?"
    ]


def test_every_variable_that_is_read_is_known() -> None:
    read = set()
    for package in (flambeau, flambeau_capture, flambeau_aot, flambeau_inductor, flambeau_prims):
        for file in Path(package.__file__).parent.rglob("*.py"):
            read |= set(re.findall(r"['\"](FLAMBEAU_[A-Z_]+)['\"]", file.read_text("utf-8")))
    assert KNOWN == read
