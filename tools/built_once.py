"""Compilers of test processes: what was compiled once in a run is copied.

In: the command of a C++ compiler, a folder that the processes of a run share. Out: what it returns,
and the file that it writes. Invariant: the file is what the compiler would write, of the same text,
options and headers; where it fails, or has something to say, nothing is kept.

Tests of several processes and packages compile the same kernels, each with a cache folder of its
own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

SYSTEM = "/usr/"
"""Where compilers are that write the same for the same: a test's own may do what it likes."""


def run(folder: Path, command: Any, compiler: Callable[..., Any], **choices: Any) -> Any:
    """In the place of `subprocess.run`, which `compiler` is."""
    key = key_of(command) if isinstance(command, list) else None
    if key is None:
        return compiler(command, **choices)
    kept, made = folder / key, command[-1]
    if kept.exists():
        shutil.copyfile(kept, made)
        return subprocess.CompletedProcess(command, 0, "", "")
    done = compiler(command, **choices)
    if done.returncode == 0 and not done.stderr:
        aside = kept.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        shutil.copyfile(made, aside)
        aside.replace(kept)
    return done


def key_of(command: list[str]) -> str | None:
    """What decides what a compiler writes to the file that `command` ends with; None for any other
    command. The folder of a header that is precompiled changes nothing: the last one does."""
    if len(command) < 4 or command[-2] != "-o" or not command[0].startswith(SYSTEM):
        return None
    *options, source = command[:-2]
    if not ("c++-header" in options or "-c" in options) or not Path(source).is_file():
        return None
    folders = [Path(each[2:]) for each in options if each.startswith("-I")][-1:]
    same = [each for each in options if not each.startswith("-I")]
    digest = hashlib.sha256("\0".join((*same, *map(str, folders))).encode())
    for path in (Path(source), *(h for folder in folders for h in sorted(folder.rglob("*.h")))):
        digest.update(path.read_bytes())
    return digest.hexdigest()
