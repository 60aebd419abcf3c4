"""Translation unit of a graph's C++ kernels.

In: loops and the element types of their buffers. Out: `TranslationUnit`: the text, and for every
loop the entry it calls with its buffers in order. Invariant: a kernel's text depends on the loop's
structure alone, so that equal kernels are emitted once; no standard, Python or torch header is
included. Python calls an entry as a METH_FASTCALL function that takes addresses as ints
(`flambeau/python.h`).

Fusion of a kernel with the random draws that it reads. In: a `LoopPlan` and the buffer that the
draws would go to. Out: `RandomFusion`, if the loop reads them in the order in which they are drawn;
the C++ function that Python calls. Invariant: the draws are those of `flambeau/mersenne.h` for the
whole buffer, whatever the number of threads and of rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan, blocked_axis, plan, shared_axis
from flambeau_inductor.codegen.cpp.analysis.variant import RULES, Form
from flambeau_inductor.codegen.cpp.dtypes import spelling_of
from flambeau_inductor.codegen.cpp.emit.device_functions import definitions
from flambeau_inductor.codegen.cpp.emit.loop_nest import Nest
from flambeau_inductor.codegen.cpp.emit.pointwise import CALLED
from flambeau_inductor.codegen.cpp.emit.reduction_passes import columns_at_once
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables, SourceLines
from flambeau_inductor.codegen.cpp.loop_rewrites import (
    choose_constants,
    exact_in_half,
    larger_or_smaller,
    narrow_indices,
    one_hot,
    two_pass_variance,
)
from flambeau_inductor.codegen.cpp.moved_bits import moved_as_bits
from flambeau_inductor.codegen.cpp.toolchain import HEADER
from flambeau_inductor.codegen.device_functions import module_of
from flambeau_inductor.indexing import Var, as_expr
from flambeau_inductor.indexing.expr import terms_of
from flambeau_inductor.ir.loops import Load, Loop, Point, Store

AT_ONCE = 2048
"""Draws at a time: with the other reads of their loop they fit in the smallest cache."""
MOST = 1 << 16
"""Draws of a row, which lie on a thread's stack."""


@dataclass(frozen=True, slots=True)
class RandomFusion:
    """`mask`: the buffer of the draws; `rows` of `length` draws each, `piece` of them at a time.
    `beside`: buffers that are read where the draws are."""

    mask: str
    rows: int
    length: int
    piece: int
    beside: tuple[str, ...]


def fuse_with_draws(plan: LoopPlan, mask: str) -> RandomFusion | None:
    """How the rows of a loop can run after the draws of `mask`; None where they cannot."""
    loop = plan.loop
    if plan.open or plan.serial or plan.errors or plan.split_rows or not loop.x:
        return None
    if blocked_axis(plan) or shared_axis(plan) or columns_at_once(plan) > 1:
        return None
    order, step = as_expr(0), 1  # the number of a point in row-major order
    for axis in reversed(plan.axes):
        order = order + Var(axis.var) * step
        step *= plan.sizes[axis.var]
    reads = [i for i in loop.body if isinstance(i, Load) and i.buffer == mask]
    written = {i.buffer for i in loop.body if isinstance(i, Store)}
    if not reads or mask in written or any(i.index != order or i.mask is not None for i in reads):
        return None
    first = loop.x[0].var
    rows = plan.sizes[first]
    length = prod(plan.sizes.values()) // max(rows, 1)
    unit = plan.width if plan.vector == first else 1
    piece = -(-max(1, AT_ONCE // max(length, 1)) // unit) * unit
    if not rows or piece * length > MOST:
        return None
    beside = dict.fromkeys(
        i.buffer
        for i in loop.body
        if isinstance(i, Load) and i.index == order and i.buffer not in {mask, *written}
    )
    return RandomFusion(mask, rows, length, piece, tuple(beside))


def entry(
    number: int, how: RandomFusion, buffers: Sequence[str], kinds: Sequence[str], threads: int
) -> str:
    """The function that Python calls: after what `with_generator` is given come the limit of the
    draws and an address for each of `buffers`, that of the draws null where nobody keeps them."""
    first = 4
    count = first + len(buffers)
    place = buffers.index(how.mask)
    lines = [
        f"static PyObject* behind{number}(PyObject*, PyObject* const* arg, long count) {{",
        f"  if (count != {count}) return PyErr_Format(PyExc_TypeError, "
        f'"this kernel takes {count} arguments, not %ld", count);',
        "  const unsigned long limit = (unsigned long)PyLong_AsVoidPtr(arg[3]);",
    ]
    for k, kind in enumerate(kinds):
        lines.append(f"  const auto a{k} = ({kind})PyLong_AsVoidPtr(arg[{first + k}]);")
    given = ", ".join("mask" if k == place else f"a{k}" for k in range(len(buffers)))
    asked = " ".join(f"__builtin_prefetch(a{buffers.index(name)} + k);" for name in how.beside)
    lines += [
        "  if (PyErr_Occurred()) return nullptr;",
        "  return with_generator(arg, [&](Mersenne& generator) {",
        f"    rows_after_draws<{how.piece}, {how.length}>(",
        f"        generator, (unsigned char*)a{place}, {how.rows}, limit, {threads},",
        f"        [=](const b8* mask, long b, long e) {{ rows{number}({given}, b, e); }},",
        f"        [=]([[maybe_unused]] long k) {{ {asked} }});",
        "  });",
        "}",
    ]
    return "\n".join(lines) + "\n"


# around kernels longer than this other Python threads may run
RELEASE_WORK = 1 << 20


@dataclass(frozen=True, slots=True)
class CppKernel:
    """`body` is the text from the parameter list on; `buffers` bind the parameters in order, and
    `sizes` are the open sizes that come after them. `rows`: the text of another function, which
    does the rows from `row_b` to `row_e`, its last parameters, and which `body` calls `ROWS`;
    `draws`: those that it may run after, by `team` threads at most. `must`: the parameters
    that are read or written at each point, which there are if `somewhere`, a condition in C++,
    holds ("": there always are)."""

    body: str
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    errors: bool
    releases: bool
    width: int
    rows: str = ""
    draws: RandomFusion | None = None
    team: int = 1
    must: tuple[int, ...] = ()
    somewhere: str = ""


def emit_kernel(
    plan: LoopPlan,
    dtype_of: Callable[[str], torch.dtype],
    threads: int | None = None,
    draws: str | None = None,
) -> CppKernel:
    """Print the kernel. `dtype_of` gives a buffer's element type; `draws` is a buffer of draws,
    after which its rows are to run if they can."""
    text = SourceLines()
    values = KernelVariables(plan, text, dtype_of)
    how = fuse_with_draws(plan, draws) if draws is not None else None
    body = Nest(values, threads, by_rows=how is not None)
    with text.block(""):
        if plan.errors:
            text("int error = 0, outside = 0;")
        body.emit()
        if plan.errors:
            text("*flag |= error | outside << 1;")
    rows = ""
    if how is not None:
        rows, text = str(text), SourceLines()
        with text.block(""):
            _all_rows(text, how, body, len(values.buffers))
    parameters = tuple(
        f"{'' if name in values.stored else 'const '}{spelling_of(dtype_of(name)).memory}*"
        for name in values.buffers
    )
    return CppKernel(
        str(text),
        parameters,
        tuple(values.buffers),
        plan.symbols,
        plan.errors,
        plan.open or plan.cost >= RELEASE_WORK,
        plan.width,
        rows,
        how,
        body.team if body.parallel else 1,
        *_accessed(plan, values),
    )


def _accessed(plan: LoopPlan, values: KernelVariables) -> tuple[tuple[int, ...], str]:
    """`must` and `somewhere` of a kernel."""
    accesses = (i for i in plan.loop.body if isinstance(i, Load | Store))
    sure = {i.buffer for i in accesses if isinstance(i, Store) or i.mask is None}
    exact = {a.var: plan.exact(a.var) for a in plan.axes}
    if 0 in exact.values():
        return (), ""
    opened = [f"{plan.bound(var)} > 0" for var, size in exact.items() if size is None]
    return tuple(k for k, b in enumerate(values.buffers) if b in sure), " && ".join(opened)


def _all_rows(text: SourceLines, how: RandomFusion, body: Nest, buffers: int) -> None:
    """Call the function of some rows for all of them, by pieces."""
    given = ", ".join(f"p{k}" for k in range(buffers))
    if body.parallel:
        text(f"#pragma omp parallel {body.threads}")
    with text.block(""):
        if body.parallel:
            text("#pragma omp for schedule(static) nowait")
        with text.block(f"for (long b = 0; b < {how.rows}; b += {how.piece})"):
            end = f"b + {how.piece}"
            text(f"ROWS({given}, b, {end} < {how.rows} ? {end} : {how.rows});")
        text("fence();")


@dataclass(frozen=True, slots=True)
class UnitEntry:
    """Call entry number `number` with addresses in `buffers`, then the open `sizes`.

    `offsets`: bytes from the start of each buffer to its address. `after_draws`: the number of the
    entry that also draws what the loop reads.
    """

    number: int
    buffers: tuple[str, ...]
    offsets: tuple[int, ...]
    sizes: tuple[str, ...] = ()
    after_draws: int | None = None


@dataclass(frozen=True, slots=True)
class TranslationUnit:
    """`entries` by loop name; `kernels` is how many different ones the text holds.

    `draws`: it has the entry of `flambeau/mersenne.h` after them; `after_draws`: how many kernels
    have another entry, after that, that runs them after draws.
    """

    text: str
    entries: dict[str, UnitEntry]
    kernels: int
    draws: bool = False
    after_draws: int = 0

    @property
    def functions(self) -> int:
        """How many functions the library has."""
        return self.kernels + self.draws + self.after_draws


def generate(
    loops: Sequence[Loop],
    dtype_of: Callable[[str], torch.dtype],
    vector_bytes: int,
    threads: int | None = None,
    draws: bool = False,
    forms: Mapping[str, Form] | None = None,
    drawn: Mapping[str, str] | None = None,
) -> TranslationUnit:
    """Write the unit for vectors of `vector_bytes` (64: AVX-512, 32: AVX2, 16: anything).

    `forms`: by the names of loops whose kernels are not to be as the rules say. `drawn`: buffers of
    draws, by the names of loops that are to run after them where they can; `draws` is set.
    """
    written: dict[object, tuple[int, CppKernel]] = {}
    numbers: dict[CppKernel, int] = {}
    entries: dict[str, UnitEntry] = {}
    widths: set[int] = set()
    bodies: list[str] = []
    running: dict[int, CppKernel] = {}
    for loop in loops:
        shape, names = anonymous(loop)
        shape, starts = from_starts(shape)
        dtypes: Mapping[str, torch.dtype] = {s: dtype_of(name) for s, name in names.items()}
        shape, dtypes = moved_as_bits(larger_or_smaller(exact_in_half(shape)), dtypes)
        form = (forms or {}).get(loop.name, RULES)
        mask = (drawn or {}).get(loop.name)
        mask = next((short for short, name in names.items() if name == mask), None)
        key = (shape.x, shape.r, shape.body, tuple(dtypes.values()), form, mask)
        if key not in written:
            planned = plan(prepared(shape), vector_bytes, form)
            kernel = emit_kernel(planned, dtypes.__getitem__, threads, mask)
            number = numbers.setdefault(replace(kernel, buffers=()), len(numbers))
            if number == len(bodies):
                bodies.append(_kernel(number, kernel, loop))
                if kernel.width > 1:
                    widths.add(kernel.width)
            written[key] = number, kernel
        number, kernel = written[key]
        buffers = tuple(names[short] for short in kernel.buffers)
        offsets = tuple(starts.get(b, 0) * dtypes[b].itemsize for b in kernel.buffers)
        entries[loop.name] = UnitEntry(number, buffers, offsets, kernel.sizes)
        if kernel.draws is not None:
            running.setdefault(number, kernel)
    order = sorted(widths)
    includes = "".join(f"#define FL_W {w}\n" for w in order[:1])
    includes += f'#include "{HEADER}"\n'
    includes += "".join(f'#define FL_W {w}\n#include "flambeau/lanes.h"\n' for w in order[1:])
    if draws:
        includes += '#include "flambeau/mersenne.h"\n'
    called = {i.op for loop in loops for i in loop.body if isinstance(i, Point) and module_of(i.op)}
    if called:
        includes += f'#include "flambeau/each.h"\n{definitions(called)}'
    if often := sorted(set(CALLED.findall("".join(bodies)))):
        includes += f"namespace fl {{ {' '.join(f'FL_CALLED({f})' for f in often)} }}\n"
    head = f"{includes}\nusing namespace fl;\n\n"
    calls = [f"call{k}" for k in range(len(bodies))] + ["draw_below"] * draws
    fused = {number: len(calls) + k for k, number in enumerate(running)}
    calls += [f"behind{number}" for number in running]
    entries = {n: replace(e, after_draws=fused.get(e.number)) for n, e in entries.items()}
    bodies += [
        entry(number, k.draws, k.buffers, k.parameters, k.team)
        for number, k in running.items()
        if k.draws is not None
    ]
    text = head + "\n".join(bodies) + _table(calls)
    return TranslationUnit(text, entries, len(numbers), draws, len(running))


def prepared(loop: Loop) -> Loop:
    """The loop as it is planned."""
    return narrow_indices(one_hot(two_pass_variance(choose_constants(loop))))


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


def _kernel(number: int, kernel: CppKernel, loop: Loop) -> str:
    parameters = [f"{kind} p{k}" for k, kind in enumerate(kernel.parameters)]
    parameters += [f"const long {size}" for size in kernel.sizes]
    parameters += ["int* flag"] * kernel.errors
    kinds = [*kernel.parameters, *["long"] * len(kernel.sizes)]
    given = [*(f"a{k}" for k in range(len(kinds))), *["&flag"] * kernel.errors]
    failed = 'PyErr_SetString(PyExc_RuntimeError, "ZeroDivisionError"); return nullptr;'
    message = f'"this kernel takes {len(kinds)} addresses and sizes"'
    wrong = f"PyErr_SetString(PyExc_TypeError, {message}); return nullptr;"
    lines = [
        f"static PyObject* call{number}(PyObject*, PyObject* const* arg, long count) {{",
        f"  if (count != {len(kinds)}) {{ {wrong} }}",
        *(
            f"  const auto a{k} = ({kind})PyLong_AsVoidPtr(arg[{k}]);"
            for k, kind in enumerate(kinds)
        ),
        "  if (PyErr_Occurred()) return nullptr;",
        *([_memory_check(kernel)] if kernel.must else ()),
        *["  int flag = 0;"] * kernel.errors,
        *["  void* state = PyEval_SaveThread();"] * kernel.releases,
        f"  kernel{number}({', '.join(given)});",
        *["  PyEval_RestoreThread(state);"] * kernel.releases,
        *[f"  if (flag & 1) {{ {failed} }}"] * kernel.errors,
        f"  return PyLong_FromLong({'flag >> 1' if kernel.errors else '0'});",
        "}",
    ]
    rows, body = "", kernel.body
    if kernel.rows:
        some = [*parameters, "const long row_b", "const long row_e"]
        rows = f"static void rows{number}({', '.join(some)})\n{kernel.rows}"
        body = body.replace("ROWS(", f"rows{number}(")
    head = f"// {' '.join(dict.fromkeys(loop.origins))}\n{rows}static void kernel{number}"
    return f"{head}({', '.join(parameters)})\n{body}" + "\n".join(lines) + "\n"


def _memory_check(kernel: CppKernel) -> str:
    """What is read or written is memory: a tensor may have elements and no storage."""
    missing = " | ".join(f"nowhere(a{k})" for k in kernel.must)
    sizes = "".join(
        f"const long {name} = a{len(kernel.parameters) + k}; "
        for k, name in enumerate(kernel.sizes)
    )
    if not kernel.somewhere:
        return f"  if (__builtin_expect({missing}, 0)) return without_memory();"
    asked = f"{sizes}if ({kernel.somewhere}) return without_memory();"
    return f"  if (__builtin_expect({missing}, 0)) {{ {asked} }}"


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
