"""The C++ toolchain: compiler, flags, one run.

In: the name of a compiler, or none. Out: a `Toolchain` that says everything a build depends on, and
shared objects. Invariant: two toolchains with the same `identity` build the same code from the same
text; the thread pool and the elementary functions linked to are those torch has already loaded.

Flags: no `-ffast-math`. `-fno-math-errno` and `-fno-trapping-math` change no value, they let
square roots and roundings be vectorised. Products and sums are not contracted
(`-ffp-contract=off`): `a*a - b*b` is zero where `a == b`, as in eager; the elementary functions ask
for fma where their error bounds count on it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from flambeau_inductor.errors import CompilerFailed, CompilerNotFound

INCLUDE = Path(__file__).parents[2] / "runtime" / "include"
HEADER = "flambeau.h"
"""What every unit includes first."""
CANDIDATES = ("g++", "c++", "clang++")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fwrapv",  # integers wrap, in vectors too, where C++ leaves signed overflow undefined
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-semantic-interposition",
    "-fopenmp",
    "-Wno-psabi",
)
NATIVE = ("-march=native",)
GCC = ("-fno-tree-loop-if-convert",)
"""GCC 12 turns a load that only one side of a choice reads into a masked one, and where it reads
several vectors of them, masks all by the first one's mask."""
HUGE = 1 << 20
"""Characters of a unit (thousands of kernels) from which the compiler spends less on each."""

LIBRARY = re.compile(r"/lib(?:gomp|omp|iomp5)[^/]*\.so[^/]*$")
SLEEF = re.compile(r"F[12]\(T, (\w+), (\w+)\)")
TORCH_KERNELS = "libtorch_cpu.so"
TORCH = "libtorch.so"
"""A library of no symbols, which needs that of the kernels: a linker reads it in no time."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """`compiler` is an absolute path; `target` a digest of its version and of the processor's
    features; `openmp` the library of the thread pool in this process; `sleef` the one through which
    a kernel finds torch's elementary functions on vectors, empty where it has none (the flags say
    the same). `precompiles`: headers, as GCC does."""

    compiler: str
    target: str
    flags: tuple[str, ...]
    vector_bytes: int
    openmp: str
    headers: str
    sleef: str = ""
    precompiles: bool = False

    @property
    def identity(self) -> str:
        """Everything that decides what a text is built into."""
        return "\n".join(
            (self.compiler, self.target, *self.flags, Path(self.openmp).name, self.headers)
        )

    def build(self, text: str, folder: Path, precompiled: Path | None = None) -> Path:
        """Compile `text` into a shared object in `folder`; raises `CompilerFailed`.

        precompiled: a folder that `precompile` wrote to, or that is gone.
        Compiling and linking are two runs so that the driver does not add its own OpenMP runtime.
        """
        descriptor, name = tempfile.mkstemp(suffix=".cpp", dir=folder)
        source = Path(name)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        unit, result = source.with_suffix(".o"), source.with_suffix(".so")
        flags = self.flags
        if len(text) >= HUGE:
            flags = tuple("-O1" if flag == "-O3" else flag for flag in flags)
        search = [f"-I{each}" for each in (precompiled, INCLUDE) if each]
        compile_ = [self.compiler, *flags, *search, "-c", name, "-o", str(unit)]
        link = [self.compiler, "-shared", "-nostdlib", str(unit), self.openmp]
        link += ["-lm", "-lc", "-lgcc", "-o", str(result)]
        try:
            for command in (compile_, link):
                if command is link and self.sleef and b"Sleef_" in unit.read_bytes():
                    command += ["-Wl,--no-as-needed", self.sleef]
                _run(command)
        finally:
            source.unlink(missing_ok=True)
            unit.unlink(missing_ok=True)
        return result

    def precompile(self, lanes: int, folder: Path) -> None:
        """Precompile into `folder` what units of vectors of so many lanes include first."""
        header = INCLUDE / HEADER
        command = [self.compiler, *self.flags, f"-I{INCLUDE}", f"-DFL_W={lanes}"]
        made = folder / f"{HEADER}.gch"
        _run([*command, "-x", "c++-header", str(header), "-o", str(made)])


def _run(command: list[str]) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        first = "\n".join(run.stderr.splitlines()[:20])
        raise CompilerFailed(f"{command[0]} {_ending(run.returncode)}:\n{first}")


def find_toolchain(compiler: str | None = None, processor: str | None = None) -> Toolchain:
    """The compiler named (or `CXX`, or the first of g++, c++, clang++) as a `Toolchain`, which
    builds for the processor named, or for this machine's.

    Raises `CompilerNotFound` when there is none, `CompilerFailed` where it does not know the
    processor.
    """
    wanted = compiler or os.environ.get("CXX") or None
    names = (wanted,) if wanted else CANDIDATES
    for name in names:
        if path := shutil.which(name):
            return _inspect(path, processor)
    raise CompilerNotFound(
        f"no C++ compiler found (looked for {', '.join(names)}): install one, for example with "
        "`apt install g++` or `dnf install gcc-c++`, or set CXX to its path"
    )


@lru_cache(maxsize=8)
def _inspect(path: str, processor: str | None) -> Toolchain:
    native: tuple[str, ...] = (f"-march={processor}",) if processor else NATIVE
    try:
        macros, said = _macros(path, native)
        if macros is None and processor and _macros(path, ())[0] is not None:
            raise CompilerFailed(f"{path} does not build for the processor {processor!r}{said}")
        if macros is None:
            (macros, said), native = _macros(path, ()), ()
    except OSError as error:
        raise CompilerNotFound(
            f"{path} does not run ({error}): install g++ or set CXX to a C++ compiler"
        ) from error
    if macros is None:
        raise CompilerNotFound(
            f"{path} does not run as a C++ compiler: install g++ or set CXX to one{said}"
        )
    have = set(re.findall(r"#define (__AVX\w*__|__FMA__|__F16C__) 1", macros))
    vector_bytes = 16
    if {"__AVX2__", "__FMA__"} <= have:
        vector_bytes = 32
        if {"__AVX512F__", "__AVX512DQ__", "__AVX512VL__", "__AVX512BW__"} <= have:
            vector_bytes = 64
    flags: tuple[str, ...] = FLAGS
    openmp = openmp_library()
    if "__clang__" in macros and "gomp" in openmp:
        # clang's threads need its own runtime, a second pool next to torch's
        flags = tuple(f for f in FLAGS if f != "-fopenmp")
    # the predefined macros name the compiler's version and every feature of the processor
    target = hashlib.sha256(macros.encode()).hexdigest()
    # vectors are split by what GCC has from version 12 on, and clang
    gnu = re.search(r"#define __GNUC__ (\d+)", macros)
    gcc = int(gnu[1]) if gnu is not None and "__clang__" not in macros else 0
    recent = "__clang__" in macros or gcc >= 12
    if gcc:
        flags = (*flags, *GCC)
    sleef = sleef_library(vector_bytes) if recent else ""
    if sleef:
        flags = (*flags, f"-DFL_SLEEF={vector_bytes}")
    return Toolchain(
        path,
        target,
        (*flags, *native),
        vector_bytes,
        openmp,
        header_digest(),
        sleef,
        precompiles=bool(gcc),
    )


def _macros(path: str, flags: tuple[str, ...]) -> tuple[str | None, str]:
    """Predefined macros, None when the compiler rejects the flags, and what it says then."""
    run = subprocess.run(
        [path, *flags, "-dM", "-E", "-x", "c++", os.devnull],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode == 0:
        return run.stdout, ""
    said = "\n".join(run.stderr.strip().splitlines()[:5])
    return None, f". It {_ending(run.returncode)}" + (f":\n{said}" if said else "")


def openmp_library() -> str:
    """Path of the OpenMP runtime that torch runs on in this process.

    Other packages bring runtimes of their own along (scikit-learn does): theirs would be a second
    pool of threads, and missing in a process without them.
    """
    import torch  # noqa: F401  # loads the library that is looked for

    try:
        maps = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    except OSError:
        return "-lgomp"
    mapped = [(row[0], row[5]) for row in maps if len(row) > 5]
    kernels = next((path for _, path in mapped if Path(path).name == TORCH_KERNELS), None)
    if kernels is None:
        return "-lgomp"
    try:
        # found in what torch's library depends on, whoever else has one of the name
        function = ctypes.CDLL(kernels).omp_get_max_threads
    except (OSError, AttributeError):
        return "-lgomp"
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    for span, path in mapped:
        first, last = (int(end, 16) for end in span.split("-"))
        if first <= address < last and LIBRARY.search(path):
            return path
    return "-lgomp"


def sleef_library(vector_bytes: int) -> str:
    """Path of the library to link with for the functions of `sleef.h` on vectors of so many bytes
    (of 32 too where there are 64); empty where torch's lacks one of them."""
    import torch

    if vector_bytes < 32:
        return ""

    folder = Path(torch.__file__).parent / "lib"
    try:
        kernels = ctypes.CDLL(str(folder / TORCH_KERNELS))
        for name, bound in SLEEF.findall((INCLUDE / "flambeau" / "sleef.h").read_text()):
            for size in {vector_bytes, 32}:
                getattr(kernels, f"Sleef_{name}d{size // 8}{bound}")
                getattr(kernels, f"Sleef_{name}f{size // 4}{bound}")
    except (OSError, AttributeError):
        return ""
    return str(folder / TORCH) if (folder / TORCH).exists() else ""


@lru_cache(maxsize=1)
def header_digest() -> str:
    """Digest of the headers that every unit includes."""
    digest = hashlib.sha256()
    for path in sorted(INCLUDE.rglob("*.h")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"failed (exit {code})"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
