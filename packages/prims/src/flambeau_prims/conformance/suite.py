"""The kit as a pytest suite: `pytest --flambeau-backend mypkg:backend`.

In: pytest's options. Out: a test for each primitive and dtype, one for each composed graph, and one
of random graphs, which hypothesis shrinks. Invariant: what the backend declares is skipped, with
the reason it gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest  # type: ignore[import-not-found]  # there when this runs

from flambeau_prims.conformance.check import Backend, KitOutcome, check, load_backend
from flambeau_prims.conformance.programs.composed import COMPOSED, composed
from flambeau_prims.conformance.programs.random_graphs import random_program
from flambeau_prims.conformance.run import KitPlan, check_group, single_prims
from flambeau_prims.conformance.samples.registry import Case

try:
    import hypothesis  # type: ignore[import-not-found]
    from hypothesis import strategies  # type: ignore[import-not-found]
except ImportError:  # random graphs are skipped, and say so
    hypothesis = None  # type: ignore[assignment]


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Backend:
    """The backend under test."""
    try:
        return load_backend(request.config.getoption("flambeau_backend"))
    except LookupError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Pytest hook: the tests' parameters."""
    families = metafunc.config.getoption("flambeau_family")
    plan = KitPlan(families=families, seed=metafunc.config.getoption("flambeau_seed"))
    if "group" in metafunc.fixturenames:
        groups = list(single_prims(plan))
        metafunc.parametrize("group", groups, ids=[name for name, _ in groups])
    if "composition" in metafunc.fixturenames:
        wanted = families is None or "graphs" in families
        metafunc.parametrize("composition", list(COMPOSED) if wanted else [])


def _settle(outcomes: list[KitOutcome]) -> None:
    """Fail with what is wrong; skip if all that is left is declared."""
    if failures := [o for o in outcomes if o.status in ("wrong", "error")]:
        pytest.fail("\n".join(_outcome_text(o) for o in failures), pytrace=False)
    reasons = sorted({o.message for o in outcomes if o.status == "declared"})
    if reasons and all(o.status == "declared" for o in outcomes):
        pytest.skip(f"declared by the backend: {'; '.join(reasons)}")


def _outcome_text(outcome: KitOutcome) -> str:
    return f"{outcome.program.name}: {outcome.status}: {outcome.message}\n{outcome.program}"


def test_primitive(backend: Backend, group: tuple[str, list[Case]]) -> None:
    """All sample calls of a primitive in a dtype."""
    _settle(check_group(backend, *group))


def test_graph(backend: Backend, composition: str, request: pytest.FixtureRequest) -> None:
    """What a program lowers to."""
    seed = request.config.getoption("flambeau_seed")
    _settle([check(backend, p) for p in composed(seed, only=composition)])


@dataclass(frozen=True)
class _Drawn:
    """Decisions by hypothesis, which makes each as small as a failure allows."""

    draw: Callable[[Any], int]

    def number(self, low: int, high: int) -> int:
        return self.draw(strategies.integers(low, high))


def test_random_graphs(backend: Backend, request: pytest.FixtureRequest) -> None:
    """Random graphs; a failing one is shown in its smallest form."""
    families = request.config.getoption("flambeau_family")
    if families is not None and "random graphs" not in families:
        pytest.skip("another family was asked for")
    if hypothesis is None:
        pytest.skip("hypothesis is not installed: random graphs need it to shrink")

    @strategies.composite
    def programs(draw: Callable[[Any], int]) -> Any:
        return random_program(_Drawn(draw))

    @hypothesis.seed(request.config.getoption("flambeau_seed"))
    @hypothesis.settings(
        max_examples=request.config.getoption("flambeau_graphs"),
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(program=programs())
    def right(program: Any) -> None:
        outcome = check(backend, program)
        assert outcome.status in ("right", "declared"), _outcome_text(outcome)

    right()
