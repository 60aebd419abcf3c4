"""A program: what is compiled, what it is given, what happens around it; all of it text.

In: what a family drew. Out: source that runs in a namespace, JSON, a stand-alone script.
Invariant: equal data are equal programs; nothing of a program is an object that lives.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

PRELUDE = (Path(__file__).parent / "values.py").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Call:
    """One call. arguments: expressions by name of the parameter. before, after: statements around
    it, which see the namespace, the arguments as `args` and the result as `out`."""

    arguments: dict[str, str]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """setup: statements that make what the function reads. body: its statements. results: names
    that it returns. exact: eager computes all of it exactly. steps: each statement of the body is
    one operation whose result is returned, and is judged by itself. sizes: what `compile` is given
    as such."""

    family: str
    seed: int
    body: tuple[str, ...]
    results: tuple[str, ...]
    calls: tuple[Call, ...]
    setup: tuple[str, ...] = ()
    exact: bool = False
    steps: bool = False
    backend: str = "aot_eager"
    dynamic: bool | None = None
    target: str = "f"
    sizes: str = ""

    @property
    def name(self) -> str:
        return f"{self.family}:{self.seed}"

    @property
    def parameters(self) -> list[str]:
        return list(self.calls[0].arguments)

    def function(self) -> str:
        """The function that is compiled."""
        lines = [*self.body]
        listed = ", ".join(self.results)
        if self.results:
            lines.append(f"return ({listed},)")
        return f"def f({', '.join(self.parameters)}):\n" + indent(
            "\n".join(lines) or "pass", "    "
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def size(self) -> int:
        """Characters of it, by which two forms of a program are told apart."""
        calls = sum(len(str(asdict(call))) for call in self.calls)
        return sum(map(len, (*self.setup, *self.body, *self.results))) + calls


def tried(text: str) -> str:
    """The statements; the class of what they raise is noted."""
    caught = "except Exception as error:\n    LOG.append(type(error).__name__)"
    return f"try:\n{indent(text, '    ')}\n{caught}"


def from_json(data: dict[str, Any]) -> Program:
    known = {key: tuple(v) if isinstance(v, list) else v for key, v in data.items()}
    known["calls"] = tuple(
        Call(dict(c["arguments"]), tuple(c["before"]), tuple(c["after"])) for c in data["calls"]
    )
    return Program(**known)


def script(program: Program, why: str = "") -> str:
    """A stand-alone script that plays the program as it is and compiled, and prints both."""
    parts = [f'"""{program.name}: {why}"""' if why else f'"""{program.name}"""']
    text = "\n".join((*program.setup, program.function()))
    needed = any(
        word in text + str(program.calls)
        for word in ("make(", "leaf(", "filled(", "arranged(", "opened(", "marked(")
    )
    prelude = PRELUDE.partition('"""\n')[2] if needed else "import torch\n"
    if needed:
        prelude = PRELUDE[PRELUDE.index("import torch") :]
    parts.append("import random\nimport sys\n\nimport flambeau")
    parts.append(prelude.rstrip())
    played = [*program.setup, program.function(), f"target = wrap({program.target})"]
    for number, call in enumerate(program.calls):
        played.append("torch.manual_seed(0); random.seed(0)")
        played += call.before
        given = ", ".join(call.arguments.values())
        names = "".join(f"{name}, " for name in call.arguments)
        played.append(f"{names}= args = ({given}{',' if given else ''})" if names else "args = ()")
        tried = "\n".join(
            ["out = target(*args)", *call.after, f'print("call {number}:", out, strides(out))']
        )
        played.append("try:\n" + indent(tried, "    "))
        played.append(
            "except Exception as error:\n    print(type(error).__name__, str(error)[:300])"
        )
        grads = ", ".join(f"getattr({n}, 'grad', None)" for n in call.arguments)
        if "backward" in str(call) + text and names:
            played.append(f'print("gradients:", {grads})')
    options = f'backend="{program.backend}"'
    if program.dynamic is not None:
        options += f", dynamic={program.dynamic}"
    if program.sizes:
        options += f", sizes={program.sizes}"
    parts.append(
        "def strides(value):\n"
        "    found = value if isinstance(value, (list, tuple)) else [value]\n"
        "    return [each.stride() for each in found if isinstance(each, torch.Tensor)]"
    )
    parts.append("PROGRAM = r'''\n" + "\n".join(played) + "\n'''")
    parts.append(
        "for WORLD, wrap in (\n"
        '    ("eager", lambda f: f),\n'
        f'    ("compiled", lambda f: flambeau.compile(f, {options})),\n'
        "):\n"
        '    print("==", WORLD)\n'
        '    world = {**globals(), "LOG": []}\n'
        "    exec(PROGRAM, world)\n"
        '    print("log:", world["LOG"])\n'
        "print(flambeau.report())\n"
    )
    return "\n\n".join(parts)
