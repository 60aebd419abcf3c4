"""The score card of a backend: `python -m flambeau_prims.conformance mypkg:backend`.

In: the name of a backend function, `module:attribute`. Out: the card, and the exit status.
Invariant: the status is 0 only if something was run and nothing was wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

import torch

from flambeau_prims._op import PRIMS
from flambeau_prims.conformance.check import Backend, KitOutcome, declaration, load_backend
from flambeau_prims.conformance.run import KINDS, KitPlan, run
from flambeau_prims.conformance.samples.tensors import CPU
from flambeau_prims.conformance.score import ScoreCard


def score(name: str, backend: Backend, plan: KitPlan, *, verbose: bool = False) -> ScoreCard:
    """Run `plan` and make the card."""

    def show(outcome: KitOutcome) -> None:
        if outcome.status in ("wrong", "error"):
            print(f"{outcome.program.name}: {outcome.status}: {outcome.message}", file=sys.stderr)

    start = time.perf_counter()
    outcomes = run(backend, plan, show if verbose else None)
    seconds = time.perf_counter() - start
    return ScoreCard(name, declaration(backend), tuple(outcomes), seconds)


def main(argv: Sequence[str]) -> int:
    """Command line; returns the exit status."""
    families = sorted(
        {prim.family for prim in PRIMS.values()} | {"graphs", "random graphs", "symbols"}
    )
    parser = argparse.ArgumentParser(prog="python -m flambeau_prims.conformance")
    parser.add_argument("backend", help="module:function, called with (gm, inputs)")
    parser.add_argument("--family", action="append", choices=families, help="may be repeated")
    parser.add_argument("--prim", action="append", choices=sorted(PRIMS), metavar="NAME")
    parser.add_argument("--dtype", action="append", metavar="NAME", help="such as float32")
    parser.add_argument("--device", type=torch.device, default=CPU, help="such as cuda")
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--random-graphs", type=int, default=50, metavar="N")
    parser.add_argument("--failures", type=int, default=None, metavar="N", help="list at most N")
    parser.add_argument("--json", action="store_true", help="print the card as JSON")
    parser.add_argument("--verbose", action="store_true", help="show failures as they occur")
    options = parser.parse_args(argv)
    found = [getattr(torch, name, None) for name in options.dtype or ()]
    dtypes = [dtype for dtype in found if isinstance(dtype, torch.dtype)]
    if len(dtypes) < len(found):
        parser.error(f"--dtype takes names of torch dtypes, not {', '.join(options.dtype)}")
    plan = KitPlan(
        families=options.family,
        dtypes=dtypes or None,
        kinds=options.kind or KINDS,
        seed=options.seed,
        random_graphs=options.random_graphs,
        prims=options.prim,
        device=torch.empty(0, device=options.device).device,  # with its index
    )
    try:
        backend = load_backend(options.backend)
    except LookupError as error:
        parser.error(str(error))
    card = score(options.backend, backend, plan, verbose=options.verbose)
    print(json.dumps(card.data(), indent=2) if options.json else card.text(options.failures))
    return 0 if card.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
