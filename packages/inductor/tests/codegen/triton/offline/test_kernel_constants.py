"""Functions with a constant among their operands, compiled for a GPU with none there."""

from __future__ import annotations

import json

import pytest
from tests import uninterpreted


@pytest.mark.sweep
def test_every_function_takes_a_constant() -> None:
    """A constant is one element, and the other operand a block: neither may lead.

    Of a dtype of each kind; of all with FLAMBEAU_SWEEPS=1 (`nox -s sweeps`).
    """
    program = "tests.codegen.triton.offline.compile_constants"
    report = json.loads(uninterpreted.run("-m", program, "90"))
    assert report["functions"] > 50
    assert report["refused"] == {}
