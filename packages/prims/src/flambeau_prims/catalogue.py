"""Generated catalogue of primitives and decompositions, as page and data.

In: the registries. Out: Markdown (`docs/ops.md`) or JSON (`docs/ops.json`), on standard output or
into a file: `python -m flambeau_prims.catalogue [FILE] [--json]`; `--check` fails if FILE is not up
to date. Invariant: nothing in them is written by hand, so it cannot be wrong.
"""

from __future__ import annotations

import argparse
import dis
import functools
import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch

from flambeau_prims.__about__ import DIALECT
from flambeau_prims._op import PRIMS, Prim, prim_of
from flambeau_prims._torch_compat import OpOverload
from flambeau_prims.decomposition_choice import decompositions
from flambeau_prims.decomposition_table import KEEPABLE, PHILOX_TABLE, TABLE, Decomposition

_SHOWN = 12
"""How many of the overloads that lower to a primitive its section lists."""

_SETS = {
    "real floats": {torch.float16, torch.bfloat16, torch.float32, torch.float64},
    "complex": {torch.complex32, torch.complex64, torch.complex128},
    "integers": {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64},
    "bool": {torch.bool},
}


def schema_lines() -> list[str]:
    """The dialect's number and all schemas, sorted: what a golden file pins."""
    return [f"DIALECT {DIALECT}", *sorted(prim.schema for prim in PRIMS.values())]


def families() -> dict[str, list[Prim]]:
    """The primitives by family, both in alphabetical order."""
    found: dict[str, list[Prim]] = {}
    for prim in sorted(PRIMS.values(), key=lambda p: (p.family, p.name)):
        found.setdefault(prim.family, []).append(prim)
    return found


def derivative(prim: Prim) -> str:
    """Whether and how a primitive is differentiable, in words."""
    if isinstance(prim.differentiable, str):
        return prim.differentiable
    constant = prim.tags & {"creation", "random", "effect"}
    if prim.differentiable is False or (prim.differentiable is None and constant):
        return "none"
    return "the formula of the ATen operation it came from, decomposed below autograd"


def dtypes(prim: Prim) -> str:
    """The dtypes of the first operand, in words; empty if the rule alone says."""
    if prim.dtypes is None:
        return ""
    rest, words = set(prim.dtypes), []
    for name, members in _SETS.items():
        if members <= rest:
            words.append(name)
            rest -= members
    return ", ".join([*words, *sorted(str(d).removeprefix("torch.") for d in rest)])


def accuracy(prim: Prim) -> str:
    """What a backend's results may differ from eager's in, in words."""
    if prim.exact:
        return "exact: the bits that eager gives"
    if prim.dtypes is not None and any(prim.is_exact(dtype) for dtype in prim.dtypes):
        return "of integers and bools exact; of floats within eager's own error"
    return "within eager's own error"


def data() -> dict[str, Any]:
    """Everything as plain data."""
    table = decompositions()
    used_by = users({**table, **PHILOX_TABLE})
    return {
        "dialect": DIALECT,
        "primitives": [
            {
                "name": prim.name,
                "schema": prim.schema,
                "family": prim.family,
                "tags": sorted(prim.tags),
                "meaning": prim.doc,
                "shape": prim.shape,
                "dtypes": dtypes(prim),
                "edge_cases": dict(prim.edge_cases),
                "accuracy": accuracy(prim),
                "derivative": derivative(prim),
                "source": prim.source,
                "used_by": used_by[prim.name],
            }
            for members in families().values()
            for prim in members
        ],
        "decompositions": {
            str(op): sorted(prims_used(function))
            for op, function in sorted(table.items(), key=lambda item: str(item[0]))
        },
        "philox": sorted(str(op) for op in PHILOX_TABLE),
        "keepable": {name: [str(op) for op in ops] for name, ops in sorted(KEEPABLE.items())},
    }


def _section(entry: Mapping[str, Any]) -> list[str]:
    facts = {key: entry[key] for key in ("shape", "dtypes")} | entry["edge_cases"]
    facts |= {key: entry[key] for key in ("accuracy", "derivative", "tags", "source")}
    facts["tags"] = ", ".join(facts["tags"])
    lines = [f"### {entry['name']}", "", f"`{entry['schema']}`", "", entry["meaning"], ""]
    lines += [f"- {about}: {text}" for about, text in facts.items() if text]
    if used_by := entry["used_by"]:
        shown = ", ".join(f"`{name.removeprefix('aten.')}`" for name in used_by[:_SHOWN])
        more = f" and {len(used_by) - _SHOWN} more" if len(used_by) > _SHOWN else ""
        lines.append(f"- lowered to from: {shown}{more}")
    return [*lines, ""]


EXACTNESS_HEAD = """\
# Which results are eager's bits

Every primitive is of one of two classes. What is **exact** has eager's bits on the same device:
IEEE 754, or the arithmetic of integers modulo 2**bits, decides them, and of NaN any is NaN.
Everything else is **within eager's own error**: as near to the true result as four times eager's
error, or four units in the last place. This page is generated.

What makes the exact ones so:

- Each operator is rounded on its own: no product and sum of two operators become one operation,
  in C++ or on a GPU, unless a formula of one primitive says so. The two of one operator are `fma`
  where eager's kernels are contracted: `addcmul`, `lerp`, sums of a multiple, `addcdiv` on a GPU.
- Half precision is widened to float32 and rounded once an operator. Quotients of half precision
  by `//`, and powers of 3, -1 and -2, are rounded step by step, as eager's kernels do.
- A number beside a tensor is rounded to the tensor's dtype where eager's kernel takes it so: in
  comparisons, `fmod`, `remainder`, `copysign`, `pow` and, on a CPU, sums, differences and bounds.
  Elsewhere it keeps the precision that is computed in.
- Division by a number on a GPU multiplies by its reciprocal, computed in float64, and `linspace`
  rounds its step and each number once as eager's kernels do, in half precision each operation, in
  float64 to one unit.
- Integers wrap after every operation, those below 32 bits too; a shift by a negative count or by
  the width and more shifts all bits out.
- Denormal numbers are numbers: no instruction of an exact primitive takes them for zero.
- A number as bound that is NaN makes the result NaN on a CPU, and on a GPU is none unless there
  are two; `relu` of -0 is -0 on a CPU, and 0 on a GPU.
- The sign of a zero is kept. Of two zeros of different signs `maximum`, `minimum`, `fmax` and
  `fmin` may give either, as eager does by where in a vector they stand.

On a CPU eager has roots, and remainders of quotients above 2**23, from libraries that do not round
correctly; here they are rounded correctly. The mean beside a variance (`var_mean`, `std_mean`) of
what has an infinite element is NaN; eager's is infinite where that element is the last that its
kernel adds. The statistics of normalisations are finite wherever eager's are: the mean is a sum of
shares, which does not overflow, and a variance is infinite where the squares of the deviations are.
Where eager's own sums overflow on the way (on a CPU those of layer and group norm from 1.8e19 on,
and those of batch norm but in float32) they are what exact sums give; where the difference of two
elements overflows the mean of a row that is read once (on a GPU one longer than a block, on a CPU
16384 numbers of float64) is no number. Where eager takes the elements of a vector otherwise than
the few behind the last vector (zeros of `softshrink`, gradients at NaN, `sinh` and `cosh` where
`exp` is infinite and they are not), all are taken as one, and are what they are. Where eager's
result is what its memory held it is no answer: Chebyshev, Laguerre and Legendre polynomials of NaN
with a degree of 2 and more, which are NaN here.

What exactness costs on a GPU (sm_90, instructions of a float32 element): quotients, reciprocals
and roots 15, in half precision too, where approximate ones take 8; `exp` 22 for 5 where its
result is not rounded to half precision, and `sigmoid` 36 for 8; `fmod`, `remainder` and `//` 150
to 200 for 33 to 67, most of it one quotient in float64, as many times as a block's largest
quotient has 25 bits.

| primitives | exact | within eager's own error |
| --- | --- | --- |
"""


def render_exactness() -> str:
    """The page of classes of accuracy: the primitives of each family by class."""
    lines = []
    for family, members in families().items():
        columns = (
            ", ".join(f"[{p.name}](ops.md#{p.name})" for p in members if p.exact == exact)
            for exact in (True, False)
        )
        lines.append(f"| {family} | {' | '.join(columns)} |")
    tail = "\n\nIntegers and bools are exact in every primitive.\n"
    return EXACTNESS_HEAD + "\n".join(lines) + tail


def render() -> str:
    """The whole page."""
    known = data()
    table, sections = known["decompositions"], {e["name"]: e for e in known["primitives"]}
    out = [
        "# Primitive operations",
        "",
        f"Dialect {DIALECT}: {len(PRIMS)} primitives, to which {len(table)} overloads of ATen are"
        " lowered. The same as data: [ops.json](ops.json). This page is generated.",
        "",
        "| family | primitives |",
        "| --- | --- |",
    ]
    for family, members in families().items():
        names = ", ".join(f"[{p.name}](#{p.name})" for p in members)
        out.append(f"| {family} ({len(members)}) | {names} |")
    for family, members in families().items():
        out += ["", f"## {family.capitalize()}", ""]
        for prim in members:
            out += _section(sections[prim.name])
    out += ["## Decomposed ATen overloads", "", *(f"- `{name}`" for name in table)]
    out += ["", 'With `random="philox"` also:', "", *(f"- `{name}`" for name in known["philox"])]
    out += ["", "## Operations that can be kept whole", ""]
    for name, ops in known["keepable"].items():
        out.append(f"- `{name}`: {', '.join(f'`{op}`' for op in ops)}")
    return "\n".join(out) + "\n"


def render_json() -> str:
    """`data()` as text, a primitive or operation a line."""
    parts = []
    for key, value in data().items():
        if isinstance(value, list):
            lines = ",\n".join(json.dumps(item) for item in value)
            parts.append(f"{json.dumps(key)}: [\n{lines}\n]")
        elif isinstance(value, dict):
            lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            parts.append(f"{json.dumps(key)}: {{\n{lines}\n}}")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(argv: Sequence[str]) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m flambeau_prims.catalogue")
    parser.add_argument("file", nargs="?", type=Path, help="where to write (standard output)")
    parser.add_argument("--json", action="store_true", help="data instead of the page")
    parser.add_argument("--check", action="store_true", help="compare with FILE, write nothing")
    options = parser.parse_args(argv)
    page = render_json() if options.json else render()
    if options.check:
        if options.file is None:
            parser.error("--check needs a FILE")
        if options.file.exists() and options.file.read_text(encoding="utf-8") == page:
            return 0
        print(f"{options.file} is out of date: run python -m flambeau_prims.catalogue "
              f"{options.file}", file=sys.stderr)  # fmt: skip
        return 1
    if options.file is None:
        sys.stdout.write(page)
    else:
        options.file.write_text(page, encoding="utf-8")
    return 0


def prims_used(function: Decomposition) -> frozenset[str]:
    """Names of the primitives that `function` may call."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting: list[Any] = [function]
    while waiting:
        for value in _leaves(waiting.pop()):
            if (prim := prim_of(value)) is not None:
                found.add(prim.name)
                continue
            if isinstance(value, OpOverload):  # by way of another decomposition
                value = inspect.unwrap(TABLE[value]) if value in TABLE else None
            if isinstance(value, FunctionType) and id(value) not in seen:
                seen.add(id(value))
                if value.__module__.startswith("flambeau_prims"):
                    waiting.append(_reached(value))
    return frozenset(found)


def users(table: Mapping[OpOverload, Decomposition]) -> dict[str, list[str]]:
    """For each primitive the overloads in `table` that may lower to it, sorted."""
    result: dict[str, list[str]] = {name: [] for name in PRIMS}
    for op, function in table.items():
        for name in prims_used(function):
            result[name].append(str(op))
    return {name: sorted(ops) for name, ops in result.items()}


def _leaves(value: Any) -> Iterator[Any]:
    """What containers and partial applications hold; anything else is itself."""
    if isinstance(value, functools.partial):
        yield from _leaves((value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, dict):
        if value is not TABLE and value is not PHILOX_TABLE:  # looked up by an overload, not all
            yield from _leaves(list(value.values()))
    else:
        yield value


@functools.cache
def _reached(function: FunctionType) -> tuple[Any, ...]:
    """The values that the code of `function` can get at by name."""
    return (
        *_cells(function),
        *(function.__defaults__ or ()),
        *_named(function.__code__, function.__globals__),
    )


def _cells(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name that is not bound yet
            continue


def _named(code: CodeType, names: Mapping[str, Any]) -> Iterator[Any]:
    owner: Any = None  # the global that the instruction before has put on the stack
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            owner = names.get(name)
            if owner is not PRIMS:
                yield owner
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            if _is_ours(owner):
                yield getattr(owner, name, None)
            owner = None
        elif instruction.opname == "LOAD_CONST" and owner is PRIMS and name in PRIMS:
            yield PRIMS[name].overload
            owner = None
        elif instruction.opname not in ("CACHE", "PRECALL", "PUSH_NULL"):
            owner = None
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _named(constant, names)


def _is_ours(owner: Any) -> bool:
    """Whether attributes of `owner` are functions of this package or primitives."""
    name = getattr(owner, "__name__", None) or type(owner).__module__
    return isinstance(name, str) and name.startswith("flambeau_prims")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
