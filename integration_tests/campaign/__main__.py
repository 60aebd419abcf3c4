"""`python -m integration_tests.campaign`: random programs, compiled and as they are.

In: flags. Out: a table; `results.jsonl`, `table.md` and scripts in the folder of `--out`.
Invariant: the exit status is 1 if a program differs, crashes, hangs or meets a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("FLAMBEAU_FAULTS", "raise")  # none passes by falling back
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.interpret:
        os.environ["TRITON_INTERPRET"] = "1"
    # torch and the product are imported once the environment is set
    from integration_tests.campaign import families
    from integration_tests.campaign.program import script
    from integration_tests.campaign.reporting import table
    from integration_tests.campaign.running import Plan, campaign
    from integration_tests.campaign.serving import Conditions

    conditions = Conditions(given.device, given.limit, given.interpret)
    if given.show or given.one:
        program = families.drawn(given.show or given.one, given.backend, given.device)
        if given.show:
            print(script(program))
            return 0
        return _one(program, conditions)
    chosen = given.families.split(",") if given.families else [*families.FAMILIES]
    if given.only:
        chosen = sorted({name.partition(":")[0] for name in given.only.split(",")})
    if conditions.forks:
        warm(chosen)
    plan = Plan(
        chosen, given.out, given.minutes, given.programs, given.seed, given.processes,
        given.backend, given.examples, given.merged, not given.no_shrink,
        given.only.split(",") if given.only else (),
    )  # fmt: skip
    rows = campaign(plan, conditions)
    print(table(rows))
    return 1 if any(row["verdict"] in ("crash", "hang", "differs", "fault") for row in rows) else 0


def warm(chosen: Sequence[str]) -> None:
    """Import what every process needs, before they are forked."""
    import importlib

    import torch

    import flambeau

    for family in chosen:
        importlib.import_module(f"integration_tests.campaign.families.{family}")
    if {"operators", "writes", "transforms", "promotion"} & set(chosen):
        from integration_tests.campaign.families import operators

        for label in operators.labels():
            with contextlib.suppress(Exception):  # those that a build of torch has no kernel for
                operators.samples(label)
    x = torch.ones(2, requires_grad=True)
    for backend in ("aot_eager_prims", "inductor"):
        flambeau.compile(lambda x: x.sin() + 1, backend=backend)(x)


def _one(program: object, conditions: object) -> int:
    import json

    from integration_tests.campaign.verdicts import BAD, row_of

    row = row_of(program, conditions.device, conditions.options())  # type: ignore[arg-type, attr-defined]
    print(json.dumps(row, indent=1, default=str))
    return int(row["verdict"] in BAD)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m integration_tests.campaign", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=10.0)
    add("--programs", type=int, default=10**9, help="at most so many, earlier runs included")
    add("--seed", type=int, default=0, help="of the first program of each family")
    add("--processes", type=int, default=max(1, len(os.sched_getaffinity(0))))
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--families", help="some of them, with commas")
    add(
        "--backend",
        default="mix",
        choices=("mix", "inductor", "aot_eager", "aot_eager_prims", "eager"),
    )
    add("--out", type=Path, default=Path("campaign"), help="rows are added to what is there")
    add("--limit", type=float, default=30.0, help="seconds of the processor for a program")
    add("--interpret", action="store_true", help="Triton kernels on the CPU, by its interpreter")
    add("--examples", type=int, default=2, help="of each cause, so many are made short")
    add("--no-shrink", action="store_true")
    add("--merged", action="store_true", help="scripts of what was found in one file")
    add("--only", help="these programs, family:seed, with commas")
    add("--show", metavar="FAMILY:SEED", help="print a program as a script")
    add("--one", metavar="FAMILY:SEED", help="judge one program in this process")
    return parser


if __name__ == "__main__":
    sys.exit(main())
