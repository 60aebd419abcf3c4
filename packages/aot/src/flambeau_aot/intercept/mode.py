"""Torch-function mode that intercepts a program's calls above autograd.

What comes in: every torch function the program calls while it is traced. What goes out: the call
itself, or another that means the same and can be traced; a refusal where neither is possible.
Invariant: what the stand-in of an input would answer otherwise than the input is answered here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from flambeau_aot._torch_compat import (
    FakeTensor,
    base_of,
    functional_tensor,
    is_functional,
    is_higher_order,
    left_alone,
)
from flambeau_aot.errors import Unsupported
from flambeau_aot.inputs.input_facts import InputFacts
from flambeau_aot.inputs.memory_overlap import Layouts
from flambeau_aot.inputs.storage_offsets import STRIDED, Spans
from flambeau_aot.intercept import lazy_conjugates
from flambeau_aot.intercept.autocast_cache import CASTING, DIFFERENTIATED_BY, AutocastCache
from flambeau_aot.intercept.custom_operators import call_without_writing, writing_operator
from flambeau_aot.intercept.inplace import (
    MADE_BY_STRIDES,
    RESHAPE_IN_PLACE,
    SCATTERS,
    WRITE_TO_LISTS,
    WRITE_TO_SEVERAL_LISTS,
    count_again,
    laid_out_alike,
    lay_out_again,
    made_by_strides,
    write_on_copy,
    write_to_list,
    write_to_several_lists,
    writes_in_place,
)
from flambeau_aot.intercept.inplace_checks import RefusedWrites
from flambeau_aot.intercept.input_hooks import InputHooks
from flambeau_aot.intercept.masked_puts import is_in_place, masked_put
from flambeau_aot.intercept.out_arguments import keeping_size, keeping_strides
from flambeau_aot.intercept.recurrent import RECURRENT
from flambeau_aot.intercept.running_statistics import (
    batch_norm,
    functional_batch_norm,
    functional_instance_norm,
    instance_norm,
)
from flambeau_aot.intercept.sparse_embeddings import embedding, embedding_bag
from flambeau_aot.intercept.sparse_gradients import SparseUses
from flambeau_aot.intercept.stale_views import Views
from flambeau_aot.joint.checkpoint_regions import Regions
from flambeau_aot.joint.data_dependent import refuse_memory


def _getter(name: str) -> Any:
    """What a torch function mode is handed when an attribute of a tensor is read."""
    return getattr(torch.Tensor, name).__get__


def conj(x: torch.Tensor) -> torch.Tensor:
    """`Tensor.conj`; a real tensor is its own conjugate, the very object."""
    return torch.conj(x) if x.is_complex() else x


def bernoulli(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`torch.bernoulli` by a probability draws in the order of dimensions; `bernoulli_`, which
    has the same functional form, in that of memory."""
    return torch.bernoulli(x.contiguous(), *args, **kwargs)


def rrelu(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`torch.rrelu` gives a contiguous tensor of any other, its functional form one like it."""
    return torch.rrelu(x.contiguous(), *args, **kwargs)


def functional_rrelu(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The same of `torch.nn.functional.rrelu`, which may write to its argument instead."""
    in_place = kwargs.get("inplace", len(args) > 3 and args[3])
    return functional.rrelu(x if in_place else x.contiguous(), *args, **kwargs)


DROPOUTS = frozenset(
    (functional.dropout, torch.dropout, torch.ops.aten.dropout, torch.ops.aten.dropout.default)
)


def drops_nothing(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call of dropout is its input, the very tensor; the Python form that torch takes
    where sizes are open copies it."""
    p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    train = args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", True))
    return not train or p == 0


def native_dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, ...]:
    """`torch.native_dropout` never is its input, which torch describes it as where it drops
    nothing."""
    result, mask = torch.native_dropout(x, p, train)
    return (result.clone() if result is x else result), mask


def one_hot(x: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """`one_hot` of a known number of classes asks for the extremes of its indices: an assertion
    here, of eager's words, which a GPU leaves to the device."""
    if x.dtype != torch.int64 or num_classes < 0 or not x.numel():
        return functional.one_hot(x, num_classes)
    if x.device.type == "cpu":
        torch._assert_async((x >= 0).all(), "Class values must be non-negative.")
    words = "Class values must be smaller than num_classes."
    torch._assert_async((x < num_classes).all(), words)
    met = x.unsqueeze(-1) == torch.arange(num_classes, device=x.device)
    return met.to(torch.int64).contiguous()


def polygamma(x: torch.Tensor, n: int) -> torch.Tensor:
    """What `polygamma_` writes: of a copy, which the derivative keeps."""
    value = torch.polygamma(n, x.clone())
    if not torch.can_cast(value.dtype, x.dtype):
        raise Unsupported(f"polygamma_ of {x.dtype}, which cannot keep its result; eager raises")
    return value


WRITTEN: dict[Any, Callable[..., torch.Tensor]] = {
    torch.Tensor.polygamma_: polygamma,
    torch.ops.aten.polygamma_.default: polygamma,
    torch.ops.aten.polygamma_: polygamma,
}
"""Of ATen's operators that write in place, those that functionalization knows no form of: what
they write."""


def _parts(x: torch.Tensor, views: Sequence[torch.Tensor], dim: int) -> tuple[torch.Tensor, ...]:
    """The parts that these views are, each as if it were the only one: what `unsafe_split` and its
    like give has the same memory, and autograd lets each be written to."""
    sizes = [view.shape[dim] for view in views]
    return tuple(x.narrow(dim, sum(sizes[:at]), size) for at, size in enumerate(sizes))


def unsafe_split(x: torch.Tensor, split_size: Any, dim: int = 0) -> tuple[torch.Tensor, ...]:
    """`split`, by a size."""
    return _parts(x, torch.split(x, split_size, dim), dim)


def unsafe_split_with_sizes(
    x: torch.Tensor, split_sizes: Any, dim: int = 0
) -> tuple[torch.Tensor, ...]:
    """`split`, by sizes."""
    return _parts(x, torch.split(x, split_sizes, dim), dim)


def unsafe_chunk(x: torch.Tensor, chunks: int, dim: int = 0) -> tuple[torch.Tensor, ...]:
    """`chunk`."""
    return _parts(x, torch.chunk(x, chunks, dim), dim)


def expand(x: torch.Tensor, *size: Any, **named: Any) -> torch.Tensor:
    """`expand` to sizes that repeat no element, by views that a write goes through exactly."""
    size = named.get("size", size)
    size = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)
    more = len(size) - x.dim()
    known = all(isinstance(n, int) for n in (*size, *x.shape))
    own = zip(size[more:], x.shape, strict=True) if more >= 0 else ()
    if not known or more < 0 or {*size[:more]} - {1} or any(n not in (-1, m) for n, m in own):
        return x.expand(size)
    result: torch.Tensor = torch.ops.aten.alias.default(x)
    for _ in range(more):
        result = result.unsqueeze(0)
    return result


def expand_as(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`expand_as`."""
    return expand(x, tuple(other.shape))


REWRITES: dict[Any, Callable[..., Any]] = {
    **RECURRENT,
    torch.Tensor.expand: expand,
    torch.ops.aten.expand.default: expand,
    torch.ops.aten.expand: expand,
    torch.Tensor.expand_as: expand_as,
    torch.Tensor.broadcast_to: expand,
    torch.broadcast_to: expand,
    functional.batch_norm: functional_batch_norm,
    functional.instance_norm: functional_instance_norm,
    torch.batch_norm: batch_norm,
    torch.ops.aten.batch_norm.default: batch_norm,
    torch.ops.aten.batch_norm: batch_norm,
    torch.instance_norm: instance_norm,
    torch.ops.aten.instance_norm.default: instance_norm,
    torch.ops.aten.instance_norm: instance_norm,
    torch.unsafe_split: unsafe_split,
    torch.Tensor.unsafe_split: unsafe_split,
    torch.ops.aten.unsafe_split.Tensor: unsafe_split,
    torch.unsafe_split_with_sizes: unsafe_split_with_sizes,
    torch.Tensor.unsafe_split_with_sizes: unsafe_split_with_sizes,
    torch.ops.aten.unsafe_split_with_sizes.default: unsafe_split_with_sizes,
    torch.unsafe_chunk: unsafe_chunk,
    torch.Tensor.unsafe_chunk: unsafe_chunk,
    torch.ops.aten.unsafe_chunk.default: unsafe_chunk,
    torch.native_dropout: native_dropout,
    torch.ops.aten.native_dropout.default: native_dropout,
    torch.ops.aten.native_dropout: native_dropout,
    functional.one_hot: one_hot,
    torch.ops.aten.one_hot.default: one_hot,
    torch.ops.aten.one_hot: one_hot,
    torch.rrelu: rrelu,
    functional.rrelu: functional_rrelu,
    torch.bernoulli: bernoulli,
    torch.Tensor.bernoulli: bernoulli,
    torch.conj: conj,
    torch.Tensor.conj: conj,
}


# What a program may ask of an input while it is traced that its stand-in cannot answer.
_ASKED_OF_INPUTS: dict[Any, str] = {
    torch.Tensor.register_post_accumulate_grad_hook: "a hook on the gradient of an input",
    _getter("grad"): "reading .grad of an input; pass the gradient as an argument",
    _getter("grad_fn"): "reading .grad_fn of an input",
    torch.Tensor.retain_grad: "retain_grad on an input",
}
_IS_LEAF = _getter("is_leaf")
_GRAD = _getter("grad")
_BEGIN_GRAD = (torch.Tensor.requires_grad_, torch.Tensor.requires_grad.__set__)  # type: ignore[attr-defined]


def refuse_recurrent(func: Any, target: Any) -> None:
    """Recurrent layers that cuDNN computes: it is asked how it wants the weights to lie, which
    tensors without memory cannot be."""
    if func not in RECURRENT or not isinstance(target, torch.Tensor):
        return
    if target.device.type == "cuda" and torch.backends.cudnn.is_acceptable(target):
        raise Unsupported(
            f"{func.__name__} on a GPU, which cuDNN computes whole; keep the layer out of the "
            "compiled region, or turn cuDNN off (torch.backends.cudnn.flags(enabled=False))"
        )


class InterceptMode(TorchFunctionMode):
    """Applies `REWRITES` to every call the program makes.

    known: what the inputs are that stand-ins stand for; what a stand-in would answer wrongly is
    answered for its input here, or refused. hooked: where the tensors are noted on whose gradients
    the program puts hooks. regions: told of every call of the program. views: where views are
    noted, so that one of a shape that is gone is not used. sparse: where embeddings with sparse
    gradients are noted; None where there may be none. higher_order: what is called in place of
    operators that take functions, by name. spans: places in memory that several inputs share.
    input_hooks: where hooks on the gradients of inputs are noted. detached: where those are that
    the program detaches. layouts: where the elements of tensors are in memory. stays_without_grad:
    whether the program must not enable grad, for stand-ins that do not require it and inputs that
    do.
    """

    def __init__(
        self,
        known: InputFacts,
        *,
        hooked: list[torch.Tensor],
        regions: Regions,
        views: Views,
        sparse: SparseUses | None,
        higher_order: Mapping[str, Callable[..., Any]],
        spans: Spans,
        casts: AutocastCache,
        stays_without_grad: bool,
        input_hooks: InputHooks,
        detached: set[int],
        layouts: Layouts,
    ) -> None:
        super().__init__()
        self.known = known
        self.gaps = list(known.gaps)
        self.writes = RefusedWrites(known, views)
        self.hooked = hooked
        self.regions = regions
        self.views = views
        self.sparse = sparse
        self.higher_order = higher_order
        self.spans = spans
        self.casts = casts
        self.stays_without_grad = stays_without_grad
        self.input_hooks = input_hooks
        self.detached = detached
        self.layouts = layouts

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.regions.look()
        self.views.refuse_stale((*args, *(kwargs or {}).values()))
        result = self._call(func, args, kwargs or {})
        self.views.made(result)
        self.regions.called(func, args, result)
        if torch.is_grad_enabled():
            if self.stays_without_grad:
                raise Unsupported(
                    "grad is enabled inside the program, which writes to memory that it shares "
                    "with an argument that is a view, made with grad disabled, of a tensor that "
                    "requires grad; pass a clone"
                )
        return result

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.gaps:
            lay_out_again(self.gaps)
        if func in CASTING:
            args, kwargs = self.casts.given(args, kwargs)
        if func in STRIDED:
            args, kwargs = self.spans.counted(func, args, kwargs)
        if func in DIFFERENTIATED_BY:
            if self.input_hooks.found:
                raise Unsupported(
                    "the program differentiates after it has put a hook on an input "
                    "(register_hook); put the hook on it outside the region"
                )
            args, kwargs = self.casts.asked(func, args, kwargs)
        if is_higher_order(func):
            kept = self.higher_order.get(func.name())
            if kept is not None:
                return left_alone(kept)(*args, **kwargs)
            raise Unsupported(
                f"the higher-order operator {func}; let it run outside the graph, or write both "
                "branches with torch.where"
            )
        if func is functional.embedding:
            return embedding(self.sparse, self.known, args, kwargs)
        if func is functional.embedding_bag:
            return embedding_bag(self.sparse, self.known, args, kwargs)
        target = args[0] if args else None
        refuse_recurrent(func, target)
        if func in DROPOUTS and drops_nothing(args, kwargs):
            return args[0] if args else kwargs["input"]
        rewrite, out = REWRITES.get(func), kwargs.get("out")
        if isinstance(out, torch.Tensor):
            return keeping_size(out, rewrite or func, args, kwargs, self.layouts)
        if rewrite is not None:
            return rewrite(*args, **kwargs)
        if isinstance(out, tuple) and all(isinstance(each, torch.Tensor) for each in out):
            return keeping_strides(out, func, args, kwargs)
        refuse_memory(func, target)
        if getattr(func, "__name__", "").split(".")[0] == "slice_inverse":
            # a view of two tensors, which no functional form has
            raise Unsupported("slice_inverse, torch's own inverse of a slice; index the tensor")
        if func in MADE_BY_STRIDES:
            return made_by_strides(func, args, kwargs)
        if not isinstance(target, torch.Tensor):
            name = getattr(func, "__name__", "")
            if name in WRITE_TO_LISTS:
                self.writes.look_at_lists(name, args, kwargs)
                return write_to_list(func, args, kwargs, self._call)
            if name in WRITE_TO_SEVERAL_LISTS:
                func = write_to_several_lists(func, args, kwargs) or func
            result = self._user_operator(func, args, kwargs)
            # With numbers of Python's alone no argument brings a call to functionalization.
            return functional_tensor(result) if isinstance(result, FakeTensor) else result
        if (
            func is torch.Tensor.register_hook
            and id(target) in self.known.leaves
            and target.requires_grad
        ):
            return self.input_hooks.put(target, args, kwargs)
        if func in SCATTERS:
            layout = self.layouts.of(target)
            offset = self.known.offsets.get(id(target), layout.offset)
            return laid_out_alike(func, args, kwargs, layout, offset)
        answer = self._of_input(func, target, args)
        if answer is None:
            answer = lazy_conjugates.answer(func, target, self.layouts.view_of)
        if answer is not None:
            return answer
        if func is torch.Tensor.register_hook:
            self.hooked.append(target)
        name = getattr(func, "__name__", "")
        if name.split(".")[0] in RESHAPE_IN_PLACE:
            self._reshape(name, target)
        if writing_operator(func) is not None:
            return self._user_operator(func, args, kwargs)
        if self.regions.count and writes_in_place(name):
            self.regions.refuse_unseen(target)
        if name.endswith("_") and torch.is_grad_enabled():
            self.writes.look(name, target, args)
        put = masked_put(func, args, kwargs)
        if put is not None:
            if not is_in_place(func):
                return put
            func, args, kwargs = torch.Tensor.copy_, (target, put), {}
        if func in WRITTEN:
            func, args, kwargs = torch.Tensor.copy_, (target, WRITTEN[func](*args, **kwargs)), {}
        result = write_on_copy(target, func, args, kwargs, self.layouts)
        if name.split(".")[0] == "as_strided_" and is_functional(target):
            count_again(target)
        return result

    def _reshape(self, name: str, target: torch.Tensor) -> None:
        """A tensor is about to be given another shape in place."""
        if name.split(".")[0] == "as_strided_":
            if base_of(target) is not target:
                # Autograd would take it again by the view that it was.
                raise Unsupported(
                    "as_strided_, in place, of a view; use as_strided, and return what it gives"
                )
        self.views.reshaped(target)

    def _of_input(self, func: Any, target: torch.Tensor, args: tuple[Any, ...]) -> Any:
        """What is answered in place of an input's stand-in; None where it may answer itself."""
        if func is torch.Tensor.retain_grad:
            raise Unsupported("retain_grad inside the program; return the value instead")
        if (
            id(target) in self.known.sharing
            and func in _BEGIN_GRAD
            and True in (args[1:] or (True,))
        ):
            raise Unsupported(
                "an argument that shares memory with another one which is written to begins to "
                "require grad (requires_grad_); call it before the region, or pass a clone"
            )
        if id(target) in self.detached and func in _BEGIN_GRAD:
            raise Unsupported("requires_grad_ on an input that was detached in place; use detach()")
        if id(target) in self.known.leaves:
            if func in _ASKED_OF_INPUTS and target.requires_grad:
                raise Unsupported(_ASKED_OF_INPUTS[func])
            if func is torch.Tensor.detach_:
                self._detach(target)
            if id(target) in self.detached and func == _GRAD:
                raise Unsupported(_ASKED_OF_INPUTS[_GRAD])
            if func == _IS_LEAF and self.known.leaves[id(target)]:
                return True
            if func is torch.Tensor.storage_offset and id(target) in self.known.offsets:
                return self.known.offsets[id(target)]
        if func is torch.Tensor.storage_offset and self.spans.starts:
            return target.storage_offset() + self.spans.start(target)
        return None

    def _detach(self, target: torch.Tensor) -> None:
        """`detach_` of an input: whether it is a view, as eager asks, its stand-in cannot say."""
        if id(target) not in self.known.is_view:
            raise Unsupported(
                "detach_ on an argument of which another one is a view, or that shares memory with "
                "another one which is written to; use detach()"
            )
        if self.known.is_view[id(target)]:
            raise RuntimeError("Can't detach views in-place. Use detach() instead.")
        self.detached.add(id(target))

    def _user_operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        writing = writing_operator(func)
        if writing is not None:
            return call_without_writing(writing, args, kwargs, self.layouts)
        return func(*args, **kwargs)
