"""Precompiled headers for the kernels that tests compile: half of a small kernel's time.

In: the command with which a kernel is compiled. Out: a command that makes the same object from the
same text, whose first lines (what it includes) were read before. Invariant: compilers, flags and
texts that differ share nothing; messages keep names and lines.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
from collections import Counter
from pathlib import Path

HEAD = re.compile(r'(?:#(?:include "flambeau/|define FL_).*\n)+')


class Headers:
    """What was precompiled for this process; a head is from the second kernel on that has it."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="headers-")
        self.asked: Counter[tuple[str, ...]] = Counter()
        self.made: dict[tuple[str, ...], Path] = {}
        self.lock = threading.Lock()

    def command(self, command: list[str]) -> list[str]:
        """The command, or one that reads a precompiled header; its source lies beside the other."""
        if "++" not in Path(command[0]).name or "-c" not in command:
            return command
        source = Path(command[command.index("-c") + 1])
        text = source.read_text(encoding="utf-8")
        head = HEAD.match(text)
        if head is None:
            return command
        at = command.index("-c")
        key = (*command[:at], head[0])
        with self.lock:
            self.asked[key] += 1
            if self.asked[key] == 1:
                return command
            if key not in self.made:
                self.made[key] = self._make(command[:at], head[0], len(self.made))
        shorter = Path(self.folder.name) / source.name
        line = head[0].count("\n") + 1
        rest = text[head.end() :]
        shorter.write_text(f'#include "{self.made[key]}"\n#line {line} "{source}"\n{rest}')
        return [*command[: at + 1], str(shorter), *command[at + 2 :]]

    def _make(self, compiler: list[str], head: str, number: int) -> Path:
        header = Path(self.folder.name) / f"head{number}.h"
        header.write_text(head)
        made = [*compiler, "-x", "c++-header", str(header), "-o", f"{header}.gch"]
        subprocess.run(made, capture_output=True, check=True)
        return header
