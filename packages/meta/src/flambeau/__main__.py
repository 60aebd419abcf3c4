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
from flambeau.shown import counted


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


def _cache(arguments: Sequence[str]) -> int:
    """the cache folder: what is in it, transfer to another machine, pruning"""
    from flambeau_inductor.cache import size_limit

    from flambeau import cache

    parser = _parser(_cache)
    parser.add_argument("--folder", type=Path, help="FLAMBEAU_CACHE_DIR, or the usual one")
    does = parser.add_subparsers(dest="what", metavar="ACTION")
    does.add_parser("info", help="figures (without an action too)")
    does.add_parser("keys", help="a line a graph, the one that was used last first")
    does.add_parser("verify", help="name the entries that are broken; exit status 1 if there are")
    does.add_parser("clear", help="remove every entry")
    pruned = does.add_parser("prune", help="remove what was used longest ago")
    pruned.add_argument("--size", type=size_limit.parsed, help="bytes to keep, as in 500M")
    for name, help in (("save", "write all entries to a file"), ("load", "take those of a file")):
        does.add_parser(name, help=help).add_argument("file", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.what == "keys":
        print("\n".join(f"{key.digest[:12]}  {key.kind}" for key in cache.keys(chosen.folder)))
    elif chosen.what == "verify":
        broken = cache.verify(chosen.folder)
        print("\n".join(map(str, broken)) or "every entry is as it was written")
        return 1 if broken else 0
    elif chosen.what == "clear":
        print(f"{counted(cache.clear(chosen.folder), 'entry', 'entries')} removed")
    elif chosen.what == "prune":
        gone = cache.prune(chosen.size, chosen.folder)
        print(f"{counted(gone, 'entry', 'entries')} removed")
    elif chosen.what == "save":
        saved = cache.save(chosen.file, chosen.folder)
        print(f"{counted(saved, 'entry', 'entries')} in {chosen.file}")
    elif chosen.what == "load":
        print(f"{counted(cache.load(chosen.file, chosen.folder), 'new entry', 'new entries')}")
    else:
        print(cache.info(chosen.folder))
    return 0


def _cmake(arguments: Sequence[str]) -> int:
    """the folders for CMAKE_PREFIX_PATH of a C++ program that loads packages"""
    import torch.utils

    _parser(_cmake).parse_args(arguments)
    print(Path(__file__).with_name("cpp"), torch.utils.cmake_prefix_path, sep=";")
    return 0


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "report": _report,
    "doctor": _doctor,
    "minify": _minify,
    "replay": _replay,
    "run": _run,
    "cache": _cache,
    "cmake": _cmake,
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
