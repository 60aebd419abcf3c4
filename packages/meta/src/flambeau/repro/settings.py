"""Settings of reproduction: which failures become scripts, and where.

In: variables of the environment. Out: `Settings`. Invariant: nothing is written unless
FLAMBEAU_REPRO_AFTER asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flambeau.errors import UnknownName
from flambeau.variables import BadSetting

AFTER = "FLAMBEAU_REPRO_AFTER"
LEVEL = "FLAMBEAU_REPRO_LEVEL"
DIR = "FLAMBEAU_REPRO_DIR"
STAGES = ("capture", "aot")


@dataclass(frozen=True)
class Settings:
    """What becomes a script.

    after: `capture`: graphs as they were captured, for any backend; `aot`: the halves that the
    inductor is given. level: 1: a graph that cannot be compiled is written as it is; 2: and shrunk
    (the default); 3: every graph is written before it is compiled, for what ends the process, and
    removed when that went well; 4: what compiled code gives is held against eager and double
    precision, and a wrong graph is written and shrunk; after capture, so are whole calls. folder:
    where scripts go.
    """

    after: str
    level: int = 2
    folder: Path = Path("flambeau-repro")

    @property
    def looks_at_calls(self) -> bool:
        """Whether whole calls are compared too, for guards that are missing."""
        return self.after == "capture" and self.level == 4

    def place(self, name: str) -> Path:
        """A path for a script that is not there yet; the folder is made."""
        self.folder.mkdir(parents=True, exist_ok=True)
        head = "".join(c if c.isalnum() else "_" for c in name).strip("_")
        for number in range(10_000):
            path = self.folder / f"{head}_{os.getpid()}_{number}.py"
            if not path.exists():
                return path
        raise FileExistsError(f"{self.folder} is full of scripts")

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> Settings | None:
        """The settings, or None where FLAMBEAU_REPRO_AFTER is not set.

        Raises BadSetting and UnknownName for values that mean nothing.
        """
        env = os.environ if environment is None else environment
        after = env.get(AFTER, "")
        if not after:
            return None
        if after not in STAGES:
            raise UnknownName(AFTER, after, STAGES)
        level = env.get(LEVEL, "") or "2"
        if level not in ("1", "2", "3", "4"):
            raise BadSetting(f"{LEVEL} is 1, 2, 3 or 4, not {level!r}")
        return Settings(after, int(level), Path(env.get(DIR) or "flambeau-repro"))
