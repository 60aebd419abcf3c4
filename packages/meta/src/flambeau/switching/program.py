"""A program of the user's, run as `python` would run it, with Flambeau installed.

In: what follows `python` on a command line: a script, a folder or an archive, or `-m` and a module,
and arguments. Out: an exit status. Invariant: the program sees itself as `__main__`, its own
`sys.argv` and `sys.path[0]`, and no frame of ours in its tracebacks; the processes that it starts
are installed in too.
"""

from __future__ import annotations

import builtins
import io
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from flambeau.switching.install import install
from flambeau.switching.variable import INSTALL


def run(arguments: Sequence[str]) -> None:
    """Run a program; it ends as the program ends, with SystemExit where it fails."""
    os.environ[INSTALL] = "1"
    install()
    first, *rest = arguments
    if first == "-m":
        first, *rest = rest
        start: Callable[[], object] = partial(runpy.run_module, first, None, "__main__", True)
    elif not Path(first).exists():
        print(f"{sys.executable}: can't open file {first!r}: no such file", file=sys.stderr)
        sys.exit(2)
    elif Path(first).is_dir() or _is_archive(first):
        start = partial(runpy.run_path, first, None, "__main__")
    else:
        start = partial(_script, first)
        if not sys.flags.safe_path:
            sys.path[0] = str(Path(first).resolve().parent)
    sys.argv[:] = [first, *rest]
    try:
        start()
    except SystemExit:
        raise
    except BaseException as error:
        _end_as_python_does(error)


def _is_archive(path: str) -> bool:
    import zipimport  # few programs are archives

    try:
        zipimport.zipimporter(path)
    except zipimport.ZipImportError:
        return False
    return True


def _script(path: str) -> None:
    """Run a file of Python as `__main__`, which it stays until the process ends."""
    path = os.path.abspath(path)
    module = ModuleType("__main__")
    module.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __loader__=SourceFileLoader("__main__", path),
        __cached__=None,
        __annotations__={},
    )
    sys.modules["__main__"] = module
    with io.open_code(path) as file:
        code: CodeType = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def _end_as_python_does(error: BaseException) -> None:
    """Print the traceback, of the program's frames alone, and end the process."""
    traceback = error.__traceback__
    while traceback is not None and _is_ours(traceback):
        traceback = traceback.tb_next
    error.__traceback__ = traceback
    sys.excepthook(type(error), error, traceback)
    if isinstance(
        error, KeyboardInterrupt
    ):  # which ends a process by a signal, without a word more
        sys.excepthook = lambda *error: None
        raise KeyboardInterrupt
    sys.exit(1)


def _is_ours(traceback: TracebackType) -> bool:
    name = traceback.tb_frame.f_code.co_filename
    return name in (__file__, "<frozen runpy>", "<frozen importlib._bootstrap>")
