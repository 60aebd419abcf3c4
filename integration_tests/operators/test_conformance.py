"""The backends of this repository through the conformance kit.

The NumPy backend runs all of it. The inductor runs a part here, chosen for the kinds of kernels it
generates; all of it is a command, with this folder on the path:
`python -m flambeau_prims.conformance inductor_backend:backend`.
"""

from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    for folder in ("examples", "integration_tests/operators"):
        monkeypatch.syspath_prepend(str(ROOT / folder))


def told(outcomes):
    return [f"{o.program.name}: {o.message}" for o in outcomes]


def test_numpy_backend_passes_in_full():
    pytest.importorskip("scipy")
    from flambeau_prims import PRIMS
    from flambeau_prims.conformance import KitPlan, run
    from numpy_backend import FUNCTIONS, backend

    assert set(FUNCTIONS) == set(PRIMS)
    outcomes = run(backend, KitPlan(random_graphs=30))
    assert told(o for o in outcomes if o.status != "right") == []
    assert {name for o in outcomes for name in o.program.prims} == set(PRIMS)


def test_numpy_backend_says_what_it_does_not_know():
    from flambeau_prims import lower
    from numpy_backend import backend
    from torch import fx

    gm = lower(fx.symbolic_trace(lambda x: (x.exp(),)), [torch.ones(2)], table={})
    with pytest.raises(ValueError, match=r"aten.exp.default is not a prim"):
        backend(gm, [torch.ones(2)])


def test_inductor_on_graphs_and_kernels():
    from flambeau_prims.conformance import KitPlan, run
    from inductor_backend import backend

    plans = [
        KitPlan(families=["graphs", "random graphs"], random_graphs=20),
        KitPlan(families=["reduction", "shape"], dtypes=[torch.float32]),
        KitPlan(
            prims=["add", "exp", "maximum", "cast", "where"], dtypes=[torch.float32, torch.bool]
        ),
    ]
    outcomes = [outcome for plan in plans for outcome in run(backend, plan)]
    assert told(o for o in outcomes if o.status in ("wrong", "error")) == []
    assert sum(o.status == "right" for o in outcomes) > 50
