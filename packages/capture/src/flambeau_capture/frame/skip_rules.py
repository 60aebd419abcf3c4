"""Skip rules: frames that run uncaptured, and libraries by prefix of their modules' names.

In: a code object, a module's name. Out: whether to capture it; what a call into the module is.
Invariant: code of torch (except its modules' `forward`), of the standard library and of this
project is never captured on its own; it is interpreted where captured code calls it. What is true
of a module is true of all below it, unless a longer name says otherwise.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig
from dataclasses import dataclass
from importlib.machinery import PathFinder
from types import CodeType

GRAPH = "graph"


@dataclass(frozen=True)
class LibraryRule:
    """called: the break that a call of its Python functions is, or `GRAPH`: one call of the graph;
    nothing: they are interpreted. skipped: whether its frames run as they are where no captured
    code calls them."""

    called: str = ""
    skipped: bool = False


_ALONE = LibraryRule(skipped=True)
_OPAQUE = LibraryRule("FB0017")
_LOGS = LibraryRule("FB0023")
_GRAPH = LibraryRule(GRAPH)

LIBRARIES: dict[str, LibraryRule] = {
    "torch": _ALONE,
    "torch.nn.functional": _GRAPH,
    "torch.functional": _GRAPH,
    "torch.masked._ops": _GRAPH,  # they make a class of a derivative in each call
    "torch._VF": _GRAPH,
    "torch.fx._pytree": LibraryRule(),  # generated modules of exported programs call it
    "torch._tensor_str": LibraryRule("FB0003"),
    "torch.autograd.function": LibraryRule("FB0007"),
    "torch.random": LibraryRule("FB0024"),
    "torch._higher_order_ops": LibraryRule("FB0025"),  # queries whether torch compiles
    "torch.nn.attention.flex_attention": _ALONE,
    **dict.fromkeys(
        (
            "torch._dynamo", "torch._inductor", "torch._functorch", "torch._vmap_internals",
            "torch.distributed",
            "torch.multiprocessing", "torch.utils.checkpoint", "torch.utils.data",
            "torch.serialization", "torch.jit", "torch.fx", "torch.cuda", "torch.profiler",
            "torch._subclasses", "flambeau_capture.api", "threading", "multiprocessing", "asyncio",
            "subprocess", "importlib", "random", "unittest",
            "traceback", "linecache",
        ),
        _OPAQUE,
    ),
    **dict.fromkeys(  # written with what has rules: collectives, checkpoint, placements
        (
            "torch.distributed._functional_collectives", "torch.distributed.nn.functional",
            "torch.distributed.algorithms._checkpoint", "torch.distributed.tensor.parallel.style",
        ),
        _ALONE,
    ),
    **dict.fromkeys(
        ("numpy", "scipy", "pandas", "sklearn", "matplotlib", "triton", "sympy"),
        LibraryRule("FB0017", skipped=True),
    ),
    **dict.fromkeys(("logging", "warnings"), _LOGS),
    "tqdm": LibraryRule("FB0023", skipped=True),
    **dict.fromkeys(
        (
            "PIL", "networkx", "pytest", "_pytest", "pluggy", "hypothesis", "IPython",
            "flambeau_capture", "flambeau_prims", "flambeau_aot", "flambeau_inductor", "flambeau",
            "tokenizers", "filelock", "huggingface_hub", "safetensors", "rich",
            "ipykernel", "traitlets", "jupyter_client", "zmq", "tornado",
        ),
        _ALONE,
    ),
}  # fmt: skip


@functools.cache
def library_rule(module: str) -> tuple[str, LibraryRule]:
    """The row that holds for a module, and its prefix."""
    prefix = module
    while prefix:
        if prefix in LIBRARIES:
            return prefix, LIBRARIES[prefix]
        prefix = prefix.rpartition(".")[0]
    return "", LibraryRule()


def _folder(package: str) -> str | None:
    module = sys.modules.get(package)
    file = getattr(module, "__file__", None)
    if file is None:
        top, *parts = package.split(".")
        try:
            found = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            return None
        for part in parts:  # not by its whole name: that would import the packages it is in
            if found is not None:
                name, places = f"{found.name}.{part}", found.submodule_search_locations
                found = PathFinder.find_spec(name, places)
        file = found.origin if found is not None else None
    if file is None:
        return None
    return os.path.dirname(file) + os.sep


@functools.cache
def _skipped_folders() -> tuple[str, ...]:
    found = [_folder(package) for package, rule in LIBRARIES.items() if rule.skipped]
    return tuple(folder for folder in found if folder is not None)


@functools.cache
def _library_folders() -> tuple[str, str]:
    paths = sysconfig.get_paths()
    return paths["stdlib"] + os.sep, paths["purelib"] + os.sep


@functools.cache
def _torch_modules() -> tuple[str, ...]:
    folder = _folder("torch") or os.sep
    names = (("nn", "modules"), ("distributed", "algorithms", "_checkpoint"))
    return tuple(os.path.join(folder, *name, "") for name in names)


def skip_file(filename: str) -> bool:
    """Whether a file's functions are never captured on their own."""
    if filename.startswith("<"):
        # code that Flambeau itself has generated runs as it is
        return filename.startswith(("<frozen", "<flambeau"))
    if filename.startswith(_torch_modules()):
        return filename.endswith(os.sep + "module.py")
    standard, packages = _library_folders()
    if filename.startswith(standard) and not filename.startswith(packages):
        return "site-packages" not in filename and "dist-packages" not in filename
    return filename.startswith(_skipped_folders())


@functools.cache
def _uncaptured_files() -> frozenset[str]:
    """Files whose functions run what they call twice and compare, or make a module's parameters at
    its first call: without capture."""
    folder = _folder("torch") or ""
    names = (("utils", "checkpoint.py"), ("nn", "modules", "lazy.py"))
    return frozenset(os.path.join(folder, *name) for name in names)


@functools.cache
def _launchers() -> tuple[str, ...]:
    """Folders of functions that launch kernels, or run these as Python, thread block by block."""
    folder = _folder("triton")
    return () if folder is None else (os.path.join(folder, "runtime", ""),)


def runs_uncaptured(code: CodeType) -> bool:
    """Whether nothing that a function calls is to be captured. An import is such a call: what a
    module runs while it is made is no part of the program, and capture may need that very module.
    """
    if code.co_name == "_find_and_load":
        return code.co_filename == "<frozen importlib._bootstrap>"
    return (
        code.co_filename in _uncaptured_files() or code.co_filename.startswith(_launchers())
    ) and not code.co_flags & 0x20


def third_party(code: CodeType) -> bool:
    """Whether a code object belongs to an installed package rather than to the user."""
    return "site-packages" in code.co_filename or "dist-packages" in code.co_filename


def is_made_by_library(code: CodeType, module: str) -> bool:
    """Whether a library whose frames are skipped made a function from text: that of a dataclass."""
    rule = library_rule(module)[1]
    return code.co_filename == "<string>" and (rule.skipped or rule.called == "FB0017")


def skip_code(code: CodeType) -> bool:
    return code.co_name in ("<module>", "<lambda_of_capture>") or skip_file(code.co_filename)
