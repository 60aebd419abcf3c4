"""Numbers of a device: where they are from, and what other devices get."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import flambeau_inductor.tuning.machine as tuning_module
import pytest
from flambeau_inductor.scheduling_limits import Limits
from flambeau_inductor.templates.gemm.tiles import GemmShape, candidates, fit
from flambeau_inductor.templates.selection.select import select_by_model
from flambeau_inductor.tuning import (
    MEASURED,
    HostTuning,
    Tuning,
    host_tuning,
    host_tuning_for,
    tuning_for,
)
from flambeau_inductor.tuning.machine import cache_sizes

from tests import uninterpreted
from tests.templates.selection.test_select import sound
from tests.tuning.cards import CARDS, PROCESSORS, card
from tests.tuning.programs import PROGRAMS

PACKAGE = Path(__file__).parents[2]
FOLDER = tuning_module.FOLDER
BEFORE_FLASH = {"NVIDIA A100-SXM4-80GB", "NVIDIA L4"}
"""Cards that FlashAttention 2 was made for."""


@pytest.mark.parametrize(("name", "kind"), [("h200.json", Tuning), ("epyc.json", HostTuning)])
def test_each_number_says_where_it_is_from_and_what_it_follows(name: str, kind: type) -> None:
    found = json.loads((FOLDER / name).read_text())
    rows = found["numbers"]
    assert rows.keys() == {field.name for field in fields(kind)} - {"machine"}
    for number, row in rows.items():
        assert ("measured" in row) != ("chosen" in row), number
        if "measured" in row:
            assert (PACKAGE.parents[1] / row["measured"]).is_file(), number
        assert row["is"] and row.keys() <= {
            "value",
            "is",
            "measured",
            "chosen",
            "follows",
            "leaves",
        }
        assert not {"follows", "leaves"} <= row.keys(), number
        scaled = isinstance(row["value"], int | float)
        assert scaled or not {"follows", "leaves"} & row.keys(), number


def shape_of(value: Any) -> Any:
    """Of a number its type, of a table the types and how it is nested."""
    if isinstance(value, Mapping):
        return {name: shape_of(each) for name, each in value.items()}
    return tuple(map(shape_of, value)) if isinstance(value, tuple) else type(value)


@pytest.mark.parametrize("name", CARDS)
def test_every_number_of_a_card_follows_its_model(name: str) -> None:
    here, there = tuning_for(card(name)), MEASURED
    for field in fields(Tuning):
        if field.name != "machine":
            value, known = getattr(here, field.name), getattr(there, field.name)
            assert shape_of(value) == shape_of(known), field.name
            assert not isinstance(value, int | float) or value > 0, field.name
    count = here.machine.multiprocessors / there.machine.multiprocessors
    bandwidth = here.machine.bandwidth / there.machine.bandwidth
    cache = here.machine.cache_bytes / there.machine.cache_bytes
    assert here.memory_rate == pytest.approx(there.memory_rate * bandwidth)
    assert here.copied_bytes == pytest.approx(there.copied_bytes * bandwidth, abs=1)
    assert here.split_programs == pytest.approx(there.split_programs * count, abs=1)
    assert here.flush_bytes == pytest.approx(there.flush_bytes * cache, abs=1)
    free = there.machine.shared_bytes - there.tile_bytes
    assert here.machine.shared_bytes - here.tile_bytes == free


@pytest.mark.parametrize("name", PROCESSORS)
def test_every_number_of_a_processor_follows_its_caches(name: str) -> None:
    epyc = tuning_module.read(FOLDER / "epyc.json", HostTuning)
    here = host_tuning_for(PROCESSORS[name])
    last = (here.machine.cache_bytes or epyc.machine.cache_bytes) / epyc.machine.cache_bytes
    for field in fields(HostTuning):
        if field.name != "machine":
            value, known = getattr(here, field.name), getattr(epyc, field.name)
            assert type(value) is type(known) and value > 0, field.name
    assert here.flush_bytes == epyc.flush_bytes * last
    assert here.linear_most_bytes == epyc.linear_most_bytes * last
    assert here.streamed_bytes == epyc.streamed_bytes * last
    assert here.drawn_elements == epyc.drawn_elements


def test_the_caches_of_this_processor_are_read_from_the_system(tmp_path: Path) -> None:
    for number, (level, size) in enumerate([("1", "48K"), ("2", "2048K"), ("3", "32768K")]):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        (folder / "level").write_text(level)
        (folder / "size").write_text(size)
    assert cache_sizes(tmp_path.iterdir()) == (2 << 20, 32 << 20)
    assert cache_sizes([]) == cache_sizes([tmp_path / "none"]) == (0, 0)
    assert host_tuning().machine.name and host_tuning() is host_tuning()


@pytest.mark.parametrize("broken", ["version", "number", "source"])
def test_a_file_that_lacks_something_is_refused(broken: str, tmp_path: Path) -> None:
    found = json.loads((FOLDER / "h200.json").read_text())
    if broken == "version":
        found["version"] += 1
    elif broken == "number":
        del found["numbers"]["launch"]
    else:
        del found["numbers"]["launch"]["chosen"]
    path = tmp_path / "card.json"
    path.write_text(json.dumps(found))
    with pytest.raises(ValueError, match=r"card\.json"):
        tuning_module.read(path, Tuning)


def test_the_measured_device_keeps_its_numbers() -> None:
    assert card("NVIDIA H200") == MEASURED.machine
    assert tuning_for(card("NVIDIA H200")) == MEASURED and MEASURED.trusted
    assert Limits().on(MEASURED) == Limits()


def test_a_device_of_the_same_parts_is_tuned_alike() -> None:
    """Scaling by nothing changes nothing: the rules and the data agree."""
    twin = replace(MEASURED.machine, name="another")
    found = tuning_for(twin)
    assert replace(found, machine=MEASURED.machine) == MEASURED and not found.trusted


@pytest.mark.parametrize("name", CARDS)
def test_other_cards_get_templates_of_their_size(name: str) -> None:
    tuning = tuning_for(card(name))
    assert not tuning.trusted and tuning.tile_bytes < tuning.machine.shared_bytes
    for what, make in PROGRAMS.items():
        program = make()
        made = select_by_model(program, tuning)
        kept = what == "attention" and name in BEFORE_FLASH
        assert bool(made.kernels) != kept, what
        assert tuning.machine.described or not any(k.descriptors for k in made.kernels.values())
        sound(made.program)
    for sizes in ((4096, 4096, 4096, 1), (512, 512, 512, 64), (64, 4096, 4096, 1)):
        tiles = candidates(GemmShape(*sizes, 2), described=tuning.machine.described, tuning=tuning)
        assert tiles and all(fit(tile, 2, tuning) == tile for tile in tiles)
        assert all(tile.multiprocessors == tuning.machine.multiprocessors for tile in tiles)


def test_what_is_set_by_hand_is_not_scaled() -> None:
    tuning = tuning_for(card("NVIDIA L4"))
    limits = Limits(split_programs=7).on(tuning)
    assert (limits.split_programs, limits.across_bytes) == (7, tuning.across_bytes)
    assert Limits().on(tuning).split_programs == 2 * tuning.machine.multiprocessors


def test_what_other_cards_get_compiles_and_fits() -> None:
    report = json.loads(uninterpreted.run("-m", "tests.tuning.compile_cards"))
    assert {row["card"] for row in report} == set(CARDS)
    for name in CARDS:
        taken = {row["program"] for row in report if row["card"] == name}
        assert taken == set(PROGRAMS) - ({"attention"} if name in BEFORE_FLASH else set())
    assert not [row for row in report if row["shared"] > row["has"]]
