"""Some hundred random programs; `python -m programs` runs as many as one likes.

The seed is fixed, so that every run tests the same programs; the environment variable
FLAMBEAU_PROGRAMS_SEED gives another, and a program that fails is shown with it.
"""

import os

from hypothesis import HealthCheck, Phase, given, note, seed, settings

from .compare import compare
from .draw import drafts
from .program import Draft, build

SEED = int(os.environ.get("FLAMBEAU_PROGRAMS_SEED", "1"))


@seed(SEED)
@settings(
    max_examples=200,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(drafts)
def test_program(draft: Draft) -> None:
    note(f"FLAMBEAU_PROGRAMS_SEED={SEED}")
    program = build(draft)
    verdict = compare(program)
    assert verdict.kind != "different", f"{verdict.words}\n{program.source}"
