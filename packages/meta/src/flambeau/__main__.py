"""The command line: `python -m flambeau COMMAND`.

In: a command's name and its arguments. Out: text, files, and an exit status that is 0 when all went
well. Invariant: one row a command in `COMMANDS`; each loads what it needs when it runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flambeau.__about__ import __version__
from flambeau.errors import FlambeauError


def _parser(command: Callable[..., int]) -> argparse.ArgumentParser:
    name = f"python -m flambeau {command.__name__.removeprefix('_')}"
    return argparse.ArgumentParser(name, description=command.__doc__)


def _report(arguments: Sequence[str]) -> int:
    """a trace's folder becomes one HTML page"""
    from flambeau.page import kernel_report, write_report  # jinja2

    parser = _parser(_report)
    parser.add_argument("folder", type=Path, help="what FLAMBEAU_TRACE named")
    parser.add_argument("--out", type=Path, help="the page; FOLDER/report.html")
    most = "print the N kernels that lose most time to a copy instead"
    parser.add_argument("--kernels", type=int, metavar="N", help=most)
    chosen = parser.parse_args(arguments)
    if chosen.kernels is None:
        print(write_report(chosen.folder, chosen.out))
    else:
        print(kernel_report(chosen.folder, chosen.kernels))
    return 0


def _doctor(arguments: Sequence[str]) -> int:
    """what this machine has, what is missing, what to do about it"""
    from flambeau import doctor

    _parser(_doctor).parse_args(arguments)
    return doctor.main()


def _minify(arguments: Sequence[str]) -> int:
    """the graph of a script that fails becomes smaller"""
    from flambeau.repro.script import minify

    parser = _parser(_minify)
    parser.add_argument("script", type=Path, help="what FLAMBEAU_REPRO_AFTER left")
    made = minify(parser.parse_args(arguments).script)
    if made is None:
        print("it does not fail (any more)")
        return 1
    print(f"{made.path}: {made.operations} operations, {made.failure}")
    return 0


def _replay(arguments: Sequence[str]) -> int:
    """a frame that capture failed on is captured again"""
    import traceback

    import flambeau_capture

    parser = _parser(_replay)
    parser.add_argument("record", type=Path, help="what FLAMBEAU_RECORD_FAILURES left")
    parser.add_argument("--backend", default="eager")
    chosen = parser.parse_args(arguments)
    try:
        result = flambeau_capture.replay(str(chosen.record), chosen.backend)
    except flambeau_capture.ReplayError as error:
        print(error, file=sys.stderr)
        return 2
    except Exception:  # to show it is what a replay is for
        traceback.print_exc()
        return 1
    print(f"it is captured and runs; its result: {result!r}")
    return 0


def _run(arguments: Sequence[str]) -> int:
    """a program runs as python runs it, its torch.compile being Flambeau's"""
    from flambeau.switching import program

    parser = _parser(_run)
    parser.add_argument("program", nargs="+", help="SCRIPT ... or -m MODULE ..., as after `python`")
    if arguments[:1] in ([], ["-h"], ["--help"]) or arguments == ["-m"]:
        parser.parse_args(arguments)
    program.run(arguments)
    return 0


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "report": _report,
    "doctor": _doctor,
    "minify": _minify,
    "replay": _replay,
    "run": _run,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"flambeau {__version__}")
        return 0
    if not given or given[0] not in COMMANDS:
        if given and not given[0].startswith("-"):
            print(f"unknown command {given[0]!r}\n", file=sys.stderr)
        print("usage: python -m flambeau COMMAND ...\n")
        for name, command in COMMANDS.items():
            print(f"  {name:10} {command.__doc__}")
        return 0 if given in ([], ["-h"], ["--help"]) else 2
    try:
        return COMMANDS[given[0]](given[1:])
    except (FlambeauError, OSError) as error:  # a file that is not there, a folder not to write
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
