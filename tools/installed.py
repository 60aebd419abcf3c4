"""Size and import time of an installation: a table for each wheel.

    python tools/installed.py flambeau-0.1.0-py3-none-any.whl ...

In: the wheels that were installed in the environment that runs this. Out: a table in Markdown, on
stdout. Invariant: torch is imported before the clock starts, which counts seconds of the processor;
each import is a process of its own, the least of three.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

RUNS = 3
CLOCK = (
    "import time, torch; start = time.process_time(); import {}; "
    "print(1e3 * (time.process_time() - start))"
)
#: what is imported of each wheel: the module alone, and what the first compile needs
IMPORTS = {"flambeau": ("flambeau", "flambeau.api, flambeau.backends")}


def import_ms(modules: str) -> float:
    """The least of several imports, in milliseconds after torch's."""
    command = [sys.executable, "-c", CLOCK.format(modules)]
    answers = (subprocess.run(command, check=True, capture_output=True) for _ in range(RUNS))
    return min(float(answer.stdout) for answer in answers)


def main(wheels: list[str]) -> None:
    """Print the table."""
    print("| wheel | kB | installed, kB | import | ms after torch |")
    print("| --- | --- | --- | --- | --- |")
    for path in map(Path, wheels):
        name = path.name.partition("-")[0]
        files = distribution(name).files or ()
        held = sum(file.size or 0 for file in files if "__pycache__" not in file.parts)
        sizes = f"{path.stat().st_size / 1e3:.0f} | {held / 1e3:.0f}"
        for modules in IMPORTS.get(name, (name,)):
            print(f"| `{path.name}` | {sizes} | `import {modules}` | {import_ms(modules):.0f} |")


if __name__ == "__main__":
    main(sys.argv[1:])
