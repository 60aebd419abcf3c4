"""Variables of the environment: what none of them can be is an error that names it."""

import pytest

import flambeau
from flambeau.errors import UnknownName
from flambeau.variables import CHECKS, BadSetting, check_variables

RIGHT = {
    "FLAMBEAU_DISABLE": ("0", "1"),
    "FLAMBEAU_INSTALL": ("0", "1"),
    "FLAMBEAU_LOGS": ("graph", "graph, code", "all"),
    "FLAMBEAU_FAULTS": ("raise",),
    "FLAMBEAU_CACHE_SIZE": ("500M", "2G", "100000"),
    "FLAMBEAU_TRACE": ("{tmp}/made/on/the/way",),
    "FLAMBEAU_PROGRESS": ("0", "1"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_each_value(name, monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(name, f"{tmp_path}/file/in/it" if name.endswith("TRACE") else "grph")
    with pytest.raises((BadSetting, UnknownName), match=name):
        flambeau.compile(lambda x: x)
    for value in ("", *RIGHT[name]):
        monkeypatch.setenv(name, value.replace("{tmp}", str(tmp_path)))
        check_variables()
