"""Templates compile to cubins for sm_80 or sm_90 with no GPU, and use the tensor units; for both
with FLAMBEAU_SWEEPS=1 (`nox -s sweeps`)."""

from __future__ import annotations

import json

import pytest

from tests import uninterpreted

DESCRIBED = (
    "windows_wide",
    "described",
    "resident",
    "resident2",
    "experts_wide",
    "weights_wide",
    "forward128",
    "keys64",
    "keys128",
    "queries128",
)
SHARED = {80: 163 * 1024, 90: 227 * 1024}


@pytest.mark.sweep
def test_every_template_compiles_and_fits() -> None:
    report = json.loads(uninterpreted.run("-m", "tests.templates.compile_offline", "80", "90"))
    assert len({row["kernel"] for row in report}) == 27
    assert {row["capability"] for row in report} == {80, 90}
    for row in report:
        assert 16 < row["registers"] <= 255, row
        assert row["described"] == (row["kernel"] in DESCRIBED), row
        assert row["cubin"] > 1000 and not row["local"], row
        if row["kernel"] != "large" or row["capability"] == 90:  # the large tile is for sm_90
            assert row["shared"] <= SHARED[row["capability"]], row
        if row["kernel"] not in ("float", "depthwise"):  # float32 is multiplied as float32
            assert row["tensor_units"], row
