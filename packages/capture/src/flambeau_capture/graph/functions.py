"""Functions that graphs call besides torch's: transforms, branches, loops.

In: bodies captured as graphs of their own, and tensors. Out: what torch makes of them. Invariant:
they are plain torch code, so that whoever traces a graph sees the operators inside; what cannot be
traced says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import checkpoint as _checkpoint

from flambeau_capture import _torch_compat as compat
from flambeau_capture._native import disabled


class Body(fx.GraphModule):
    """A captured graph. It is no module of the program: hooks on all modules do not run for it."""

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)


def vmap_call(
    body: Body,
    in_dims: tuple[Any, ...],
    out_dims: Any,
    randomness: str,
    chunk_size: int | None,
    *args: Any,
) -> Any:
    """`torch.vmap(body, in_dims, out_dims, randomness, chunk_size=chunk_size)(*args)`."""
    return torch.vmap(body, in_dims, out_dims, randomness, chunk_size=chunk_size)(*args)


TRANSFORMS: dict[str, Callable[..., Any]] = {
    name: getattr(torch.func, name)
    for name in ("grad", "grad_and_value", "jacrev", "jacfwd", "hessian", "functionalize")
}


def transform_call(
    kind: str,
    body: Body,
    shape: Any,
    options: Sequence[tuple[str, Any]],
    count: int,
    *tensors: Tensor,
) -> Any:
    """`torch.func.<kind>(f, **options)(*args)`, where f is the body on the tensors of its
    arguments. shape: the arguments' structure; the first `count` tensors fill it."""
    function, arguments = _applied(body, shape, count, tensors)
    return TRANSFORMS[kind](function, **dict(options))(*arguments)


def jvp_call(body: Body, shape: Any, has_aux: bool, count: int, *tensors: Tensor) -> Any:
    """`torch.func.jvp(f, primals, tangents)`: the shape is that of the pair of arguments."""
    function, (primals, tangents) = _applied(body, shape, count, tensors)
    return torch.func.jvp(function, primals, tangents, has_aux=has_aux)


def vjp_call(body: Body, shape: Any, has_aux: bool, count: int, *tensors: Tensor) -> Any:
    """`torch.func.vjp(f, *primals, has_aux=has_aux)`."""
    function, primals = _applied(body, shape, count, tensors)
    return torch.func.vjp(function, *primals, has_aux=has_aux)


def linear_call(body: Body, shape: Any, _: None, count: int, *tensors: Tensor) -> Any:
    """`torch.func.linearize(f, *primals)`: the derivative is computed for every tangent anew."""
    function, primals = _applied(body, shape, count, tensors)

    def derivative(*tangents: Any) -> Any:
        return torch.func.jvp(function, primals, tangents)[1]

    return function(*primals), derivative


def applied_call(
    function: Callable[..., Any], shape: Any, options: Sequence[tuple[str, Any]], *tensors: Tensor
) -> Any:
    """A derivative that `vjp_call` or `linear_call` has answered, on its arguments."""
    return function(*build(shape, tensors), **dict(options))


def _applied(
    body: Body, shape: Any, count: int, tensors: tuple[Tensor, ...]
) -> tuple[Callable[..., Any], Any]:
    """A body as a function of the program's arguments, and these."""

    def function(*args: Any) -> Any:
        return body(*_leaves(args), *tensors[count:])

    return function, build(shape, tensors[:count])


REENTRANT = "checkpoint with use_reentrant=True"
"""What the history of a tensor says that such a checkpoint has made, to whoever traces the call: a
backward pass through it has to be one that accumulates in all leaves."""


def checkpoint_call(
    body: Body,
    options: Sequence[tuple[str, Any]],
    explicit: tuple[int, ...],
    read: int,
    *tensors: Tensor,
) -> Any:
    """`torch.utils.checkpoint.checkpoint(f, *args)`, where f is the body. explicit: which of the
    tensors the program gives to checkpoint itself, as often as it does; the others it reads from
    outside. read: the body takes the first so many. Whoever traces the call decides what to keep
    for backward and sees the body alone."""
    if compat.foreign_modes():
        result = body(*tensors[:read])
        if dict(options).get("use_reentrant", True):
            compat.mark_history(_leaves(result), REENTRANT)
        return result

    def function(*args: Tensor) -> Any:
        everything = list(tensors)
        for place, arg in zip(explicit, args):
            everything[place] = arg
        # also when it runs again, inside of what is compiled
        return disabled(body)(*everything[:read])

    given = (tensors[place] for place in explicit)
    return _checkpoint.checkpoint(function, *given, **dict(options))


def is_reentrant(node: fx.Node) -> bool:
    """Whether a node is a checkpoint that only a backward pass which accumulates goes through."""
    if node.target is not checkpoint_call:
        return False
    options: Any = node.args[1]
    return bool(dict(options).get("use_reentrant", True))


def cond_call(
    predicate: Tensor, yes: Body, no: Body, places: tuple[tuple[int, ...], ...], *tensors: Tensor
) -> Any:
    """One of two bodies. Whoever traces it sees both and a choice between their results, which is
    the same where nothing is differentiated."""
    chosen, other = (tuple(tensors[place] for place in own) for own in places)
    if not compat.foreign_modes():
        first = bool(predicate)
        result, left_out = (yes(*chosen), other) if first else (no(*other), chosen)
        return _touched(result, list(filter(_needs_grad, left_out)))
    if torch.is_grad_enabled() and any(map(_needs_grad, tensors)):
        sides = (_of_places(tensors, *side) for side in ((yes, places[0]), (no, places[1])))
        own = tuple(each for each in tensors if isinstance(each, Tensor))
        return torch.ops.higher_order.cond(predicate, *sides, own)  # its derivative, too
    return select(predicate, yes(*chosen), no(*other))


def choice_call(
    predicate: Tensor, yes: Body, no: Body, places: tuple[tuple[int, ...], ...], *tensors: Tensor
) -> Any:
    """One of two bodies, of which the other never runs: a branch of the program's. Both have
    derivatives by the same leaves."""
    if not compat.foreign_modes():
        body, own = (yes, places[0]) if bool(predicate) else (no, places[1])
        return body(*(tensors[place] for place in own))
    sides = (_of_places(tensors, *side) for side in ((yes, places[0]), (no, places[1])))
    given = tuple(each for each in tensors if isinstance(each, Tensor))
    return torch.ops.higher_order.cond(predicate, *sides, given)


def body_call(body: Body, *tensors: Tensor) -> tuple[Tensor, ...]:
    """What a body gives, whatever is decided: one tensor, or several."""
    found = body(*tensors)
    return found if isinstance(found, tuple) else (found,)


def _needs_grad(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad  # an open number is none


def _of_places(given: Sequence[Any], body: Body, places: tuple[int, ...]) -> Callable[..., Any]:
    """A body as a function of the tensors among what is given."""
    own = [place for place, value in enumerate(given) if isinstance(value, Tensor)]

    def run(*tensors: Tensor) -> Any:
        values = dict(zip(own, tensors, strict=True))
        return body(*(values.get(place, given[place]) for place in places))

    return run


def _touched(value: Any, tensors: list[Tensor]) -> Any:
    """A result that depends on tensors too, with a derivative of zero, as torch.cond has it."""
    if isinstance(value, Tensor) and tensors and torch.is_grad_enabled():
        return apply_function(_Touched, value, *tensors) if value.is_floating_point() else value
    if isinstance(value, tuple | list):
        return type(value)(_touched(item, tensors) for item in value)
    if isinstance(value, dict):
        return {key: _touched(item, tensors) for key, item in value.items()}
    return value


class _Touched(torch.autograd.Function):
    """Its first argument; zero is the derivative by the others."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, *others: Tensor) -> Tensor:
        ctx.others = [(other.shape, other.dtype, other.device) for other in others]
        return value[...]

    @staticmethod
    def backward(ctx: Any, derivative: Tensor) -> Any:
        zeros = (torch.zeros(s, dtype=d, device=place) for s, d, place in ctx.others)
        return (derivative, *zeros)


def select(predicate: Tensor, one: Any, other: Any) -> Any:
    """`torch.where` on everything in two results of one structure."""
    if isinstance(one, Tensor):
        return torch.where(predicate, one, other)
    if isinstance(one, tuple | list):
        return type(one)(select(predicate, a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        return {key: select(predicate, one[key], other[key]) for key in one}
    return one


def while_call(test: Body, body: Body, counts: tuple[int, int, int], *tensors: Tensor) -> Any:
    """`while test(*carried): carried = body(*carried)`. counts: how many tensors are carried, how
    many more the test takes, and the body. Whoever traces it sees torch's own operator."""
    carried, of_test, _ = counts
    state = tensors[:carried]
    if compat.foreign_modes():
        taken = range(carried)
        places = (
            (*taken, *range(carried, carried + of_test)),
            (*taken, *range(carried + of_test, len(tensors))),
        )
        sides = (_of_places(tensors, *side) for side in zip((test, body), places))
        more = tuple(each for each in tensors[carried:] if isinstance(each, Tensor))
        return torch.ops.higher_order.while_loop(*sides, state, more)
    first, second = tensors[carried : carried + of_test], tensors[carried + of_test :]
    while bool(test(*state, *first)):
        state = tuple(body(*state, *second))
    given = {id(tensor) for tensor in tensors}
    return tuple(tensor.clone() if id(tensor) in given else tensor for tensor in state)


def scan_call(body: Body, carried: int, sliced: int, *tensors: Tensor) -> tuple[Tensor, ...]:
    """What a step carries out after the last slice of tensors, and what else it gives, stacked. The
    first tensors are carried, the next gone through; the step takes the others as they are. Whoever
    traces it sees torch's own operator."""
    state, xs = tensors[:carried], tensors[carried : carried + sliced]
    more = tensors[carried + sliced :]
    if compat.foreign_modes():
        step = _of_places(tensors, body, tuple(range(len(tensors))))
        kept = tuple(each for each in more if isinstance(each, Tensor))
        return tuple(torch.ops.higher_order.scan(step, list(state), list(xs), kept))
    rows = []
    for place in range(len(xs[0])):
        found = body(*state, *(x[place] for x in xs), *more)
        state = found[:carried]
        rows.append(found[carried:])
    given = {id(tensor) for tensor in tensors}
    last = (tensor.clone() if id(tensor) in given else tensor for tensor in state)
    return (*last, *map(torch.stack, zip(*rows)))


FREED = "freed by a derivative"
"""What the history of a tensor says of the nodes that a derivative inside of the graph has run and
not kept, to whoever traces the call: a later pass may not come to what they have saved."""


def derivative_call(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], weights: Any, **options: Any
) -> Any:
    """`torch.autograd.grad`. Whoever traces it may have to differentiate the outputs once more, and
    frees nothing by it: there the graph is kept, and the history says what eager frees."""
    if not compat.foreign_modes():
        return torch.autograd.grad(outputs, inputs, weights, **options)
    keep = options.pop("retain_graph", None)
    found = torch.autograd.grad(outputs, inputs, weights, retain_graph=True, **options)
    if not (options.get("create_graph", False) if keep is None else keep):
        compat.mark_run(outputs, inputs, FREED)
    return found


def kept_call(derivative: Tensor, leaf: Tensor, dense: bool, own: bool) -> Tensor:
    """What autograd keeps in `.grad` as a leaf's first derivative: that itself if it is nobody
    else's (`own`) and laid out as the leaf is, which is `dense` in some order, or else row-major;
    if not, a copy that is. The layout is that of the derivative that a kernel makes."""
    if dense:
        sizes = zip(derivative.shape, derivative.stride(), leaf.stride())
        laid = all(step != 0 if size == 1 else step == wanted for size, step, wanted in sizes)
    else:
        laid = derivative.is_contiguous()
    if own and laid:
        return derivative.detach()
    if dense:
        return derivative.new_empty_strided(leaf.shape, leaf.stride()).copy_(derivative)
    return derivative.clone(memory_format=torch.contiguous_format)


def hook_call(body: Body, tensor: Tensor, *lifted: Tensor) -> None:
    """`tensor.register_hook(body)`."""

    def hook(derivative: Tensor) -> Any:
        return disabled(body)(derivative, *lifted)  # it is captured already

    tensor.register_hook(hook)


UndefinedCase = tuple[tuple[bool, ...], Body | tuple[str, str], tuple[int, int]]
"""Which derivatives are defined; the body that takes these, or the class and text of the error that
it raises; from where to where what it needs is kept."""


def apply_function(kind: type[torch.autograd.Function], *arguments: Any) -> Any:
    apply: Callable[..., Any] = kind.apply
    return apply(*arguments)


def build(shape: Any, tensors: Sequence[Tensor]) -> Any:
    """The structure that `values.bodies.places` has described, with tensors in their places."""
    kind, *parts = shape
    if kind == "tensor":
        return tensors[parts[0]]
    if kind == "dict":
        return {key: build(part, tensors) for key, part in parts}
    if kind == "none":
        return None
    made = [build(part, tensors) for part in parts]
    return made if kind == "list" else tuple(made)


def _leaves(value: Any) -> Iterator[Tensor]:
    """Tensors of a structure, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _leaves(item)


class NotInGeneral(RuntimeError):
    """What a graph assumes of data does not hold: the call runs again as it is."""


#: what a check of the program may raise
ERRORS = {
    kind.__name__: kind
    for kind in (
        ArithmeticError, AssertionError, Exception, IndexError, KeyError, LookupError,
        NotImplementedError, OverflowError, RuntimeError, TypeError, ValueError,
    )
}  # fmt: skip


def _operator(name: str, argument: str, check: Callable[..., None]) -> Any:
    """An operator that may raise where `valid` does not hold, registered when first needed."""
    full = f"flambeau_capture::{name}"
    torch.library.define(full, f"(Tensor valid, {argument}, str text) -> ()")
    torch.library.impl(full, "CompositeExplicitAutograd", check)
    torch.library.register_fake(full, lambda valid, given, text: None)
    return getattr(torch.ops.flambeau_capture, name).default


@functools.cache
def require() -> Any:
    """`flambeau_capture::require`, which raises a ValueError with the value."""

    def check(valid: torch.Tensor, value: torch.Tensor, text: str) -> None:
        if not bool(valid.all()):
            raise ValueError(f"{text}{value}")

    return _operator("require", "Tensor value", check)


@functools.cache
def require_all() -> Any:
    """`flambeau_capture::require_all`, which raises an error of a class of `ERRORS`."""

    def check(valid: torch.Tensor, error: str, text: str) -> None:
        if not bool(valid.all()):
            kind = NotInGeneral if error == NotInGeneral.__name__ else ERRORS[error]
            raise kind(*([text] if text else ()))

    return _operator("require_all", "str error", check)


def assumes(node: fx.Node) -> bool:
    """Whether a node raises where the program may not: it checks what is assumed of data."""
    if node.args[1:2] == (NotInGeneral.__name__,):
        return node.target is require_all()
    return node.target is compat.assert_operator() and not node.meta.get("certain")
