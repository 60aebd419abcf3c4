"""The cache as one file; what was changed or is of another kind of machine is refused."""

import zipfile

import pytest
import torch
from flambeau_inductor.cache import size_limit

import flambeau
from flambeau import Refused, cache
from flambeau.__main__ import main
from flambeau.cache import disk


def fn(x):
    return torch.sin(x) * 2


@pytest.fixture
def filled(tmp_path, monkeypatch):
    """A file of a cache with a graph and its kernels; the folder in use is another, empty one."""
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "one"))
    flambeau.compile(fn)(torch.ones(3))
    assert cache.save(tmp_path / "cache.zip") == 2
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "two"))
    return tmp_path / "cache.zip"


def test_carried_to_another_folder(filled):
    assert cache.info().entries == {}
    assert cache.load(filled) == 2 and cache.load(filled) == 0
    assert cache.info().entries == {"graphs": 1, "kernels": 1}
    compiled = flambeau.compile(fn)
    torch.testing.assert_close(compiled(torch.ones(3)), fn(torch.ones(3)))
    assert flambeau.report(compiled).records[0].from_disk


def test_cleared(filled):
    cache.load(filled)
    assert cache.clear(kind="graphs") == 1 and cache.info().entries == {"kernels": 1}
    assert cache.clear() == 1 and cache.clear() == 0


def test_the_keys_are_there(filled):
    cache.load(filled)
    (key,) = cache.keys()
    assert "sin" in dict(key.parts)["graph"] and "torch" in dict(key.parts)["versions"]
    assert cache.why_miss(key, key) == []


def rewritten(path, change):
    """The file with its members changed by `change(name, data)`; None leaves one out."""
    with zipfile.ZipFile(path) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    with zipfile.ZipFile(path, "w") as packed:
        for name, data in members.items():
            data = change(name, data)
            if data is not None:
                packed.writestr(name, data)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda n, d: d[:-1] + b"x" if n.endswith("program.json") else d, "digest differs"),
        (lambda n, d: None if n.endswith("program.json") else d, "not what the file holds"),
        (lambda n, d: b"{}" if n == "manifest.json" else d, "not a file of Flambeau"),
        (lambda n, d: d.replace(b'"kind": "cache"', b'"kind": "package"'), "holds a package"),
        (lambda n, d: d.replace(b'"format": 1', b'"format": 9'), "format 9"),
    ],
)
def test_a_changed_file_is_refused(filled, change, reason):
    rewritten(filled, change)
    with pytest.raises(Refused, match=reason):
        cache.load(filled)
    assert cache.info().entries == {}


def test_a_truncated_file_is_refused(filled):
    filled.write_bytes(filled.read_bytes()[:-40])
    with pytest.raises(Refused, match="cut off"):
        cache.load(filled)


def test_another_kind_of_machine_is_refused(filled, monkeypatch):
    here = disk.surroundings()
    monkeypatch.setattr(disk, "surroundings", lambda: {**here, "processor": "another"})
    with pytest.raises(Refused, match="made with other processor"):
        cache.load(filled)
    assert cache.info().entries == {}


def test_an_entry_under_a_name_of_its_own_choosing_is_refused(filled):
    """Digests are right and the key is another's: the entry would be found for another program."""
    import hashlib
    import json

    with zipfile.ZipFile(filled) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    manifest = json.loads(members.pop("manifest.json"))
    name = next(n for n in members if n.endswith("-key.json") and n.startswith("graphs"))
    members[name] = members[name].replace(b"sin", b"cos")
    manifest["digests"][name] = hashlib.sha256(members[name]).hexdigest()
    with zipfile.ZipFile(filled, "w") as packed:
        for each, data in members.items():
            packed.writestr(each, data)
        packed.writestr("manifest.json", json.dumps(manifest))
    with pytest.raises(Refused, match="does not have the key"):
        cache.load(filled)


def test_pruned_and_verified(filled, monkeypatch):
    cache.load(filled)
    count = sum(cache.info().entries.values())
    assert cache.verify() == [] and cache.prune() == 0
    monkeypatch.setattr(size_limit, "GRACE", -1.0)
    broken = next(size_limit.entries_under(cache.info().folder)).folder
    victim = next(file for file in broken.iterdir() if file.name != "digests.json")
    victim.write_bytes(victim.read_bytes() + b"x")
    assert cache.verify() == [broken] and main(["cache", "verify"]) == 1
    assert cache.prune(0) == count and not any(cache.info().entries.values())


def test_the_command(filled, tmp_path, capsys):
    def told(*arguments):
        assert main(["cache", *map(str, arguments)]) == 0
        return capsys.readouterr().out

    assert told("load", filled).endswith("new entries\n")
    assert told() == told("info") == f"{cache.info()}\n"
    assert len(told("keys").splitlines()) == len(cache.keys())
    assert told("verify") == "every entry is as it was written\n"
    assert told("prune", "--size", "1G") == "0 entries removed\n"
    entries = sum(cache.info().entries.values())
    assert told("save", tmp_path / "again") == f"{entries} entries in {tmp_path / 'again'}\n"
    assert told("clear") == f"{entries} entries removed\n"
    assert not any(cache.info().entries.values())
    with pytest.raises(SystemExit):
        main(["cache", "prune", "--size", "lots"])


def test_what_it_says(filled):
    cache.load(filled)
    text = str(cache.info())
    assert "1 graphs," in text and "1 kernels" in text and f"{cache.info().limit:,}" in text
