"""Compile what is chosen for GPUs that are not here, and print what each kernel needs as JSON.

Run as a program, in a process where Triton's interpreter is off.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from flambeau_inductor.codegen.triton.build import compile_offline
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.templates.selection.select import select_by_model
from flambeau_inductor.tuning import tuning_for

from tests.tuning.cards import CARDS, card
from tests.tuning.programs import PROGRAMS


def main() -> None:
    report = []
    made = {name: make() for name, make in PROGRAMS.items()}
    with tempfile.TemporaryDirectory() as folder:
        for name in CARDS:
            machine = card(name)
            for what, program in made.items():
                for kernel in select_by_model(program, tuning_for(machine)).kernels.values():
                    path = Path(folder) / f"{len(report)}.py"
                    path.write_text(module_text([kernel.source]))
                    major, minor = machine.capability
                    compiled = compile_offline(path, kernel, 10 * major + minor)
                    needs = {"shared": compiled.metadata.shared, "has": machine.shared_bytes}
                    report.append({"card": name, "program": what, "kernel": kernel.name, **needs})
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
