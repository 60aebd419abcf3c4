"""Finding and running the C++ compiler."""

from __future__ import annotations

import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain
from flambeau_inductor.codegen.cpp.unit import generate
from flambeau_inductor.errors import CompilerFailed, CompilerNotFound

from tests.codegen import loops


def test_a_missing_compiler_is_one_sentence_that_names_what_to_install() -> None:
    with pytest.raises(CompilerNotFound, match=r"no-such-compiler.*apt install g\+\+"):
        find_toolchain("no-such-compiler")


def test_the_environment_names_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "not-a-compiler-either")
    with pytest.raises(CompilerNotFound, match="not-a-compiler-either"):
        find_toolchain()


def test_a_program_that_is_no_compiler_is_not_taken_for_one(tmp_path: Path) -> None:
    script = tmp_path / "c++"
    script.write_text("#!/bin/sh\necho licence expired >&2\nexit 3\n")
    script.chmod(0o755)
    with pytest.raises(CompilerNotFound, match="does not run as a C") as caught:
        find_toolchain(str(script))
    assert "failed (exit 3):\nlicence expired" in str(caught.value)


def test_a_rejected_text_shows_the_compilers_words(tmp_path: Path) -> None:
    with pytest.raises(CompilerFailed, match="error"):
        find_toolchain().build("this is not C++", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_kernels_use_the_thread_pool_that_torch_loaded(tmp_path: Path) -> None:
    import torch

    toolchain = find_toolchain()
    source = generate(
        [loops.softmax(2000, 1000)], lambda name: torch.float32, toolchain.vector_bytes
    )
    path = toolchain.build(source.text, tmp_path)
    assert "#pragma omp" in source.text
    maps = Path("/proc/self/maps").read_text()
    assert toolchain.openmp in maps
    needed = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True).stdout
    listed = [line for line in needed.splitlines() if "NEEDED" in line and "omp" in line]
    assert len(listed) == 1
    assert Path(toolchain.openmp).name in listed[0]


def test_flags_and_headers_are_part_of_the_identity() -> None:
    toolchain = find_toolchain()
    assert replace(toolchain, flags=(*toolchain.flags, "-g")).identity != toolchain.identity
    assert replace(toolchain, headers="other").identity != toolchain.identity


def test_the_openmp_of_another_package_is_not_torchs(tmp_path: Path) -> None:
    script = """if True:
        import ctypes, shutil, sys, torch
        from flambeau_inductor.codegen.cpp.toolchain import openmp_library
        first = openmp_library()
        others = []
        for number in range(3):
            other = f"{sys.argv[1]}/libgomp-{number}.so.1.0.0"
            shutil.copy(first, other)
            others.append(ctypes.CDLL(other))
        assert openmp_library() == first, openmp_library()
    """
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86-64 processors")
def test_a_processor_by_name() -> None:
    found = {name: find_toolchain(None, f"x86-64-{name}") for name in ("v2", "v3", "v4")}
    assert [found[name].vector_bytes for name in ("v2", "v3", "v4")] == [16, 32, 64]
    assert len({each.identity for each in found.values()}) == 3
    with pytest.raises(CompilerFailed, match="does not build for the processor 'z80'"):
        find_toolchain(None, "z80")
