"""A plugin of pytest under which tests run kernels that sanitizers check.

In: a process that GCC's sanitizers were loaded into first (`test_sanitizers.py` starts it), and
any tests that compile C++ kernels. Out: each test once for vectors of 64, 32 and 16 bytes, with the
instructions of such a machine where this one has them; it fails where a sanitizer reported anything
while it ran.
Invariant: kernels are optimised as those of users (with -O1 GCC does not check what `memcpy` reads
without AVX); memory from torch ends where the tensor does. Overflow of integers is no report, since
`-fwrapv` defines it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from flambeau_inductor.codegen.cpp import toolchain
from tests.codegen.cpp import run

CHECKS = (
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fsanitize-recover=address,undefined,float-cast-overflow",
    "-fstack-protector-all",
    "-g1",
)
FLAGS = toolchain.FLAGS
NARROWER = {64: (), 32: ("-mno-avx512f",), 16: ("-mno-avx",)}
"""By the bytes of a vector: what to leave out of the instructions of this machine."""
WIDEST = toolchain.find_toolchain().vector_bytes
LOG = f"{os.environ['FLAMBEAU_SANITIZER_LOG']}.{os.getpid()}"

# compilers that tests start are not checked
del os.environ["LD_PRELOAD"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Pytest hook: a test is run for each width."""
    metafunc.fixturenames.append("vector_width")
    metafunc.parametrize("vector_width", NARROWER, ids=[f"{8 * width} bits" for width in NARROWER])


class ReportedError(AssertionError):
    """A sanitizer reported something."""


@pytest.fixture(autouse=True)
def checked_kernels(vector_width: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are built with checks, for vectors of the width: hand-made loops also for wider ones
    than this machine has, which the compiler splits."""
    monkeypatch.setattr(run, "WIDTH", vector_width)
    monkeypatch.setattr(toolchain, "NATIVE", (*toolchain.NATIVE, *NARROWER[vector_width]))
    monkeypatch.setattr(toolchain, "FLAGS", (*FLAGS, *CHECKS))
    toolchain._inspect.cache_clear()
    assert toolchain.find_toolchain().vector_bytes == min(vector_width, WIDEST)
    yield
    toolchain._inspect.cache_clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Pytest hook: a report while a test runs is its failure."""
    before = len(_reports())
    yield
    if found := _reports()[before:]:
        raise ReportedError(found)


def _reports() -> str:
    """All that the sanitizers have reported."""
    log = Path(LOG)
    return log.read_text(errors="replace") if log.exists() else ""
