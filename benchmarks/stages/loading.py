"""Time of loading a packaged model in a process that has imported torch alone.

    python benchmarks/stages/loading.py --models gpt2_4 minilm resnet18

Each model is packaged by one process and loaded by others, which have neither the model's library
nor a compiler on their path: seconds of `import flambeau` and `flambeau.load`, of the first call
and of the second, and whether the results are those of eager. The median of `--repeats` processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.bytecode import as_installed

COMPILERS = ("triton", "sympy", "networkx", "flambeau_prims", "flambeau_capture",
             "flambeau_inductor.compile", "flambeau_inductor.codegen")  # fmt: skip

LOAD = """
import json, sys, time, torch
inputs = torch.load(sys.argv[2])
device = torch.zeros(1, device=sys.argv[5]) + 1  # started before the clock is
before = time.perf_counter()
import flambeau
loaded = flambeau.load(sys.argv[1])
after = time.perf_counter()
times = []
with torch.no_grad():
    for _ in range(2):
        started = time.perf_counter()
        result = loaded(*inputs)
        if sys.argv[5] == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(result)
          if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
expected = torch.load(sys.argv[3])
error = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(leaves, expected))
assert len(leaves) == len(expected)
print(json.dumps({"load": after - before, "first": times[0], "second": times[1], "error": error,
                  "compilers": [name for name in sys.argv[4].split() if name in sys.modules]}))
"""


def pack(name: str, device: str, folder: Path) -> None:
    """Package a model, and write what it is called with and gives."""
    import torch

    import flambeau
    from benchmarks.case import build

    work = build(name, device, False, False)
    with torch.no_grad():
        expected = work.observed(work.fn)
        flambeau.package(work.fn, *work.inputs, path=folder / "package")
    torch.save(work.inputs, folder / "inputs")
    torch.save(expected, folder / "expected")


def row(name: str, device: str, repeats: int) -> dict[str, Any]:
    """The figures of one model."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        command = [sys.executable, __file__, "--pack", name, temporary, "--device", device]
        packed = subprocess.run(command, capture_output=True, text=True, check=False)
        if packed.returncode:
            return {"failed": packed.stderr.strip().splitlines()[-1][:300]}
        files = [str(folder / each) for each in ("package", "inputs", "expected")]
        environment = {**os.environ, "PATH": ""}
        runs = []
        for _ in range(repeats):
            command = [sys.executable, "-c", LOAD, *files, " ".join(COMPILERS), device]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                return {"failed": done.stderr.strip().splitlines()[-1][:300]}
            runs.append(json.loads(done.stdout.splitlines()[-1]))
        found: dict[str, Any] = {
            each: statistics.median(run[each] for run in runs) for each in runs[0]
            if each != "compilers"
        }  # fmt: skip
        found["compilers"] = runs[0]["compilers"]
        found["mib"] = (folder / "package").stat().st_size / 2**20
        return found


def main() -> int:
    """Measure and print; 1 where a model failed, or loaded a compiler."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=["gpt2_4", "minilm", "resnet18"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--pack", nargs=2, metavar=("MODEL", "FOLDER"), help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.pack:
        pack(a.pack[0], a.device, Path(a.pack[1]))
        return 0
    as_installed()
    lines = [
        "| model | file, MiB | load, s | first call, s | second, s | error | compilers loaded |",
        "|---|---|---|---|---|---|---|",
    ]
    wrong = False
    for name in a.models:
        found = row(name, a.device, a.repeats)
        wrong |= "failed" in found or bool(found["compilers"])
        if "failed" in found:
            lines.append(f"| {name} | failed: {found['failed']} |")
        else:
            lines.append(
                f"| {name} | {found['mib']:.1f} | {found['load']:.3f} | {found['first']:.3f} | "
                f"{found['second']:.3f} | {found['error']:.1e} | "
                f"{', '.join(found['compilers']) or 'none'} |"
            )
        print(lines[-1], flush=True)
    text = "\n".join(["Seconds beyond `import torch`.", "", *lines, ""])
    if a.markdown:
        a.markdown.write_text(text)
    print(text)
    return int(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
