"""All kernels of a graph as one C++ translation unit.

In: loops and the element types of their buffers. Out: `Source`: the text, and for every loop the
entry it calls with its buffers in order. Invariant: equal kernels are emitted once; the unit
includes no standard, Python or torch header.

Python calls an entry directly: it is a METH_FASTCALL function that takes addresses as ints (see
`flambeau/python.h` for what it needs of CPython).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from flambeau_inductor.codegen.cpp.forms import RULES, Form
from flambeau_inductor.codegen.cpp.kernel import Kernel, emit_kernel
from flambeau_inductor.codegen.cpp.one_hot import one_hot
from flambeau_inductor.codegen.cpp.plan import plan
from flambeau_inductor.codegen.cpp.rewrite import narrow_indices, two_pass_variance
from flambeau_inductor.indexing.expr import terms_of
from flambeau_inductor.ir.loops import Load, Loop, Store

HEADERS = '#include "flambeau/vec.h"\n#include "flambeau/python.h"\n'


@dataclass(frozen=True, slots=True)
class Entry:
    """Call entry number `number` with addresses in `buffers`, then the open `sizes`.

    `offsets`: how many bytes behind the start of each buffer its address is.
    """

    number: int
    buffers: tuple[str, ...]
    offsets: tuple[int, ...]
    sizes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """`entries` by loop name; `kernels` is how many different ones the text holds.

    `draws`: it has the entry of `flambeau/mersenne.h` after them.
    """

    text: str
    entries: dict[str, Entry]
    kernels: int
    draws: bool = False

    @property
    def functions(self) -> int:
        """How many functions the library has."""
        return self.kernels + self.draws


def generate(
    loops: Sequence[Loop],
    dtype_of: Callable[[str], torch.dtype],
    vector_bytes: int,
    threads: int | None = None,
    draws: bool = False,
    forms: Mapping[str, Form] | None = None,
) -> Source:
    """Write the unit for vectors of `vector_bytes` (64: AVX-512, 32: AVX2, 16: anything).

    `forms`: by the names of loops whose kernels are not to be as the rules say.
    """
    written: dict[object, tuple[int, Kernel]] = {}
    numbers: dict[Kernel, int] = {}
    entries: dict[str, Entry] = {}
    widths: set[int] = set()
    bodies: list[str] = []
    for loop in loops:
        shape, names = anonymous(loop)
        shape, starts = from_starts(shape)
        dtypes = {short: dtype_of(name) for short, name in names.items()}
        form = (forms or {}).get(loop.name, RULES)
        key = (shape.x, shape.r, shape.body, tuple(dtypes.values()), form)
        if key not in written:
            ready = prepared(shape)
            kernel = emit_kernel(plan(ready, vector_bytes, form), dtypes.__getitem__, threads)
            number = numbers.setdefault(replace(kernel, buffers=()), len(numbers))
            if number == len(bodies):
                bodies.append(_kernel(number, kernel, loop))
                if kernel.width > 1:
                    widths.add(kernel.width)
            written[key] = number, kernel
        number, kernel = written[key]
        buffers = tuple(names[short] for short in kernel.buffers)
        offsets = tuple(starts.get(b, 0) * dtypes[b].itemsize for b in kernel.buffers)
        entries[loop.name] = Entry(number, buffers, offsets, kernel.sizes)
    includes = "".join(f'#define FL_W {w}\n#include "flambeau/lanes.h"\n' for w in sorted(widths))
    if draws:
        includes += '#include "flambeau/mersenne.h"\n'
    head = f"{HEADERS}{includes}\nusing namespace fl;\n\n"
    calls = [f"call{k}" for k in range(len(bodies))] + ["draw_below"] * draws
    return Source(head + "\n".join(bodies) + _table(calls), entries, len(bodies), draws)


def prepared(loop: Loop) -> Loop:
    """The loop as it is planned."""
    return narrow_indices(one_hot(two_pass_variance(loop)))


def anonymous(loop: Loop) -> tuple[Loop, dict[str, str]]:
    """`loop` with its buffers renamed in the order they appear, and what the new names stand for.

    Layers of a model often differ in nothing but the names of their buffers.
    """
    short: dict[str, str] = {}
    for instr in loop.body:
        if isinstance(instr, Load | Store):
            short.setdefault(instr.buffer, f"b{len(short)}")
    body = tuple(
        replace(i, buffer=short[i.buffer]) if isinstance(i, Load | Store) else i for i in loop.body
    )
    return replace(loop, name="", body=body, origins=()), {v: k for k, v in short.items()}


def from_starts(loop: Loop) -> tuple[Loop, dict[str, int]]:
    """`loop` with every buffer addressed from the lowest constant offset that it is used at, and
    those offsets, in elements, where they are not zero.

    The steps of an unrolled recurrence, and the parts of a split tensor, differ in them alone.
    """
    starts: dict[str, int] = {}
    for instr in loop.body:
        if isinstance(instr, Load | Store):
            _, constant = terms_of(instr.index)
            starts[instr.buffer] = min(constant, starts.get(instr.buffer, constant))
    starts = {buffer: start for buffer, start in starts.items() if start}
    body = tuple(
        replace(i, index=i.index - starts[i.buffer])
        if isinstance(i, Load | Store) and i.buffer in starts
        else i
        for i in loop.body
    )
    return replace(loop, body=body), starts


def _kernel(number: int, kernel: Kernel, loop: Loop) -> str:
    names = [f"p{k}" for k in range(len(kernel.parameters))]
    parameters = [f"{t} {n}" for t, n in zip(kernel.parameters, names)]
    parameters += [f"const long {size}" for size in kernel.sizes]
    if kernel.errors:
        parameters.append("int* flag")
    values = [f"({kind})PyLong_AsVoidPtr(arg[{k}])" for k, kind in enumerate(kernel.parameters)]
    values += [f"(long)PyLong_AsVoidPtr(arg[{len(names) + k}])" for k in range(len(kernel.sizes))]
    count = len(values)
    lines = [f"  const auto a{k} = {v};" for k, v in enumerate(values)]
    lines.append("  if (PyErr_Occurred()) return nullptr;")
    arguments = [f"a{k}" for k in range(count)]
    if kernel.errors:
        lines.append("  int flag = 0;")
        arguments.append("&flag")
    if kernel.releases:
        lines.append("  void* state = PyEval_SaveThread();")
    lines.append(f"  kernel{number}({', '.join(arguments)});")
    if kernel.releases:
        lines.append("  PyEval_RestoreThread(state);")
    if kernel.errors:
        lines.append(
            '  if (flag) { PyErr_SetString(PyExc_RuntimeError, "ZeroDivisionError"); '
            "return nullptr; }"
        )
    checks = (
        f"  if (count != {count}) {{ PyErr_SetString(PyExc_TypeError, "
        f'"this kernel takes {count} addresses and sizes"); return nullptr; }}\n'
    )
    origins = " ".join(dict.fromkeys(loop.origins))
    return (
        f"// {origins}\n"
        f"static void kernel{number}({', '.join(parameters)})\n{kernel.body}"
        f"static PyObject* call{number}(PyObject*, PyObject* const* arg, long count) {{\n"
        + checks
        + "\n".join(lines)
        + "\n  return PyLong_FromLong(0);\n}\n"
    )


def _table(names: Sequence[str]) -> str:
    rows = "".join(
        f'  {{"kernel{k}", (PyCFunction)(void*){name}, FL_FASTCALL, nullptr}},\n'
        for k, name in enumerate(names)
    )
    return (
        f"\nstatic PyMethodDef methods[] = {{\n{rows}  {{nullptr, nullptr, 0, nullptr}}\n}};\n"
        'extern "C" PyObject* flambeau_kernel(int number) {\n'
        "  return PyCFunction_NewEx(&methods[number], nullptr, nullptr);\n}\n"
    )
