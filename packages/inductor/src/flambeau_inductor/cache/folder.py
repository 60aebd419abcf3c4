"""The cache folder, and whether it may be trusted.

In: an option, the environment. Out: a path, or the reason why it cannot be used.
Invariant: a folder is used only if it belongs to this user and nobody else may write to it, since
what is read from it is run.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from platformdirs import user_cache_path

from flambeau_inductor.options import CACHE_DIR

PRIVATE = 0o700


def cache_folder(named: str | None = None) -> Path:
    """The folder named, or by `FLAMBEAU_CACHE_DIR`, or the user's own; it need not exist."""
    wanted = named or os.environ.get(CACHE_DIR)
    return Path(wanted).expanduser().absolute() if wanted else user_cache_path("flambeau")


def objection(folder: Path) -> str | None:
    """Make `folder` if it is not there; why it must not be used, or None."""
    try:
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        facts = folder.stat()
    except OSError as error:
        return f"it cannot be made ({error.strerror or error})"
    if hasattr(os, "getuid") and facts.st_uid != os.getuid():
        return "it belongs to another user"
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write to it"
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return "it cannot be written to"
    return None
