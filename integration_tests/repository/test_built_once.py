"""What test processes compile is compiled once, and is what a compiler would write."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain
from flambeau_inductor.errors import CompilerFailed

from tools import built_once

TEXT = '#define FL_W 4\n#include "flambeau.h"\nextern "C" int answer() { return 42; }\n'


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that reach a compiler."""
    real, seen, folder = subprocess.Popen, [], tmp_path / "kept"
    folder.mkdir()

    def compiler(command: list[str], **choices: Any) -> Any:
        seen.append(command)
        with real(command, stdout=-1, stderr=-1, text=True) as process:
            out, said = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, out, said)

    def run(command: Any, **choices: Any) -> Any:
        return built_once.run(folder, command, compiler, **choices)

    monkeypatch.setattr(subprocess, "run", run)
    return seen


def compiled(commands: list[list[str]]) -> int:
    return sum("-c" in command for command in commands)


def test_equal_text_is_compiled_once(commands: list[list[str]], tmp_path: Path) -> None:
    toolchain = find_toolchain()
    made = [toolchain.build(TEXT, tmp_path).read_bytes() for _ in range(2)]
    assert compiled(commands) == 1
    assert made[0] == made[1]
    toolchain.build(TEXT.replace("42", "43"), tmp_path)
    assert compiled(commands) == 2


def test_what_fails_is_not_kept(commands: list[list[str]], tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(CompilerFailed, match="wrong"):
            find_toolchain().build("#error wrong\n", tmp_path)
    assert compiled(commands) == 2


def test_other_headers_and_options_are_another_build(tmp_path: Path) -> None:
    source, header = tmp_path / "a.cpp", tmp_path / "a.h"
    source.write_text("int a;")
    header.write_text("int b;")
    command = ["/usr/bin/g++", "-O3", f"-I{tmp_path}", "-c", str(source), "-o", "a.o"]
    key = built_once.key_of(command)
    assert key is not None
    assert built_once.key_of([*command[:2], "-I/elsewhere", *command[2:-1], "b.o"]) == key
    assert built_once.key_of([command[0], "-O1", *command[2:]]) != key
    header.write_text("int c;")
    assert built_once.key_of(command) != key
    assert built_once.key_of(["/tmp/g++", *command[1:]]) is None
    assert built_once.key_of(["/usr/bin/g++", "-shared", "a.o", "-o", "a.so"]) is None
