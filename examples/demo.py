"""The main job on real input, in one report on the terminal.

    python examples/demo.py [--backend NAME] [--only sentences digits toy]

In: nothing but the installed packages. Out: exit status 0 when every check holds.
Invariant: what is shown was measured in this run.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from checks import Part, summary
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import flambeau

PARTS = ("sentences", "digits", "toy")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", default="inductor", choices=flambeau.list_backends())
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=PARTS)
    return parser.parse_args()


def run_part(name: str, backend: str, console: Console) -> Part:
    """One part, with its progress, shown when it is done."""
    if name == "toy":
        import toy  # each part loads what it needs, no other's data

        part, text = toy.run()
        console.rule(f"[bold]{part.title}")
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        part.show(console)
        return part
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        if name == "sentences":
            import sentences

            part = sentences.run(progress, backend)
        else:
            import digits

            part = digits.run(progress, backend)
    console.rule(f"[bold]{part.title}")
    part.show(console)
    return part


def main() -> int:
    """All parts asked for."""
    chosen = arguments()
    console = Console(width=None if sys.stdout.isatty() else 120)
    started = time.perf_counter()
    versions = f"flambeau {flambeau.__version__}, torch {torch.__version__}"
    console.print(f"{versions}, {torch.get_num_threads()} threads, backend {chosen.backend}")
    parts = [run_part(name, chosen.backend, console) for name in chosen.only]
    console.rule()
    console.print(f"{time.perf_counter() - started:.0f} s")
    return 0 if summary(parts, console) else 1


if __name__ == "__main__":
    sys.exit(main())
