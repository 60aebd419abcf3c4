"""Diagnosis of the machine: `python -m flambeau.doctor`.

In: the machine. Out: one line a finding, exit status 1 when something needed is broken.
Invariant: a finding that is not "ok" says what to do.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Literal

import torch
from flambeau_inductor import CompilerNotFound
from flambeau_inductor.cache import cache_folder, objection
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain
from packaging.specifiers import SpecifierSet

from flambeau import _versions

PYTHONS = SpecifierSet(">=3.11,<3.15")
OPENMP_PROGRAM = '#include <omp.h>\nextern "C" int threads() { return omp_get_max_threads(); }\n'


Level = Literal["ok", "warn", "error"]


@dataclass(frozen=True)
class Finding:
    """One line of the report; `advice` is empty when all is well."""

    level: Level
    subject: str
    text: str
    advice: str = ""

    def __str__(self) -> str:
        line = f"{self.level:5}  {self.subject:10}  {self.text}"
        return f"{line}\n{'':19}{self.advice}" if self.advice else line


def _judged(
    subject: str, fine: bool, text: str, advice: str, *, wrong: str = "", level: Level = "warn"
) -> Finding:
    """That all is well, as `text` says; or what is wrong, where it is not the text, and advice."""
    return Finding("ok", subject, text) if fine else Finding(level, subject, wrong or text, advice)


def python() -> Iterator[Finding]:
    """The interpreter: capture knows the bytecode of some versions only."""
    version, advice = platform.python_version(), f"use a Python of {PYTHONS}"
    if "t" in getattr(sys, "abiflags", ""):
        version += ", without the interpreter's lock"
        advice = f"use the usual build of a Python of {PYTHONS}"
    fits = PYTHONS.contains(platform.python_version(), prereleases=True) and "," not in version
    yield _judged("python", fits, version, advice, level="error")


def pytorch() -> Iterator[Finding]:
    """torch itself."""
    wanted = _versions.TORCHES
    advice = f"flambeau is tried with torch {wanted}: run `pip install 'torch{wanted}'`"
    yield _judged("torch", _versions.fits_torch(), torch.__version__, advice)


def siblings() -> Iterator[Finding]:
    """The packages of Flambeau: whether they fit, and whether capture's native part is there."""
    wrong = _versions.misfits(_versions.installed(), _versions.dialect())
    wanted = " ".join(f"'{name}{range_}'" for name, range_ in _versions.RANGES.items())
    text = ", ".join(f"{name} {version}" for name, version in _versions.installed().items())
    advice, said = f"run `pip install {wanted}`", "; ".join(wrong)
    yield _judged("packages", not wrong, text, advice, wrong=said, level="error")
    found = util.find_spec("flambeau_capture._C") is not None
    advice = "reinstall flambeau-capture: it needs a C compiler and CPython's headers"
    said = "its native part is missing"
    yield _judged("capture", found, "native part found", advice, wrong=said, level="error")


def compiler() -> Iterator[Finding]:
    """A C++ compiler with OpenMP, by compiling two lines as kernels are compiled."""
    try:
        toolchain = find_toolchain()
    except CompilerNotFound as error:
        text, _, advice = str(error).partition(": ")
        yield Finding("warn", "compiler", text, f"{advice}; until then programs run eagerly on CPU")
        return
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "openmp.cpp"
        source.write_text(OPENMP_PROGRAM, encoding="utf-8")
        command = [toolchain.compiler, *toolchain.flags, "-shared", str(source), "-o"]
        library = str(source.with_suffix(".so"))
        built = subprocess.run([*command, library], capture_output=True, text=True, check=False)
    text = f"{toolchain.compiler}, OpenMP, vectors of {toolchain.vector_bytes * 8} bits"
    said = (built.stderr.strip().splitlines() or ["no message"])[-1]
    advice = f"install libgomp or libomp, or name another compiler in CXX ({said})"
    wrong = f"{toolchain.compiler} builds no kernel"
    yield _judged("compiler", built.returncode == 0, text, advice, wrong=wrong)


def caches() -> Iterator[Finding]:
    """The folder that keeps kernels from one process to the next."""
    folder = cache_folder()
    reason = objection(folder) if folder.exists() else None
    text = str(folder) if folder.exists() else f"{folder} (made at first use)"
    advice = "name a folder of yours in FLAMBEAU_CACHE_DIR, or kernels are rebuilt every time"
    yield _judged("cache", not reason, text, advice, wrong=f"{folder} is not used: {reason}")


def gpu() -> Iterator[Finding]:
    """A CUDA device and Triton, of which neither is needed on CPU."""
    if not torch.cuda.is_available():
        yield Finding("ok", "gpu", "none (programs on CPU tensors need none)")
        return
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        text = f"{torch.cuda.get_device_name(index)}, compute capability {major}.{minor}"
        advice = "kernels need 8.0 or newer: programs run eagerly"
        yield _judged("gpu", major >= 8, text, advice)
    found = util.find_spec("triton") is not None
    advice = "run `pip install triton`; until then programs on CUDA tensors run eagerly"
    text = metadata.version("triton") if found else "not installed"
    yield _judged("triton", found, text, advice)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    python, pytorch, siblings, compiler, caches, gpu,
)  # fmt: skip


def examine() -> Iterator[Finding]:
    """All findings, in the order of a call; a check that fails is a finding itself."""
    for check in CHECKS:
        try:
            yield from check()
        except Exception as error:
            text = f"cannot be looked at: {type(error).__name__}: {error}"
            yield Finding("error", check.__name__, text, "please report this")


def main() -> int:
    """Print the findings."""
    found = list(examine())
    for finding in found:
        print(finding)
    return int(any(finding.level == "error" for finding in found))


if __name__ == "__main__":
    sys.exit(main())
