"""Two runs of a program: each isolated, and compared within what floating point allows.

In: a callable, arguments, the modules whose state it may change. Out: `Observed`: results,
gradients, what was written to the arguments; of two of them nothing, or the first difference.
Invariant: the caller's tensors, modules and random state are afterwards as they were before. A
compiled value may be as far from the value in double precision as twice the value as it is (three
times in half precision), and a little more; structure, dtypes, shapes, and where there is no
number, must be equal.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from flambeau._torch_compat import pytree

#: relative tolerance by dtype, for what has no value in double precision to compare with
TOLERANCE = {
    torch.float16: 1e-2,
    torch.bfloat16: 3e-2,
    torch.float32: 1e-4,
    torch.float64: 1e-9,
    torch.complex64: 1e-4,
    torch.complex128: 1e-9,
}
HALF = (torch.float16, torch.bfloat16)
#: values smaller than this may be what is left of larger ones that cancel: their own size says
#: nothing of the error that rounding makes
FLOOR = 0.1


@dataclass(frozen=True)
class Observed:
    """Values by name (`output 0`, `gradient of input 1`), or the exception that ended the run."""

    values: tuple[tuple[str, Any], ...] = ()
    error: BaseException | None = None


@dataclass(frozen=True)
class Difference:
    """Where two runs differ. error, allowed: root mean squares, where numbers are compared."""

    place: str
    expected: str
    got: str
    error: float | None = None
    allowed: float | None = None

    def __str__(self) -> str:
        text = f"{self.place}: expected {self.expected}, got {self.got}"
        if self.error is not None:
            text += f" (off by {self.error:.3g}, allowed {self.allowed:.3g})"
        return text


def named(kind: str, value: Any) -> list[tuple[str, Any]]:
    """The leaves of a value, each with a name."""
    leaves = pytree.tree_leaves(value)
    return [
        (f"{kind} {place}" if len(leaves) > 1 else kind, leaf) for place, leaf in enumerate(leaves)
    ]


def difference(
    expected: Observed, got: Observed, exact: Observed | None = None
) -> Difference | None:
    """The first difference of a run from the run as it is; None where there is none."""
    if expected.error is not None or got.error is not None:
        same = type(expected.error) is type(got.error)
        return None if same else Difference("outcome", _outcome(expected), _outcome(got))
    if len(expected.values) != len(got.values):
        return Difference("results", str(len(expected.values)), str(len(got.values)))
    usable = exact is not None and exact.error is None and len(exact.values) == len(got.values)
    truths: Sequence[Any] = [None] * len(got.values)
    if usable and exact is not None:
        truths = [value for _, value in exact.values]
    for (place, want), (_, have), truth in zip(expected.values, got.values, truths):
        found = _of_values(place, want, have, truth)
        if found is not None:
            return found
    return None


def _outcome(of: Observed) -> str:
    return "a result" if of.error is None else f"{type(of.error).__name__}: {str(of.error)[:300]}"


def _of_values(place: str, want: Any, have: Any, truth: Any) -> Difference | None:
    if not isinstance(want, torch.Tensor) or not isinstance(have, torch.Tensor):
        same = type(want) is type(have) and (want is have or bool(want == have))
        return None if same else Difference(place, repr(want)[:100], repr(have)[:100])
    if (want.dtype, want.shape) != (have.dtype, have.shape):
        return Difference(place, _shown(want), _shown(have))
    if want.numel() == 0 or want.layout is not torch.strided:
        return None
    if want.dtype not in TOLERANCE:
        if torch.equal(want, have):
            return None
        count = int((want != have).sum())
        return Difference(place, _shown(want), f"{count} other elements")
    return _of_numbers(place, want, have, truth)


def _of_numbers(
    place: str, want: torch.Tensor, have: torch.Tensor, truth: Any
) -> Difference | None:
    wide = torch.complex128 if want.dtype.is_complex else torch.float64
    tolerance, factor = TOLERANCE[want.dtype], 3.0 if want.dtype in HALF else 2.0
    want, have = want.detach().to(wide), have.detach().to(wide)
    odd = ~torch.isfinite(want) | ~torch.isfinite(have)
    if bool(odd.any()):
        same = (want == have) | (torch.isnan(want) & torch.isnan(have))
        wrong = odd & ~same
        if bool(wrong.any()):
            at = int(wrong.flatten().nonzero()[0])
            first, second = (str(each.flatten()[at].item()) for each in (want, have))
            return Difference(f"{place} (element {at})", first, second)
    finite = ~odd
    want, have = want[finite], have[finite]
    scale = _rms(want)
    fits = isinstance(truth, torch.Tensor) and truth.shape == odd.shape
    if fits and truth.dtype in (torch.float64, torch.complex128):
        truth = truth.detach().to(wide)[finite]
        if bool(torch.isfinite(truth).all()):
            allowed = factor * _rms(want - truth) + tolerance / 10 * max(scale, FLOOR)
            error = _rms(have - truth)
            return _judged(place, want, have, error, allowed)
    return _judged(place, want, have, _rms(have - want), tolerance * max(scale, FLOOR))


def _judged(
    place: str, want: torch.Tensor, have: torch.Tensor, error: float, allowed: float
) -> Difference | None:
    if error <= allowed:
        return None
    at = int((want - have).abs().flatten().argmax())
    return Difference(
        f"{place} (element {at})",
        f"{want.flatten()[at].item():.6g}",
        f"{have.flatten()[at].item():.6g}",
        error,
        allowed,
    )


def _rms(values: torch.Tensor) -> float:
    return float(values.abs().square().mean().sqrt()) if values.numel() else 0.0


def _shown(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def first_bad(count: int, is_bad: Callable[[int], bool]) -> int | None:
    """The smallest n in 1..count with `is_bad(n)`, by halving; None where `count` steps are fine.

    No number is tried twice. Where steps interact (bad, then good again), it is one of the places
    where good turns bad.
    """
    if count < 1 or not is_bad(count):
        return None
    good, bad = 0, count
    while bad - good > 1:
        middle = (good + bad) // 2
        if is_bad(middle):
            bad = middle
        else:
            good = middle
    return bad


SEED = 20221202


def observe(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    modules: Sequence[torch.nn.Module] = (),
    *,
    backward: bool = True,
    seed: int = SEED,
) -> Observed:
    """Run once on copies of the arguments.

    backward: results that require grad are differentiated, with cotangents that are the same in
    every run, and the gradients of arguments and parameters are observed too. seed: of torch's
    random numbers.
    """
    given, named_given = copied((tuple(args), dict(kwargs or {})))
    leaves = [leaf for leaf in pytree.tree_leaves((given, named_given)) if _tensor(leaf)]
    devices = sorted({leaf.device.index or 0 for leaf in leaves if leaf.is_cuda})
    with kept_state(modules), torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        try:
            result = fn(*given, **named_given)
            values = [(name, _state_of(value)) for name, value in named("output", result)]
            values += [
                (n, _state_of(v)) for n, v in named("argument", (given, named_given)) if _tensor(v)
            ]
            if backward and torch.is_grad_enabled():
                values += _gradients(result, leaves, modules)
            for module in modules:
                values += [(f"buffer {n}", _state_of(b)) for n, b in module.named_buffers()]
        except Exception as error:  # the program's own, or the compiler's: it is what is observed
            return Observed(error=error)
    return Observed(tuple(values))


def draws(
    fn: Callable[..., Any], args: Sequence[Any], modules: Sequence[torch.nn.Module] = ()
) -> bool:
    """Whether a program's results depend on torch's random numbers."""
    one, other = (observe(fn, args, None, modules, backward=False, seed=seed) for seed in (1, 2))
    return difference(one, other) is not None


def in_double(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    modules: Sequence[torch.nn.Module] = (),
) -> Observed | None:
    """The same in double precision; None where the program does not run that way."""
    given, named_given = pytree.tree_map(_doubled, (tuple(args), dict(kwargs or {})))
    try:
        if isinstance(fn, torch.nn.Module):
            fn = copy.deepcopy(fn).double()
            found = observe(fn, given, named_given, [fn] if modules else [])
        elif modules and any(True for module in modules for _ in module.parameters()):
            return None  # a function that reaches modules by itself has them in single precision
        else:
            found = observe(fn, given, named_given)
    except Exception:  # it cannot be copied, or has no form in double precision
        return None
    return None if found.error is not None else found


def copied(value: Any) -> Any:
    """Copies of the tensors in a tree of arguments; those that share memory go on sharing it."""
    storages: dict[int, torch.Tensor] = {}
    made: dict[int, torch.Tensor] = {}

    def copy_of(leaf: Any) -> Any:
        if not _tensor(leaf):
            return leaf
        if id(leaf) not in made:
            made[id(leaf)] = _copy(leaf, storages)
        return made[id(leaf)]

    return pytree.tree_map(copy_of, value)


def _copy(leaf: torch.Tensor, storages: dict[int, torch.Tensor]) -> torch.Tensor:
    known = type(leaf) in (torch.Tensor, torch.nn.Parameter) and leaf.layout is torch.strided
    if not known or leaf.is_conj() or leaf.is_neg():
        copy_ = leaf.detach().clone()
    else:
        storage = leaf.untyped_storage()
        key = storage.data_ptr() or id(leaf)
        if key not in storages:
            flat = torch.empty(0, dtype=torch.uint8, device=leaf.device)
            storages[key] = flat.set_(storage.clone())  # type: ignore[call-overload]
        base = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
        where = storages[key].untyped_storage(), leaf.storage_offset(), leaf.shape, leaf.stride()
        copy_ = base.set_(*where)  # type: ignore[call-overload]
    return copy_.requires_grad_(leaf.requires_grad)


@contextmanager
def kept_state(modules: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Parameters, buffers and gradients of modules are put back at the end."""
    tensors = [t for m in modules for t in (*m.parameters(), *m.buffers())]
    values = [t.detach().clone() for t in tensors]
    grads = [t.grad for t in tensors]
    for tensor in tensors:
        tensor.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value, grad in zip(tensors, values, grads):
                if not torch.equal(tensor, value):
                    tensor.copy_(value)
                tensor.grad = grad


def modules_of(fn: Any) -> list[torch.nn.Module]:
    """The modules that a callable is, belongs to, or closes over."""
    found = [fn, getattr(fn, "__self__", None)]
    for cell in getattr(fn, "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # a variable that has no value yet
            continue
    code, scope = getattr(fn, "__code__", None), getattr(fn, "__globals__", {})
    if code is not None:
        found += [scope.get(name) for name in code.co_names]
    return list({id(m): m for m in found if isinstance(m, torch.nn.Module)}.values())


def _gradients(
    result: Any, leaves: Sequence[torch.Tensor], modules: Sequence[torch.nn.Module]
) -> list[tuple[str, Any]]:
    outputs = [v for v in pytree.tree_leaves(result) if _tensor(v) and v.requires_grad]
    wanted = [(f"gradient of argument {n}", leaf) for n, leaf in enumerate(leaves) if leaf.is_leaf]
    for module in modules:
        wanted += [(f"gradient of {name}", p) for name, p in module.named_parameters()]
    wanted = [(name, tensor) for name, tensor in wanted if tensor.requires_grad]
    if not outputs or not wanted:
        return []
    generator = torch.Generator().manual_seed(SEED)
    cotangents = []
    for output in outputs:
        drawn = torch.randn(output.shape, generator=generator, dtype=torch.float64)
        cotangents.append(drawn.to(output.dtype).to(output.device))
    inputs = [tensor for _, tensor in wanted]
    found = torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)
    return [(name, grad) for (name, _), grad in zip(wanted, found)]


def _state_of(value: Any) -> Any:
    return value.detach().clone() if _tensor(value) else value


def _doubled(value: Any) -> Any:
    if not _tensor(value) or value.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def _tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def copied_graph(gm: fx.GraphModule, where: dict[fx.Node, fx.Node] | None = None) -> fx.GraphModule:
    """A graph module with the same parameters and buffers, and nodes of its own; `where` is given
    the copy of each node."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {} if where is None else where))
    return fx.GraphModule(gm, graph, class_name=type(gm).__name__)


def compared(
    gm: fx.GraphModule, compiled: Callable[..., Any], inputs: Sequence[Any], backward: bool = True
) -> Difference | None:
    """The first difference between a compiled graph and the graph run by torch."""
    expected = observe(gm, inputs, modules=[gm], backward=backward)
    got = observe(compiled, inputs, modules=[gm], backward=backward)
    exact = in_double(gm, inputs, modules=[gm]) if backward else None
    return difference(expected, got, exact)
