"""`python -m flambeau run` runs a program as `python` does."""

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import sys, pickle
import torch

class Kept:
    pass

pickle.dumps(Kept())
print(__name__, __file__, __spec__ and __spec__.name, sys.argv, sys.path[0])
print("main", sys.modules["__main__"].Kept is Kept)
what = sys.argv[1]

def fails():
    raise ValueError("no")

if what == "raises":
    fails()
if what == "exits":
    sys.exit(7)
if what == "says":
    sys.exit("a word")
if what == "interrupted":
    raise KeyboardInterrupt
if what == "own hook":
    sys.excepthook = lambda kind, error, traceback: print("hook", kind.__name__, error)
    fails()
"""
WAYS = ["ends", "raises", "exits", "says", "interrupted", "own hook"]


def run(*arguments, folder):
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=folder, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.sweep(3)
@pytest.mark.parametrize("what", WAYS)
def test_a_script(what, tmp_path):
    folder = tmp_path / "below"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    command = ["below/program.py", what, "-m", "--flag"]
    plain = run(*command, folder=tmp_path)
    assert run("-m", "flambeau", "run", *command, folder=tmp_path) == plain
    expected = {"raises": 1, "exits": 7, "says": 1, "own hook": 1, "interrupted": -signal.SIGINT}
    assert plain[0] == expected.get(what, 0)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("what", ["ends", "raises", "exits"])
def test_a_module(what, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = ["-m", "program", what]
    (status, out, error), ours = (
        run(*before, *command, folder=tmp_path) for before in ([], ["-m", "flambeau", "run"])
    )
    assert ours[:2] == (status, out)
    own = [line for line in error.splitlines() if "runpy" not in line]
    assert [line for line in ours[2].splitlines() if "runpy" not in line] == own


def test_a_folder(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text("import sys; print(__name__, sys.argv)")
    assert run("-m", "flambeau", "run", "app", "x", folder=tmp_path) == run(
        "app", "x", folder=tmp_path
    )


def test_a_script_that_is_not_there(tmp_path):
    status, out, error = run("-m", "flambeau", "run", "nothing.py", folder=tmp_path)
    assert (status, out) == (2, "") and "nothing.py" in error


def test_it_is_installed_and_so_is_what_it_starts(tmp_path):
    program = "import os, torch; print(torch.compile.__code__.co_filename)\n"
    (tmp_path / "program.py").write_text(f"{program}print(os.environ['FLAMBEAU_INSTALL'])")
    from flambeau.switching import install

    status, out, error = run("-m", "flambeau", "run", "program.py", folder=tmp_path)
    assert status == 0, error
    assert out.split() == [install.__file__, "1"]
    assert "FLAMBEAU_INSTALL" not in os.environ
