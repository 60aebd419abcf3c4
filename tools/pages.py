"""Pages of the documentation that come from tables in the code.

    python tools/pages.py [--check]

In: the tables of graph breaks and of refusals, the registry of primitives, options, docstrings, the
states of Python's constructs, what benchmarks left, and small programs that are compiled for their
pictures. Out: the pages of `PAGES` and the pictures; with `--check` nothing is written, and the
exit status says whether all are up to date. Invariant: nothing on these pages is written by hand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from flambeau_aot import refusals
from flambeau_capture import builtins as _builtins  # noqa: F401 - declares what is not guarded
from flambeau_capture.breaks import REASONS
from flambeau_capture.observe import unguarded
from flambeau_inductor.codegen import device_functions
from flambeau_inductor.lowering import registry
from flambeau_prims import catalogue

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from integration_tests.conformance import page as language
from tools import benchmark_page, pictures, reference
from tools.notebook import notebook

DOCS = Path(__file__).resolve().parents[1] / "docs"

BREAKS_HEAD = """\
# Graph breaks

Where capture meets what it cannot put into a graph, the graph so far runs, the line runs in Python,
and capture goes on after it. Each reason has an id that never changes. `flambeau.explain` and
`flambeau.report` show them with your lines; with `fullgraph=True` they are errors.
"""


def breaks() -> str:
    """The page of graph breaks: a section a reason."""
    sections = [BREAKS_HEAD]
    for reason in REASONS.values():
        title = reason.title[:1].upper() + reason.title[1:]
        hint = reason.hint[:1].upper() + reason.hint[1:]
        sections.append(f"## {reason.id}\n\n{title}.\n\nWhat helps: {hint}.\n")
    return "\n".join(sections)


REFUSALS_HEAD = """\
# Refusals

Where ahead-of-time autograd meets a program of which it cannot promise eager's answer, it raises
one of these, and the graph runs eagerly. Each has an id that never changes: the error's message
begins with it, `flambeau.report` shows it, and an exception has it as `id`.
"""


def aot_refusals() -> str:
    """The page of refusals of ahead-of-time autograd: a section a refusal."""
    sections = [REFUSALS_HEAD]
    for row in refusals.refusals().values():
        helps = f"\n\nWhat helps: {row.remedy}." if row.remedy else ""
        sections.append(f"## {row.id}\n\n`{row.kind.__name__}`: {row.message}.{helps}\n")
    return "\n".join(sections)


LIBRARY_CALLS_HEAD = """\
# What computes a primitive

A primitive is computed by generated loops, which fuse with those around it, by a template, or by
one call of the library that eager calls. Of complex numbers everything is the library's, of half
precision `nextafter`, which steps by another distance there.

## Fused by a body of its own

One function in `flambeau_inductor/runtime/device_functions/pointwise/` for C++ and Triton. Results
are within eager's own error against float64; those that the catalogue calls exact are eager's bits.
The incomplete gamma, Bessel and Airy functions are nearer to the true ones than eager's float64.

"""


def library_calls() -> str:
    """The page of what is fused and what is the library's, with the reason."""
    fused = ", ".join(f"`{name}`" for name in sorted(device_functions.names()))
    rows = [f"| `{name}` | {reason} |" for name, reason in registry.library_calls().items()]
    table = "\n".join(["| primitive | reason |", "| --- | --- |", *rows])
    return f"{LIBRARY_CALLS_HEAD}{fused}\n\n## Library calls\n\n{table}\n"


PAGES = {
    "api.md": reference.api,
    "benchmarks.md": benchmark_page.page,
    "breaks.md": breaks,
    "exactness.md": catalogue.render_exactness,
    "language.md": language.render,
    "library-calls.md": library_calls,
    "modules.md": reference.modules,
    "options.md": reference.options,
    "ops.md": catalogue.render,
    "refusals.md": aot_refusals,
    "tutorial.ipynb": partial(notebook, DOCS / "tutorial.md"),
    "unguarded.md": unguarded.page,
    "ops.json": catalogue.render_json,
}


def main() -> int:
    """Write the pages, or say which are out of date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    check = parser.parse_args().check
    stale = []
    drawn: dict[str, Callable[[], str]] = {
        f"pictures/{name}.svg": partial(pictures.made, name) for name in pictures.PICTURES
    }
    for name, make in {**PAGES, **drawn}.items():
        path = DOCS / name
        there = path.read_text(encoding="utf-8") if path.exists() else None
        if check and name in drawn and there is not None and not pictures.comparable(there):
            continue
        text = make()
        if there != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    print(f"{'out of date' if check else 'written'}: {', '.join(stale) or 'none'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
