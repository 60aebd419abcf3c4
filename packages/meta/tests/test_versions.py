import tomllib
import warnings
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from flambeau import _versions
from flambeau.errors import IncompatibleSiblings

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def test_ranges_are_those_declared():
    declared = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    wanted = {r.name: r.specifier for r in map(Requirement, declared) if "flambeau" in r.name}
    assert wanted == {name: SpecifierSet(text) for name, text in _versions.RANGES.items()}
    (torchs,) = (r.specifier for r in map(Requirement, declared) if r.name == "torch")
    assert torchs == SpecifierSet(_versions.TORCHES)


@pytest.mark.parametrize(
    ("version", "fits"),
    [("2.13.0+cpu", True), ("2.11.0", True), ("2.9.1", False), ("2.15.0", False)],
)
def test_a_torch_out_of_range_is_told(monkeypatch, version: str, fits: bool):
    monkeypatch.setattr(torch, "__version__", version)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _versions.check()
    assert [f"torch {version}" in str(each.message) for each in told] == [True] * (not fits)


def test_the_installed_ones_fit():
    _versions.check()


@pytest.mark.parametrize("version", ["0.0.9", "0.2.0", "1.0.0"])
def test_a_sibling_out_of_range_is_named(version):
    versions = {**_versions.installed(), "flambeau-aot": version}
    (found,) = _versions.misfits(versions, max(_versions.DIALECTS))
    assert found == f"flambeau-aot {version} (wants >=0.1.0,<0.2)"


@pytest.mark.parametrize("wanted", [*_versions.RANGES.values(), ">=0.3.1,<0.4", ">=1,<2.5"])
@pytest.mark.parametrize(
    "version",
    ["0.1", "0.1.0", "0.1.0.1", "0.1.9", "0.2", "0.2.0", "0.2.0rc1", "0.1.5.dev3", "0.3.1", "0.3.0",
     "0.4", "1", "2.4.99", "2.5", "1!0.1"],
)  # fmt: skip
def test_numbers_are_compared_as_packaging_does(wanted, version):
    expected = SpecifierSet(wanted).contains(version, prereleases=True)
    assert _versions._contains(wanted, version) == expected


def test_the_error_is_one_sentence_that_says_what_to_run(monkeypatch):
    versions = {**_versions.installed(), "flambeau-prims": "0.3.0"}
    monkeypatch.setattr(_versions, "installed", lambda: versions)
    with pytest.raises(IncompatibleSiblings) as caught:
        _versions.check()
    text = str(caught.value)
    assert "\n" not in text
    assert "flambeau-prims 0.3.0" in text
    assert "pip install" in text


def test_another_dialect():
    (found,) = _versions.misfits(_versions.installed(), 99)
    assert found == "prims dialect 99 (knows 2)"
