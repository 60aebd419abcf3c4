"""Python processes that have imported torch before they are asked for: `subprocess.run` in tests.

In: `subprocess.run([sys.executable, ...])` of a test process. Out: what it returns, without the two
seconds and a half in which a new process imports torch and what every compile needs.
Invariant: a program sees a process of its own, with its arguments, environment, folder and files;
of the product nothing is imported before it, and it ends as any process does.

A starter imports, then forks for every program of all test processes that share a folder, until the
folder is gone or nobody has asked for a while. Programs get it from the second on that want the
same options and environment: the first starts as users' do. Two starters take turns, whose hashes
are seeded differently. What asks which modules there are (`sys.modules`), what needs no torch, and
what is no program of ours (pip, pytest), always starts as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: what a program may read of its environment only after it has begun
READ_LATE = ("PYTHONPATH", "PATH", "HOME", "TMPDIR", "CXX", "PWD", "OLDPWD", "_")
READ_LATE_PREFIXES = ("FLAMBEAU_", "PYTEST_", "TORCHINDUCTOR_", "XDG_")
OURS = ("flambeau", "tests", "integration_tests", "tools", "benchmarks")
NEEDS_TORCH = re.compile(r"torch|flambeau|from tests|from integration_tests")
#: numpy's matrix products begin threads where they are imported, and a fork has none of them
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
#: whether torch imports the packages that say they are its backends, of which the product is one
AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
#: of a message between processes
MOST_BYTES = 100_000
#: seconds: how often a starter looks for its folder; how long it waits for the next program
LOOKS, WAITS = 2, 300

as_it_is = subprocess.run


@dataclass
class Starter:
    """A process that forks, by the socket at which it listens."""

    place: Path

    def run(
        self, request: bytes, files: list[int], timeout: float | None
    ) -> tuple[int, bool, float]:
        """The exit status of a program, whether it took too long, the processor's seconds."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
            channel.connect(str(self.place))
            socket.send_fds(channel, [request], files)
            (child,) = answer(channel)
            late = not select.select([channel], [], [], timeout)[0]
            if late:
                os.kill(int(child), signal.SIGKILL)
            status, seconds = answer(channel)
            return int(status), late, float(seconds)


def answer(channel: socket.socket) -> list[str]:
    told = channel.recv(64)
    if not told:
        raise ConnectionResetError("the process that forks has ended")
    return told.decode().split()


def start(place: Path, options: list[str], environment: dict[str, str], seed: int) -> Starter:
    """A starter whose hashes have a seed, where the environment says none; the one that is there
    if there is one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        aside = place.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        listening.bind(str(aside))
        listening.listen()
        with contextlib.suppress(FileExistsError):
            # it is there once it listens: nobody is refused who comes early
            os.link(aside, place)
            with open(place.with_suffix(".log"), "wb") as log:
                subprocess.Popen(
                    [sys.executable, *options, __file__, str(listening.fileno()), str(place)],
                    env={**ONE_THREAD, "PYTHONHASHSEED": str(seed), **environment, AUTOLOAD: "0"},
                    pass_fds=[listening.fileno()], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
        aside.unlink()
    return Starter(place)


class Programs:
    """`run` stands in the place of `subprocess.run`; folder: of all that share starters."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        self.starters: dict[tuple[str, int], Starter | None] = {}
        self.seconds = 0.0
        """Of the processor, that programs have taken."""

    def run(self, command: Any, **choices: Any) -> Any:
        starter = self.starter_for(command, choices)
        if starter is None:
            return as_it_is(command, **choices)
        try:
            return self.forked(starter, list(map(str, command)), **choices)
        except (ConnectionError, FileNotFoundError):
            # it has waited too long, or cannot fork, as what it imports began threads
            self.starters |= {key: None for key, one in self.starters.items() if one is starter}
            return as_it_is(command, **choices)

    def forked(
        self, starter: Starter, command: list[str], env: Any = None, cwd: Any = None,
        capture_output: bool = False, text: bool = False, check: bool = False, stdout: Any = None,
        stderr: Any = None, timeout: float | None = None,
    ) -> subprocess.CompletedProcess[Any]:  # fmt: skip
        """What `subprocess.run` returns."""
        if capture_output:
            stdout = stderr = subprocess.PIPE
        request = json.dumps(
            [command[1:], dict(os.environ if env is None else env), os.fspath(cwd or os.getcwd())]
        )
        with contextlib.ExitStack() as stack:
            out = Written(stack, stdout, 1, text)
            err = out if stderr == subprocess.STDOUT else Written(stack, stderr, 2, text)
            status, late, seconds = starter.run(request.encode(), [out.number, err.number], timeout)
            written = (out.read(), None if err is out else err.read())
        self.seconds += seconds
        if late:
            assert timeout is not None
            raise subprocess.TimeoutExpired(command, timeout, *written)
        done = subprocess.CompletedProcess(command, status, *written)
        if check:
            done.check_returncode()
        return done

    def starter_for(self, command: Any, choices: dict[str, Any]) -> Starter | None:
        if not isinstance(command, list) or set(choices) - CHOICES:
            return None
        environment = dict(os.environ if choices.get("env") is None else choices["env"])
        options = options_of(list(map(str, command)), choices.get("cwd"))
        if options is None or "PYTHONSAFEPATH" in environment:
            return None
        early = {
            name: value for name, value in environment.items()
            if name not in READ_LATE and not name.startswith(READ_LATE_PREFIXES)
        }  # fmt: skip
        kind = hashlib.sha256(json.dumps([options, sorted(early.items())]).encode()).hexdigest()[
            :16
        ]
        if self.is_first(kind) or len(json.dumps([command, environment])) > MOST_BYTES:
            return None
        key = (kind, next(self.asked[kind]) % 2)
        if key not in self.starters:
            place = self.folder / f"{kind}-{key[1]}"
            self.starters[key] = start(place, options, early, 1 + key[1])
        return self.starters[key]

    def is_first(self, kind: str) -> bool:
        """Whether no test process has asked for such a program before."""
        try:
            (self.folder / f"{kind}-asked").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


CHOICES = frozenset(
    ["env", "cwd", "capture_output", "text", "check", "stdout", "stderr", "timeout"]
)


def options_of(command: list[str], folder: Any) -> list[str] | None:
    """The options of the interpreter before a program of ours; None where it starts as it is."""
    if len(command) < 2 or command[0] != sys.executable:
        return None
    at = 1
    while command[at : at + 1] == ["-W"]:
        at += 2
    kind, *rest = command[at:]
    if kind == "-c" and rest:
        text = rest[0]
    elif kind == "-m" and rest:
        return command[1:at] if rest[0].partition(".")[0] in OURS else None
    elif kind.endswith(".py"):
        text = (Path(folder or ".") / kind).read_text(encoding="utf-8")
    else:
        return None
    needed = NEEDS_TORCH.search(text) and "sys.modules" not in text
    return command[1:at] if needed else None


class Written:
    """Where a program writes to: a file that is read after it, or what was said."""

    def __init__(self, stack: contextlib.ExitStack, given: Any, inherited: int, text: bool) -> None:
        self.text, self.file = text, None
        if given == subprocess.PIPE:
            self.file = file = tempfile.TemporaryFile()  # noqa: SIM115  # the stack closes it
            self.number = stack.enter_context(file).fileno()
        elif given == subprocess.DEVNULL:
            self.number = os.open(os.devnull, os.O_WRONLY)
            stack.callback(os.close, self.number)
        elif given is None:
            self.number = inherited
        else:
            self.number = given if isinstance(given, int) else given.fileno()

    def read(self) -> Any:
        if self.file is None:
            return None
        self.file.seek(0)
        found = self.file.read()
        return found.decode().replace("\r\n", "\n") if self.text else found


# --- the process that forks: this file as a program -----------------------------------------------


def serve(listening: socket.socket, place: Path) -> list[Any] | None:
    """Forks for each request; returns, in the child, what was asked for, and None in the end."""
    running: dict[int, tuple[socket.socket, int]] = {}
    waited = 0
    while place.exists() and (running or waited < WAITS):
        watched: list[socket.socket | int] = [listening, *running]
        ready = select.select(watched, [], [], LOOKS)[0]
        waited = 0 if ready or running else waited + LOOKS
        for one in ready:
            if isinstance(one, int):
                asking, child = running.pop(one)
                _, ended, used = os.wait4(child, 0)
                status, seconds = os.waitstatus_to_exitcode(ended), used.ru_utime + used.ru_stime
                os.close(one)
                with asking, contextlib.suppress(ConnectionError):  # who asked may have ended
                    asking.send(f"{status} {seconds}".encode())
                continue
            asking = listening.accept()[0]
            request, files, _, _ = socket.recv_fds(asking, 2 * MOST_BYTES, 2)
            child = os.fork() if request else -1
            if child == 0:
                for other in (listening, asking, *(channel for channel, _ in running.values())):
                    other.close()
                for number, file in enumerate(files, 1):
                    os.dup2(file, number)
                for file in (*files, *running):
                    os.close(file)
                asked: list[Any] = json.loads(request)
                return asked
            for file in files:
                os.close(file)
            if child > 0:
                running[os.pidfd_open(child)] = asking, child
                asking.send(str(child).encode())
    with contextlib.suppress(FileNotFoundError):
        place.unlink()
    return None


def program_of(asked: list[Any], path: list[str]) -> Callable[[], object]:
    """What to call, once this process is as the program would find a new one."""
    import runpy  # here: only the process that forks needs it
    import types

    command, environment, folder = asked
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    while command[0] == "-W":
        del command[:2]
    kind, *rest = command
    given = [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    if kind == "-c":
        sys.argv, sys.path[:] = ["-c", *rest[1:]], ["", *given, *path]
        main = types.ModuleType("__main__")
        main.__builtins__ = __builtins__  # type: ignore[attr-defined]
        sys.modules["__main__"] = main
        return lambda: exec(compile(rest[0], "<string>", "exec", dont_inherit=True), vars(main))
    if kind == "-m":
        sys.argv, sys.path[:] = rest, [folder, *given, *path]
        return lambda: runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    sys.argv, sys.path[:] = command, [str(Path(kind).resolve().parent), *given, *path]
    return lambda: runpy.run_path(kind, run_name="__main__")


def without_this_file(kind: Any, error: BaseException, trace: Any) -> None:
    """An exception as a program's own process shows it."""
    while trace and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def main() -> None:
    import gc  # here: only the process that forks needs it

    path = [place for place in sys.path if place != str(Path(__file__).parent)]
    import torch.fx.experimental.symbolic_shapes  # what every compile needs

    gc.freeze()
    with open("/proc/self/status") as status:
        assert "\nThreads:\t1\n" in status.read(), "a process with threads cannot be forked"
    asked = serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]))
    if asked is None:
        os._exit(0)
    program = program_of(asked, path)
    sys.excepthook = without_this_file
    if os.environ.get(AUTOLOAD, "1") == "1":
        torch._import_device_backends()
    program()


if __name__ == "__main__":
    main()
