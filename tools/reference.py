"""The reference pages: every option of every stage, and every public name with its docstring.

In: the packages. Out: Markdown. Invariant: a public name without a docstring, or an option without
a word on it, is an error: nothing is on these pages but what the code says of itself.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from pathlib import Path
from types import ModuleType

from flambeau.choices import MODES, RESERVED, Choices

PACKAGES = ("flambeau", "flambeau_capture", "flambeau_aot", "flambeau_prims", "flambeau_inductor")

VALUES = {  # public names that are neither functions nor classes, and so have no docstring
    "__version__": "The version of the package.",
    "Boxed": "A compiled graph: one list of tensors in, which it empties; a list or tuple out.",
    "Classifier": "What kind of work an operator is: an operator in, an `OpClass` out, or None.",
    "GraphCompiler": "`(gm, example_inputs, info)` in, a `Boxed` callable out.",
    "OpClass": "The kinds of work that the partitioner tells apart, as strings.",
    "PASSES": "The names of the passes of a compile, in order.",
    "DIALECT": "The number of the dialect: raised when the meaning of a primitive changes.",
    "KEEPABLE": "Operations that `decompositions(keep=...)` can leave whole, with their overloads.",
    "PRIMS": "All primitives, by name.",
    "KEPT_WHOLE": "Operations that are not decomposed for this compiler, as `keep` takes them.",
}

OPTIONS_HEAD = """\
# Options

`flambeau.compile(fn, options={...})` takes each of these by its name, or as `stage.name`. A mode is
a named set of them. The layers alone take them as fields of their `Options`.
"""

#: every variable of the environment that the packages read, with what it says
VARIABLES = {
    "FLAMBEAU_CACHE_DIR": "the folder of kernels and compiled graphs ([caching](caching.md))",
    "FLAMBEAU_CACHE_SIZE": "how large that folder may become "
    "(`500M`, `2G`, a number of bytes; 4 GiB)",
    "FLAMBEAU_DEBUG_DIR": "a folder for every stage's product, as files "
    "([debug folder](inductor.md#debug-folder))",
    "FLAMBEAU_DEBUG_FUNCTION": "capture functions of this name only",
    "FLAMBEAU_DISABLE": "`1`: nothing is compiled, everything runs as it is",
    "FLAMBEAU_FAULTS": "`raise`: a fault of the compiler is an error, never a fall back to eager",
    "FLAMBEAU_INSTALL": "`1`: `flambeau.install()` when torch is imported "
    "([coming from torch.compile](coming-from-torch-compile.md))",
    "FLAMBEAU_LOGS": "what is shown as it happens: `graph,fusion,code`, `all` "
    "([artifacts](finding-out.md#what-is-going-on-inside))",
    "FLAMBEAU_COMPILE_ONCE": "`1`: of several processes one compiles each graph and the others "
    "take what it made ([training](training.md))",
    "FLAMBEAU_PROGRESS": "`0`: no line about long compilations; `1`: one even without a terminal",
    "FLAMBEAU_RECORD_FAILURES": "a folder where a frame is recorded that capture fails on, for "
    "`python -m flambeau replay`",
    "FLAMBEAU_REPRO_AFTER": "`capture` or `aot`: what fails becomes a script "
    "([a bug report](why-wrong.md#make-a-bug-report-of-it))",
    "FLAMBEAU_REPRO_DIR": "where scripts go",
    "FLAMBEAU_REPRO_LEVEL": "`1` to `4`: whether scripts are shrunk, and answers checked",
    "FLAMBEAU_TRACE": "a folder where the run is recorded, for `python -m flambeau report` "
    "([a run as a page](trace.md))",
    "FLAMBEAU_VERIFY": "`1`: hold every program to the rules of the kernels' IR",
}

API_HEAD = """\
# Reference

Every public name of the five packages, as its docstring has it.
"""


def options() -> str:
    """The page of options: a table a stage, and the modes."""
    parts = [OPTIONS_HEAD]
    for stage in dataclasses.fields(Choices):
        kind = type(getattr(Choices(), stage.name))
        told = option_texts(kind)
        parts.append(f"## {stage.name}\n\n| option | default | what it does |\n| --- | --- | --- |")
        for option in dataclasses.fields(kind):
            if option.name in RESERVED[stage.name]:
                continue
            if option.name not in told:
                raise LookupError(f"{kind.__module__}.Options.{option.name} has no description")
            default = getattr(kind(), option.name)
            shown = "..." if dataclasses.is_dataclass(default) else repr(default)
            parts[-1] += f"\n| `{option.name}` | `{shown}` | {_cell(told[option.name])} |"
        parts[-1] += "\n"
    sets = {name: ", ".join(f"`{k}={v}`" for k, v in each.items()) for name, each in MODES.items()}
    rows = [f"| `{name}` | {text or 'nothing'} |" for name, text in sets.items()]
    parts.append("## Modes\n\n| mode | sets |\n| --- | --- |\n" + "\n".join(rows) + "\n")
    variables = [f"| `{name}` | {_cell(text)} |" for name, text in VARIABLES.items()]
    head = "## Variables of the environment\n\n| variable | what it says |\n| --- | --- |\n"
    parts.append(head + "\n".join(variables) + "\n")
    return "\n".join(parts)


def read_variables(package: str) -> set[str]:
    """The variables of the environment that a package's sources name."""
    root = Path(str(importlib.import_module(package).__file__)).parent
    texts = (path.read_text(encoding="utf-8") for path in root.rglob("*.py"))
    return {name for text in texts for name in re.findall(r"\bFLAMBEAU_[A-Z_]+[A-Z]\b", text)}


def option_texts(kind: type) -> dict[str, str]:
    """What a dataclass says of its fields, as `name: text` in its docstring or below each field."""
    found: dict[str, str] = {}
    names = {each.name for each in dataclasses.fields(kind)}
    current: str | None = None
    for line in (inspect.getdoc(kind) or "").splitlines():
        start = re.match(r"(\w+): (.*)", line)
        if start and start[1] in names:
            current = start[1]
            found[current] = start[2]
        elif current and line.startswith("    "):
            found[current] += f" {line.strip()}"
        else:
            current = None
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    previous: str | None = None
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            previous = node.target.id
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and previous:
            found.setdefault(previous, " ".join(str(node.value.value).split()))
        previous = None
    return found


def api() -> str:
    """The page of public names: a section a package, an entry a name."""
    parts = [API_HEAD]
    for package in PACKAGES:
        module = importlib.import_module(package)
        silent = undocumented(module)
        if silent:
            raise LookupError(f"without a docstring in {package}: {', '.join(silent)}")
        parts.append(f"## {package}\n\n{_prose(_first_lines(module))}\n")
        parts += [_entry(module, name) for name in sorted(module.__all__, key=str.lower)]
    return "\n".join(parts)


MODULES_HEAD = """\
# Every module

What each module says of itself in its first line; [the layout](layout.md) has the way through them.
"""


def modules() -> str:
    """The page of modules: a table a package."""
    parts = [MODULES_HEAD]
    for package in PACKAGES:
        root = Path(str(importlib.import_module(package).__file__)).parent
        parts.append(f"## {package}\n\n| module | what it is |\n| --- | --- |")
        for path in sorted(root.rglob("*.py")):
            doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            if not doc:
                raise LookupError(f"{path} has no docstring")
            name = path.relative_to(root).as_posix().removesuffix("__init__.py")
            parts[-1] += f"\n| `{name or '__init__.py'}` | {_cell(_prose(_sentence(doc)))} |"
        parts[-1] += "\n"
    return "\n".join(parts)


def _sentence(doc: str) -> str:
    return " ".join(doc.split("\n\n")[0].split())


def undocumented(module: ModuleType) -> list[str]:
    """Public names without words of their own: functions, classes, and their public methods.

    What a class inherits, and the text that `dataclass` makes up, do not count.
    """
    found = []
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value):
            own = value.__dict__.get("__doc__")
            made_up = dataclasses.is_dataclass(value) and str(own).startswith(f"{value.__name__}(")
            if not own or made_up:
                found.append(name)
            found += [f"{name}.{each}" for each in _silent_members(value)]
        elif inspect.isroutine(value) or isinstance(value, ModuleType):
            if not getattr(value, "__doc__", None):
                found.append(name)
        elif name != "__version__" and name not in VALUES:
            found.append(name)
    return found


def _silent_members(kind: type) -> list[str]:
    found = []
    for name, member in vars(kind).items():
        inside = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        if not name.startswith("_") and inspect.isfunction(inside) and not inside.__doc__:
            found.append(name)
    return found


def _first_lines(module: ModuleType) -> str:
    return (inspect.getdoc(module) or "").split("\n\n")[0]


def _entry(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    title = f"### {module.__name__}.{name}\n"
    if isinstance(value, ModuleType):
        return f"{title}\nA module. {_prose(_first_lines(value))}\n"
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return f"{title}\n{VALUES[name]}\n"
    text = inspect.getdoc(value) or ""
    shown = f"{title}\n```text\n{name}{_signature(value)}\n```\n\n{_prose(text)}\n"
    return shown + (_members(value) if inspect.isclass(value) else "")


def _members(kind: type) -> str:
    """A table of a class's public methods and properties: the first sentence of each."""
    rows = []
    for name, member in vars(kind).items():
        inside = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        if name.startswith("_") or not inspect.isfunction(inside):
            continue
        call = "" if isinstance(member, property) else "()"
        doc = _cell(_prose(_sentence(inspect.getdoc(inside) or "")))
        rows.append(f"| `{name}{call}` | {doc} |")
    return "\n| member | |\n| --- | --- |\n" + "\n".join(rows) + "\n" if rows else ""


WIDEST = 88
"""Characters of a line of code."""


class _Bare(str):
    """An annotation that is printed without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _signature(value: object) -> str:
    try:
        found = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # made in C, or by a metaclass that does not say
        return ""
    parameters = [
        each.replace(annotation=_bare(each.annotation), default=_short(each.default))
        for each in found.parameters.values()
    ]
    shown = found.replace(parameters=parameters, return_annotation=_bare(found.return_annotation))
    return _wrapped(re.sub(r"<(\S+?)[^<>]*>", r"<\1>", str(shown)))


def _short(default: object) -> object:
    """A default value; of options that are all as they come, the class alone."""
    kind = type(default)
    if not dataclasses.is_dataclass(kind):
        return default
    try:
        return _Bare(f"{kind.__name__}()") if default == kind() else default
    except TypeError:  # some of its fields have no default
        return default


def _wrapped(signature: str) -> str:
    """A signature that is too long for a line, a parameter a line."""
    if len(signature) <= WIDEST:
        return signature
    parts, depth = [""], 0
    for position, letter in enumerate(signature):
        depth += (letter in "([{") - (letter in ")]}")
        if position and not depth:
            break
        if letter == "," and depth == 1:
            parts.append("")
        elif position:
            parts[-1] += letter
    return "".join(["(\n", *(f"    {each.strip()},\n" for each in parts), signature[position:]])


def _bare(annotation: object) -> object:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def _prose(text: str) -> str:
    """A docstring as Markdown, with what Markdown would read otherwise made plain."""
    return re.sub(r"([<>|*])", r"\\\1", text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
