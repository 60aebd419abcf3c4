"""Numbers of a device: where they are from, and what other devices get."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import flambeau_inductor.tuning.tuning as tuning_module
import pytest
from flambeau_inductor.limits import Limits
from flambeau_inductor.templates.gemm.tiles import candidates, fit
from flambeau_inductor.templates.selection.heuristics import select_by_model
from flambeau_inductor.tuning import MEASURED, Tuning, tuning_for

from tests.templates.test_select import sound
from tests.tuning.cards import CARDS, card
from tests.tuning.programs import PROGRAMS

PACKAGE = Path(__file__).parents[2]
DATA = Path(tuning_module.__file__).parent / "h200.json"
BEFORE_FLASH = {"NVIDIA A100-SXM4-80GB", "NVIDIA L4"}
"""Cards that FlashAttention 2 was made for."""


def test_each_number_says_where_it_is_from() -> None:
    rows = json.loads(DATA.read_text())["numbers"]
    assert rows.keys() == {field.name for field in fields(Tuning)} - {"machine"}
    for name, row in rows.items():
        assert ("measured" in row) != ("chosen" in row), name
        if "measured" in row:
            assert (PACKAGE.parents[1] / row["measured"]).is_file(), name


@pytest.mark.parametrize("broken", ["version", "number", "source"])
def test_a_file_that_lacks_something_is_refused(broken: str, tmp_path: Path) -> None:
    found = json.loads(DATA.read_text())
    if broken == "version":
        found["version"] += 1
    elif broken == "number":
        del found["numbers"]["launch"]
    else:
        del found["numbers"]["launch"]["chosen"]
    path = tmp_path / "card.json"
    path.write_text(json.dumps(found))
    with pytest.raises(ValueError, match=r"card\.json"):
        tuning_module.read(path)


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
        tiles = candidates(*sizes, 2, described=tuning.machine.described, tuning=tuning)
        assert tiles and all(fit(tile, 2, tuning) == tile for tile in tiles)
        assert all(tile.multiprocessors == tuning.machine.multiprocessors for tile in tiles)


def test_what_is_set_by_hand_is_not_scaled() -> None:
    tuning = tuning_for(card("NVIDIA L4"))
    limits = Limits(split_programs=7).on(tuning)
    assert (limits.split_programs, limits.across_bytes) == (7, tuning.across_bytes)
    assert Limits().on(tuning).split_programs == 2 * tuning.machine.multiprocessors


def test_what_other_cards_get_compiles_and_fits() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(PACKAGE), *sys.path])
    command = [sys.executable, "-m", "tests.tuning.compile_cards"]
    done = subprocess.run(
        command, env=environment, cwd=PACKAGE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {row["card"] for row in report} == set(CARDS)
    for name in CARDS:
        taken = {row["program"] for row in report if row["card"] == name}
        assert taken == set(PROGRAMS) - ({"attention"} if name in BEFORE_FLASH else set())
    assert not [row for row in report if row["shared"] > row["has"]]
