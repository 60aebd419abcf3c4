"""The header of all units, precompiled: the same library, and as before where there is none."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest
import torch
from flambeau_inductor.cache import CacheStore, Lease
from flambeau_inductor.codegen.cpp.toolchain import Toolchain, find_toolchain
from flambeau_inductor.codegen.cpp.unit import generate
from flambeau_inductor.errors import CompilerFailed
from flambeau_inductor.kernels.generate import THREAD, build_library

from tests.codegen import loops

pytestmark = pytest.mark.skipif(
    not find_toolchain().precompiles, reason="headers are precompiled by GCC alone"
)


def text(dtype: torch.dtype = torch.float32) -> str:
    toolchain = find_toolchain()
    loop = loops.pointwise("add", 2, 1000, dtype, dtype)
    return generate([loop], lambda name: dtype, toolchain.vector_bytes).text


def code(library: Path) -> str:
    """Instructions and data of a library, without the name of its file."""
    listed = subprocess.run(["objdump", "-s", "-d", library], capture_output=True, text=True)
    return listed.stdout.split("\n", 3)[3]


def made(store: CacheStore) -> list[Path]:
    """What is in the store once nobody makes anything any more."""
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join()
    return list(store.folder.glob("headers/*/*/*.gch"))


def test_it_is_made_once_and_changes_no_library(tmp_path: Path) -> None:
    toolchain, store = find_toolchain(), CacheStore(tmp_path / "store")
    plain = code(toolchain.build(text(), tmp_path))
    assert code(build_library(toolchain, text(), tmp_path, store)) == plain
    (header,) = made(store)
    times = header.stat()
    assert code(build_library(toolchain, text(), tmp_path, store)) == plain
    assert made(store) == [header] and header.stat().st_mtime_ns == times.st_mtime_ns


@pytest.mark.parametrize("how", ["garbage", "empty", "missing", "of other lanes"])
def test_one_that_is_not_right_is_not_read(how: str, tmp_path: Path) -> None:
    toolchain, store = find_toolchain(), CacheStore(tmp_path / "store")
    plain = code(toolchain.build(text(), tmp_path))
    build_library(toolchain, text(), tmp_path, store)
    (header,) = made(store)
    if how == "of other lanes":
        build_library(toolchain, text(torch.float64), tmp_path, store)
        (other,) = set(made(store)) - {header}
        other.replace(header)
    elif how == "missing":
        header.unlink()
    else:
        header.write_bytes(b"?" * 4096 if how == "garbage" else b"")
    assert code(build_library(toolchain, text(), tmp_path, store)) == plain


def test_a_fault_costs_no_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Toolchain, lanes: int, folder: Path) -> None:
        raise CompilerFailed("no")

    monkeypatch.setattr(Toolchain, "precompile", fails)
    store = CacheStore(tmp_path / "store")
    plain = code(find_toolchain().build(text(), tmp_path))
    for _ in range(2):
        assert code(build_library(find_toolchain(), text(), tmp_path, store)) == plain
    assert made(store) == []


def test_a_store_that_ends_with_its_process_has_none(tmp_path: Path) -> None:
    lease = Lease()
    store = CacheStore(lease.folder, lease)
    build_library(find_toolchain(), text(), tmp_path, store)
    assert made(store) == []
