"""Every module and every folder of the package may be the first that a program imports."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys

import flambeau

EVERY_MODULE_FIRST = """
import os, sys
import torch

failed = []
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            __import__(name)
        except BaseException as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append(name)
sys.exit(len(failed))
"""


def test_every_module_can_be_imported_first():
    found = pkgutil.iter_modules(flambeau.__path__, "flambeau.")
    names = [module.name for module in found if not module.name.endswith("__main__")]
    assert "flambeau.distributed" in names
    run = [sys.executable, "-c", EVERY_MODULE_FIRST, *names]
    done = subprocess.run(run, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stderr
