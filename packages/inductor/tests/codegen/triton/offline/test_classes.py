"""Every kernel class compiles to a cubin with no GPU in the machine: for sm_80 or sm_90; for both
with FLAMBEAU_SWEEPS=1 (`nox -s sweeps`)."""

from __future__ import annotations

import json

import pytest
from tests import uninterpreted

pytestmark = pytest.mark.sweep
SHARED_LIMIT = 160 * 1024


@pytest.fixture(scope="module")
def report() -> list[dict[str, object]]:
    """What the compiler said of each class, from a process whose interpreter is off."""
    program = "tests.codegen.triton.offline.compile_classes"
    rows: list[dict[str, object]] = json.loads(uninterpreted.run("-m", program, "80", "90"))
    return rows


def test_a_cubin_for_every_class(report: list[dict[str, object]]) -> None:
    assert len(report) >= 27
    assert {row["capability"] for row in report} == {80, 90}
    for row in report:
        assert int(str(row["cubin"])) > 1000, row


def test_shared_memory_stays_in_bounds(report: list[dict[str, object]]) -> None:
    assert [row for row in report if int(str(row["shared"])) > SHARED_LIMIT] == []


def test_nothing_spills_to_local_memory(report: list[dict[str, object]]) -> None:
    # one byte is set aside, and never used, where a whole row of bytes is reduced (sm_90)
    spilled = {str(row["kernel"]) for row in report if int(str(row["local"])) > 1}
    # sin and cos keep a table of their argument reduction in local memory.
    assert {name for name in spilled if "every_function" not in name} == set()


def test_reductions_have_registers_for_what_they_hold(report: list[dict[str, object]]) -> None:
    sums = [row for row in report if "sums_of_many" in str(row["kernel"])]
    assert len(sums) >= 10 and [row for row in sums if int(str(row["stack"])) > 16] == []


def test_big_rows_use_wide_loads(report: list[dict[str, object]]) -> None:
    softmax = [row for row in report if row["kernel"] in ("0:softmax", "26:softmax", "27:softmax")]
    assert len(softmax) == 3 and all(int(str(row["wide_loads"])) > 0 for row in softmax)


def test_rows_that_are_looked_up_use_wide_loads(report: list[dict[str, object]]) -> None:
    gathers = [row for row in report if "embedding" in str(row["kernel"])]
    assert len(gathers) >= 2 and all(int(str(row["wide_loads"])) > 0 for row in gathers)


def test_checks_are_in_the_binary_and_nowhere_else(report: list[dict[str, object]]) -> None:
    asserting = {str(row["kernel"]).split(":")[1] for row in report if int(str(row["asserts"]))}
    assert asserting == {"checked_embedding"}
