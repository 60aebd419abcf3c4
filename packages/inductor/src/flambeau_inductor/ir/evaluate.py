"""Reference evaluator of the loop IR and of programs.

In: a `Loop` with the memory of its buffers, or a `Program` with its inputs. Out: the stores are
done; the outputs. Invariant: nothing is shared with code generation, so that each can
check the other. New memory is poisoned before anything writes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from flambeau_prims import PRIMS

from flambeau_inductor._torch_compat import out_names, overload_of
from flambeau_inductor.indexing import Expr, rebuilt
from flambeau_inductor.ir import loops as ir
from flambeau_inductor.ir.loops import Loop, Scalar, spans
from flambeau_inductor.ir.program import (
    Alloc,
    Argument,
    CheckIndex,
    Extern,
    FreeBuffer,
    Layout,
    Program,
    Ref,
    Reuse,
    RunLoop,
)
from flambeau_inductor.runtime.operators import OWN

Tensor = torch.Tensor
Memory = Mapping[str, Tensor]
"""Flat tensors: all the storage from each buffer's first element on."""


def run_loop(loop: Loop, memory: Memory) -> None:
    """Run every point of `loop` at once, or of each of its boxes, with one tensor dimension per
    axis."""
    inner = tuple(range(_static(axis.size)) for axis in loop.r)
    for outer in spans(loop):
        _run_box(loop, memory, (*outer, *inner))


def _run_box(loop: Loop, memory: Memory, box: Sequence[range]) -> None:
    axes = (*loop.x, *loop.r)
    env: dict[str, Tensor] = {}
    for position, (axis, values) in enumerate(zip(axes, box, strict=True)):
        shape = [1] * len(axes)
        shape[position] = len(values)
        env[axis.var] = torch.arange(values.start, values.stop).reshape(shape)
    state = _EvaluationState(memory, env, [len(values) for values in box], len(loop.x))
    for position, instr in enumerate(loop.body):
        value = _RUN[type(instr)](state, instr)
        state.values.append(value)
        if isinstance(value, Tensor) and value.dtype == torch.int64:
            state.env[f"%{position}"] = value


class _EvaluationState:
    def __init__(self, memory: Memory, env: dict[str, Tensor], sizes: list[int], rows: int) -> None:
        self.memory, self.env, self.sizes, self.rows = memory, env, sizes, rows
        self.values: list[Any] = []

    def index(self, expr: Expr) -> Tensor:
        return rebuilt(expr, lambda var: self.env[var.name], torch.tensor)

    def whole(self, value: Tensor) -> Tensor:
        return value.expand(self.sizes)


def _static(size: int | Expr) -> int:
    if not isinstance(size, int):
        raise TypeError(f"symbolic size {size}")
    return size


def _load(s: _EvaluationState, i: ir.Load) -> Tensor:
    memory = s.memory[i.buffer]
    if memory.dtype != i.dtype:
        raise TypeError(f"load of {i.dtype} from {i.buffer}, which holds {memory.dtype}")
    index = s.index(i.index)
    if i.mask is None:
        return memory.take(_inside(i.buffer, index, memory))  # never a view of what is there
    index, mask = torch.broadcast_tensors(index, s.values[i.mask])
    inside = _inside(i.buffer, torch.where(mask, index, 0), memory) if mask.any() else index * 0
    other = torch.tensor(i.other, dtype=i.dtype).expand(mask.shape)
    return torch.where(mask, memory.take(inside), other) if memory.numel() else other


def _inside(name: str, index: Tensor, memory: Tensor) -> Tensor:
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= memory.numel()):
        raise IndexError(f"{name}: {int(index.min())}..{int(index.max())} of {memory.numel()}")
    return index


def _point(s: _EvaluationState, i: ir.Point) -> Tensor:
    args = [s.values[a] for a in i.args]
    if i.op in ir.RANDOM:
        return _random(i.op, args[0], args[1], i.dtype)
    if i.op == "cast":
        return torch.Tensor.to(args[0], i.dtype)
    result: Tensor = (PARTS.get(i.op) or PRIMS[i.op].eager)(*args)
    if result.dtype != i.dtype:
        raise TypeError(f"{i.op} of {[a.dtype for a in args]} is {result.dtype}, not {i.dtype}")
    return result


def _random(op: str, seed: Tensor, position: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers at the positions, of all that the primitive defines up to the last."""
    count = int(position.max()) + 1 if position.numel() else 0
    define = getattr(torch.ops.flambeau_prims, op).default
    numbers = define([count], seed.reshape(()), 0, dtype=dtype, device=torch.device("cpu"))
    return numbers[position]  # type: ignore[no-any-return]


def _reduce(s: _EvaluationState, i: ir.Reduce) -> Any:
    value = s.whole(s.values[i.arg])
    rows = value.shape[: s.rows]
    flat = value.reshape(*rows, -1)
    reduced = REDUCE[i.kind](flat)
    ones = [1] * (len(s.sizes) - s.rows)
    if isinstance(reduced, tuple):
        return tuple(part.reshape(*rows, *ones).to(i.dtype) for part in reduced)
    return reduced.reshape(*rows, *ones).to(i.dtype)


def _scan(s: _EvaluationState, i: ir.Scan) -> Tensor:
    value = s.whole(s.values[i.arg])
    flat = value.reshape(*value.shape[: s.rows], -1)
    return SCAN[i.kind](flat).to(i.dtype).reshape(value.shape)


def _store(s: _EvaluationState, i: ir.Store) -> None:
    memory, value, index = s.memory[i.buffer], s.values[i.value], s.index(i.index)
    if memory.dtype != value.dtype:
        raise TypeError(f"store of {value.dtype} to {i.buffer}, which holds {memory.dtype}")
    if i.mode == "total":
        value = s.whole(value).sum(s.rows - 1, keepdim=True)
        memory[_inside(i.buffer, index.expand(value.shape), memory)] = value
        return
    along = any(var.startswith("r") for var in i.index.vars)
    row = not along and all(n == 1 for n in value.shape[s.rows :])
    sizes = [n if p < s.rows or not row else 1 for p, n in enumerate(s.sizes)]
    index = _inside(i.buffer, index.expand(sizes), memory)
    if i.mode == "add":
        memory.index_put_((index,), value.expand(sizes).contiguous(), accumulate=True)
    elif i.mode in COMBINED:
        values = value.expand(sizes).reshape(-1)
        memory.scatter_reduce_(0, index.reshape(-1), values, COMBINED[i.mode])
    else:
        if not i.scattered and index.unique().numel() != index.numel():
            raise ValueError(f"{i.buffer}: several points store to one element")
        memory[index] = value.expand(sizes)


def _check_points(s: _EvaluationState, i: ir.Check) -> None:
    if not bool(s.values[i.arg].all()):
        raise IndexError(i.message)


COMBINED = {"mul": "prod", "max": "amax", "min": "amin"}
"""Modes of a store, as torch calls them."""


_RUN: Mapping[type, Callable[[_EvaluationState, Any], Any]] = {
    ir.Load: _load,
    ir.Const: lambda s, i: torch.tensor(i.value, dtype=i.dtype),
    ir.IndexValue: lambda s, i: s.index(i.index).to(i.dtype),
    ir.Point: _point,
    ir.Reduce: _reduce,
    ir.Scan: _scan,
    ir.ReducePart: lambda s, i: s.values[i.arg][i.position],
    ir.Store: _store,
    ir.Check: _check_points,
}


def _welford(flat: Tensor) -> tuple[Tensor, Tensor]:
    mean = flat.mean(-1, keepdim=True)
    return mean.squeeze(-1), (flat - mean).square().sum(-1)


SCAN: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda f: f.cumsum(-1, dtype=f.dtype),
    "prod": lambda f: f.cumprod(-1, dtype=f.dtype),
    "logsumexp": lambda f: f.logcumsumexp(-1),
}


REDUCE: Mapping[str, Callable[[Tensor], Any]] = {
    "sum": lambda f: f.sum(-1, dtype=f.dtype),
    "prod": lambda f: f.prod(-1, dtype=f.dtype),
    "max": lambda f: f.amax(-1),
    "min": lambda f: f.amin(-1),
    "any": lambda f: f.any(-1),
    "all": lambda f: f.all(-1),
    "argmax": lambda f: f.argmax(-1),
    "argmin": lambda f: f.argmin(-1),
    "welford": _welford,
}


PARTS: Mapping[str, Callable[..., Tensor]] = {
    "frexp_mantissa": lambda a: torch.frexp(a).mantissa,
    "frexp_exponent": lambda a: torch.frexp(a).exponent,
    "trigamma": lambda a: torch.polygamma(1, a),
}
"""Pointwise operations that are a part of a primitive; any other is a primitive's name."""


def run_program(program: Program, inputs: Sequence[Tensor]) -> list[Tensor | Scalar | None]:
    """Run `program` on CPU tensors."""
    tensors: dict[str, Tensor] = {}
    layouts = {b.name: b.layout for b in program.buffers}
    for buffer, tensor in zip(program.inputs, inputs, strict=True):
        tensors[buffer.name] = tensor
    tensors.update(program.constants)
    for step in program.steps:
        if isinstance(step, Alloc):
            tensors[step.buffer] = poisoned(layouts[step.buffer])
        elif isinstance(step, Reuse):
            old = tensors.pop(step.old)
            layout = layouts[step.buffer]
            shape, stride, _ = layout.static()
            tensors[step.buffer] = flat(old).view(layout.dtype).as_strided(shape, stride)
            tensors[step.old] = old
        elif isinstance(step, FreeBuffer):
            del tensors[step.buffer]
        elif isinstance(step, RunLoop):
            names = {i.buffer for i in step.loop.body if isinstance(i, ir.Load | ir.Store)}
            run_loop(step.loop, {n: flat(tensors[n]) for n in names})
        elif isinstance(step, CheckIndex):
            _check(step, tensors)
        else:
            _extern(step, tensors, layouts)
    return [seen(tensors, o) if isinstance(o, Ref) else o for o in program.outputs]


def poisoned(layout: Layout) -> Tensor:
    """New memory full of NaN, or of a number that should show."""
    shape, stride, _ = layout.static()
    tensor = torch.empty_strided(shape, stride, dtype=layout.dtype)
    fill = float("nan") if layout.dtype.is_floating_point else 113
    flat(tensor).fill_(True if layout.dtype == torch.bool else fill)
    return tensor


def flat(tensor: Tensor) -> Tensor:
    """All elements of the storage from the tensor's first on, as far as the tensor reaches."""
    if tensor.numel() == 0:
        return tensor.reshape(-1)
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((reach,), (1,))


def seen(tensors: Mapping[str, Tensor], ref: Ref) -> Tensor:
    """A buffer through a reference's layout."""
    tensor = tensors[ref.buffer]
    if ref.layout is None:
        return tensor
    shape, stride, offset = ref.layout.static()
    return tensor.as_strided(shape, stride, tensor.storage_offset() + offset)


def _check(step: CheckIndex, tensors: Mapping[str, Tensor]) -> None:
    index = seen(tensors, step.ref)
    if not isinstance(step.size, int):
        raise TypeError(f"the open size {step.size} where numbers are needed")
    bad = (index < (-step.size if step.wrap else 0)) | (index >= step.size)
    if bool(bad.any()):
        offender = int(index[bad][0])
        error = {"IndexError": IndexError, "RuntimeError": RuntimeError}[step.error]
        text = step.message.replace("{index}", str(offender))
        raise error(text.replace("{size}", str(step.size)))


def _extern(step: Extern, tensors: dict[str, Tensor], layouts: Mapping[str, Layout]) -> None:
    op: Any = OWN[step.target] if step.target in OWN else overload_of(step.target)
    args = [_argument(a, tensors) for a in step.args]
    kwargs = {k: _argument(v, tensors) for k, v in step.kwargs}
    if step.into:
        names = out_names(op)
        op(*args, **kwargs, **dict(zip(names, (seen(tensors, r) for r in step.into), strict=True)))
        return
    result = op(*args, **kwargs)
    results = list(result) if isinstance(result, tuple | list) else [result]
    for buffer, value in zip(step.results, results, strict=False):
        if buffer is not None:
            tensors[buffer] = _in_layout(value, layouts[buffer])


def _in_layout(value: Tensor, layout: Layout) -> Tensor:
    shape, stride, _ = layout.static()
    if value.stride() == stride:
        return value
    copy = torch.empty_strided(shape, stride, dtype=layout.dtype)
    return copy.copy_(value)


def _argument(argument: Argument, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(argument, Ref):
        return seen(tensors, argument)
    if isinstance(argument, tuple):
        return [_argument(a, tensors) for a in argument]
    return argument
