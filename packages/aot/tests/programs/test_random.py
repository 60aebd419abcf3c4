"""Some hundred random programs; `python -m programs` runs as many as one likes."""

from hypothesis import HealthCheck, Phase, given, settings

from .compare import compare
from .draw import drafts
from .program import Draft, build


@settings(
    max_examples=200,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(drafts)
def test_program(draft: Draft) -> None:
    program = build(draft)
    verdict = compare(program)
    assert verdict.kind != "different", f"{verdict.words}\n{program.source}"
