"""All differentiable operators: `python -m opinfo [--samples 3] [--table PATH]`,
and `--layout` for how their tensors lie in memory.

What comes in: how many samples of each. What goes out: counts, and every operator that is not the
same; as a page of Markdown if asked; exit status 1 if one differs.
Invariant: operators are named as torch's descriptions name them.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import torch
from torch.testing._internal.common_methods_invocations import op_db

from .check import DTYPE, LAYOUTS, Verdict, check


def page(verdicts: list[Verdict], samples: int, seconds: float) -> str:
    """The table as Markdown."""
    counts = Counter(item.kind for item in verdicts)
    lines = [
        "# Operators through `aot_function`",
        "",
        f"`python -m opinfo --samples {samples}` in `packages/aot/tests`; torch",
        f"{torch.__version__}, CPU, float64, {seconds:.0f} s. Results, strides and gradients of",
        "every operator of torch's own descriptions that is differentiable, against eager.",
        "",
        "| verdict | operators |",
        "| --- | --- |",
        *(f"| {kind} | {count} |" for kind, count in counts.most_common()),
        "",
        "| operator | verdict | why |",
        "| --- | --- | --- |",
        *(
            f"| `{item.name}` | {item.kind} | {item.words.replace('|', '/')} |"
            for item in verdicts
            if item.kind != "same"
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="opinfo")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--layout", choices=LAYOUTS, default="as they are")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    began = time.perf_counter()
    verdicts = [
        check(op, options.samples, options.layout)
        for op in op_db
        if op.supports_autograd and DTYPE in op.dtypes and options.only in op.name
    ]
    text = page(verdicts, options.samples, time.perf_counter() - began)
    print(text)
    if options.table:
        options.table.write_text(text)
    return 1 if any(item.kind == "different" for item in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
