"""The tracer: a dispatch mode that records the joint graph.

In: operators on fake values, as they arrive below autograd and functionalization. Out: an
`fx.Graph` of the decomposed operators, each with its fake value.
Invariant: every recorded operator is functional by its schema; one that writes to an argument is
refused. Decompositions are applied here, so a graph is never rewritten afterwards. Random masks are
drawn one after the other as in eager.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import (
    DEVICE_QUERY,
    WAITS_LATER,
    FakeTensor,
    FakeTensorMode,
    TorchDispatchMode,
    answers_natively,
    assume,
    current_backward_sequence,
    current_value,
    decomposes_itself,
    derivative_fills_in_place,
    expression_of,
    functional_tensor,
    functionalized_again,
    has_subclass,
    in_other_fakes,
    is_conj_or_neg,
    is_functional,
    is_view_op,
    sequence_number,
)
from flambeau_aot.errors import AotError
from flambeau_aot.inputs.memory_overlap import Layouts, is_dense, reach
from flambeau_aot.intercept.eager_dtypes import alerts
from flambeau_aot.intercept.input_attributes import InputHooks
from flambeau_aot.intercept.writes.inplace import Views
from flambeau_aot.joint.absent_derivatives import AbsentDerivatives, keep_history
from flambeau_aot.joint.checkpoint_regions import REGION, Regions
from flambeau_aot.joint.cotangents import Dependence
from flambeau_aot.joint.metadata.corrections import REFUSED
from flambeau_aot.joint.metadata.data_dependent import may_raise
from flambeau_aot.joint.metadata.fake_metadata import (
    CHECKED,
    HIDDEN_WRITES,
    FakeValues,
    dense_order,
    inverse,
    is_of_numbers_alone,
    is_real_number,
    is_refused_by_eager,
    memory_order,
)
from flambeau_aot.joint.nested import map_leaves, map_tensors, tensors_in
from flambeau_aot.joint.source_lines import Lines
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import Presence, ViewStep
from flambeau_aot.sizes import SizeNodes, is_symbolic

Decompositions = Mapping[Any, Callable[..., Any]]


FRESH = "made by the program"
"""Metadata key of constants that the program makes, as by `torch.tensor`."""


def detached_data(value: torch.Tensor) -> torch.Tensor:
    """`Tensor.data`: the same memory with no history and a version counter of its own."""
    return value.data


_aten = torch.ops.aten
_RANDOM_FROM = getattr(_aten.random, "from")


ASSERTION = _aten._assert_scalar.default
"""What raises where a condition on numbers does not hold."""

HigherOrderCalls = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Attempt:
    """How a program is traced, as far as attempts before this one have found out.

    higher_order: by name, what is called with the tracer in place of operators that take functions.
    all_defined: whether the backward part will be given every cotangent. grad_mode: the one around
    the program. overlapping: storages whose arguments are taken as parts of one base. accumulate:
    gradients are accumulated in leaves, which reentrant checkpoints need. written_late: stand-ins
    that the backward pass is known to write to. forbids_hooks: a transform of the program's allows
    no hooks on saved tensors, so that what autograd saves is not noted.
    """

    decompositions: Decompositions
    higher_order: HigherOrderCalls
    all_defined: bool
    grad_mode: bool
    overlapping: frozenset[int] = frozenset()
    accumulate: bool = False
    written_late: frozenset[int] = frozenset()
    forbids_hooks: bool = False


def _functional(value: torch.Tensor) -> torch.Tensor:
    return functional_tensor(value) if isinstance(value, FakeTensor) else value


def _plain(value: torch.Tensor) -> torch.Tensor:
    return current_value(value) if is_functional(value) else value


class JointTracer(TorchDispatchMode):
    """Records operators; one instance per trace."""

    def __init__(
        self,
        attempt: Attempt,
        environment: Any = None,
        mode: Callable[..., FakeTensorMode] = FakeTensorMode,
    ) -> None:
        """environment: the shape environment of symbolic sizes, where there are any. mode: the
        class of the mode of fake values."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.attempt = attempt
        self.graph = fx.Graph()
        self.grad_was_enabled = False
        self.fakes = FakeValues(environment, mode)
        self.sizes = SizeNodes(self.graph)
        self.lines = Lines()
        self.decompositions = attempt.decompositions
        self.stack_lines = False
        self.constants: list[torch.Tensor] = []
        self.constant_nodes: list[fx.Node] = []
        # Inputs that say which cotangents are defined.
        self.flag_nodes: list[fx.Node] = []
        self.view_of: dict[int, tuple[FakeTensor, ViewStep]] = {}
        self.layouts = Layouts(self.view_of)
        self.regions = Regions()
        # Whether a random operator may occur in the backward pass.
        self.draws_in_backward = True
        # Results of operators that may raise by their data, as eager does where nothing reads them.
        self.may_raise: list[torch.Tensor] = []
        # Tensors on whose gradients the program puts hooks.
        self.hooked: list[torch.Tensor] = []
        self.input_hooks = InputHooks({})
        # Stand-ins of inputs that the program detaches in place.
        self.detached: set[int] = set()
        # Views of tensors that the program may reshape in place.
        self.views = Views()
        # Storages of inputs in which the program names a place, as `as_strided` does.
        self.placed: set[int] = set()
        # Whether a view reaches memory that is none of the elements of what it is a view of.
        self.reaches_between = False
        # Which cotangents values depend on, while the backward pass is recorded.
        self.dependence: Dependence | None = None
        self._nodes: dict[int, fx.Node] = {}
        self._depth = 0
        # Whether the program has tensors that torch itself splits, below functionalization.
        self._answers_natively = False
        self._deterministic = torch.are_deterministic_algorithms_enabled()
        self._meta: dict[str, Any] = {}
        self._absent = AbsentDerivatives()
        self._constant_fakes: dict[int, FakeTensor] = {}
        # A derivative is traced inside the backward pass that needs it.
        self._around = current_backward_sequence()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keeps torch from loading and wrapping its own graph capture around this mode."""
        return False

    def flag(self, presence: Presence) -> torch.Tensor:
        """A new input that says whether one of these cotangents is defined."""
        value = self.fakes.flag(presence.device)
        self.flag_nodes.append(self.placeholder(f"given_{len(self.flag_nodes)}", value))
        return value

    def where_flag(self, flag: torch.Tensor, value: torch.Tensor) -> Any:
        """A value where such an input is true, and zeros elsewhere."""
        kind = {"dtype": value.dtype, "device": flag.fake_device}  # type: ignore[attr-defined]
        zero = self._run(_aten.scalar_tensor.default, (0,), kind)
        return self._run(_aten.where.self, (flag, value, zero), {})

    def symbol(self, number: torch.SymInt | torch.SymFloat) -> fx.Node:
        """A new input of the graph that is the value of a symbol."""
        node = self.placeholder(str(number), number)
        self.sizes.given(node, expression_of(number))
        return node

    def assertion(self, condition: Any, message: str) -> None:
        """Record that a condition on sizes is checked, and hold it for true from here on."""
        if condition is True:
            return
        made = self.sizes.node(condition) if is_symbolic(condition) else condition
        node = self.graph.call_function(ASSERTION, (made, message))
        node.meta.update(self._lines_now(), val=None)
        if isinstance(made, fx.Node):
            assume(condition)

    def placeholder(self, name: str, value: Any) -> fx.Node:
        """A new input of the graph; inputs come before every operator."""
        last = next((n for n in reversed(self.graph.nodes) if n.op == "placeholder"), None)
        with self.graph.inserting_after(last) if last else self.graph.inserting_before():
            node = self.graph.placeholder(name)
        node.meta["val"] = value
        self._nodes[id(value)] = node
        return node

    def node_of(self, value: torch.Tensor) -> fx.Node:
        """The node that computes a fake value."""
        return self._nodes[id(value)]

    def has_node(self, value: torch.Tensor) -> bool:
        """Whether a value is one of this graph."""
        return id(value) in self._nodes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if in_other_fakes():
            return func(*args, **kwargs)
        self.grad_was_enabled |= torch.is_grad_enabled()
        if has_subclass(types):
            return self._of_subclass(func, types, args, kwargs)
        if self._answers_natively and any(map(is_functional, tensors_in((args, kwargs)))):
            with functionalized_again(), self:
                return func(*args, **kwargs)
        # reads of fakes from here on are no calls of the program's: modes need not see them
        with torch._C.DisableTorchFunction():
            return self._answer(func, args, kwargs)

    def _of_subclass(
        self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What a class of tensors makes of an operator. It may write to what it computes of plain
        operands, which functionalization has unwrapped: they are wrapped again for it."""
        native = any(map(answers_natively, types))
        self._answers_natively |= native
        plain = [x for x in tensors_in((args, kwargs)) if isinstance(x, FakeTensor)]
        if plain and not func._schema.is_mutable:
            given, named = map_tensors((args, kwargs), _functional)
            if native:
                with self:
                    return map_tensors(func(*given, **named), _plain)
            args, kwargs = given, named
        if native:
            return NotImplemented
        with functionalized_again(), self:
            for owner in types:
                if has_subclass((owner,)):
                    answer = owner.__torch_dispatch__(func, types, args, kwargs)
                    if answer is not NotImplemented:
                        return map_tensors(answer, _plain) if plain else answer
        return NotImplemented

    def _answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an operator of the program, recorded."""
        if func is DEVICE_QUERY:
            return args[0].fake_device
        if func._schema.name == WAITS_LATER:
            func = torch.ops._c10d_functional.wait_tensor.default
        if func is _aten.lift_fresh.default:
            literal = args[0]
            if is_real_number(literal):
                func, args = _aten.scalar_tensor.default, (literal.item(),)
                kwargs = {"dtype": literal.dtype, "device": literal.device}
            else:
                func = _aten.clone.default
                args = self._lift_constants(args)
                self._nodes[id(args[0])].meta[FRESH] = True
        if func is _RANDOM_FROM and len(args) > 2 and args[2] is not None and not kwargs:
            func = _aten.randint_like.low_dtype  # it draws so, and has a name in Python
        if func is _aten._to_copy.default and is_symbolic(args[0]):
            # a number that torch.func has wrapped as a tensor, in another dtype
            func, kwargs = _aten.scalar_tensor.default, {"dtype": kwargs["dtype"]}
        absent = func is _aten._efficientzerotensor.default
        if absent:
            # It has no memory, and functionalization dies on a view of it.
            func = _aten.zeros.default
        if self._depth == 0:
            self._meta = self._lines_now()
        self._refuse_writes(func, args)
        refused = REFUSED.get(func._schema.name)
        if refused is not None and (words := refused(args)):
            raise RuntimeError(words)
        if self._deterministic and alerts(func, args, kwargs):
            raise self._refusal("AO0040", func=func)
        if is_of_numbers_alone(func, args, kwargs):
            return map_tensors(func(*args, **kwargs), self._number)
        dependence = None if self._depth else self.dependence
        nothing = self._depth == 0 and (absent or self._absent.is_one(func, args))
        own: frozenset[int] = frozenset()
        if dependence is not None:
            args, kwargs, own = dependence.given(args, kwargs)
        none = [] if self._depth or nothing else self._absent.in_sum(func, args)
        if any(none):
            result = self._absent.added(self._run, func, args, kwargs, first_is_none=none[0])
        else:
            result = self._run(func, args, kwargs)
        if func is _aten.masked_fill.Scalar and not self._depth and derivative_fills_in_place():
            result = self._laid_as(args[0], result)
        if nothing:
            if not absent and not is_view_op(func):
                result = self._run(_aten.zeros_like.default, (result,), {})
            if isinstance(result, torch.Tensor):
                self._absent.note(result)
        if nothing or any(none):
            operands = [self.node_of(x) for x in tensors_in(args) if self.has_node(x)]
            keep_history([self.node_of(x) for x in tensors_in(result)], operands)
        if self._depth == 0 and may_raise(func, args, kwargs):
            self.may_raise.append(tensors_in(result)[0])
        if dependence is not None:
            dependence.note(result, own, args[0] if is_view_op(func) else None)
        return result

    def _number(self, computed: torch.Tensor) -> Any:
        """What an operator gives of numbers alone, which are known now."""
        if not is_real_number(computed):
            return self._run(_aten.clone.default, self._lift_constants((computed,)), {})
        kind = {"dtype": computed.dtype, "device": computed.device}
        return self._run(_aten.scalar_tensor.default, (computed.item(),), kind)

    def _laid_as(self, written: torch.Tensor, result: torch.Tensor) -> Any:
        """A value that was written in place, which lies as before along dimensions of one too."""
        shape, stride = tuple(written.shape), tuple(written.stride())
        known = all(isinstance(n, int) for n in (*shape, *stride)) and result.shape == shape
        if not known or result.stride() == stride or not is_dense(shape, stride):
            return result
        return self._run(_aten._reshape_alias.default, (result, [*shape], [*stride]), {})

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        count, order = 1, None  # operands that are permuted
        if func is _aten.bernoulli.p:
            order = memory_order(args[0], getattr(args[0], "fake_device", args[0].device))
        elif func is _aten.masked_fill.Scalar and derivative_fills_in_place():
            dims = args[1].dim()
            count = 2 if dims else 1
            order = dense_order(args[0]) if dims in (0, args[0].dim()) else None
        if order is not None:
            permute = _aten.permute.default
            inside = [self._run(permute, (x, order), {}) for x in args[:count]]
            result = self._run(func, (*inside, *args[count:]), kwargs)
            return self._run(permute, (result, inverse(order)), {})
        outside = func is _aten.as_strided.default and self._outside(args)
        rule = self.decompositions.get(func)
        # others may take sizes as numbers, unchecked, which do not fit a few ones as their tensors
        asked = self._depth == 0 and (rule is not None or not CHECKED.isdisjoint(func.tags))
        refused = asked and is_refused_by_eager(func, args, kwargs)
        if rule is not None and not refused:
            result = self._decompose(func, rule, args, kwargs)
            if result is not NotImplemented:
                self.may_raise += [result] * outside
                return result
            refused = not self._depth  # perhaps: eager's kernels of other devices are not called
        elif self._depth and decomposes_itself(func):
            with self:
                return func.decompose(*args, **kwargs)
        result = self._record(func, args, kwargs)
        if refused or outside:
            self.may_raise += tensors_in(result)[:1]
        if self._depth == 0 and is_view_op(func):
            self._note_view(func, args, kwargs, result)
        return result

    def _lines_now(self) -> dict[str, Any]:
        sequence = current_backward_sequence()
        if sequence is not None and sequence != self._around:
            return self.lines.of_backward(sequence)
        if self.stack_lines:
            return self.lines.from_stack(sequence_number())
        return self.lines.current

    def _refusal(self, id: str, **facts: object) -> AotError:
        """A refusal at the user's lines of the operator being recorded."""
        return refusal(id, self._meta.get("stack_trace", ""), **facts)

    def _refuse_writes(self, func: Any, args: tuple[Any, ...]) -> None:
        if func._schema.is_mutable:
            raise self._refusal("AO0041", func=func)
        if (hidden := HIDDEN_WRITES.get(func._schema.name)) is not None:
            mean, training = hidden
            if args[mean] is not None and args[training]:
                raise self._refusal("AO0042", func=func)

    def _decompose(
        self, func: Any, rule: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        args = self._lift_constants(args)
        self._depth += 1
        try:
            with self:
                result = rule(*args, **kwargs)
        finally:
            self._depth -= 1
        if result is NotImplemented:
            return result
        given = {id(item) for item in tensors_in((args, kwargs))}
        view = is_view_op(func)
        result = map_tensors(result, lambda value: self._fresh(value, given, view))
        if view and self._depth == 0:
            self._note_view(func, args, kwargs, result)
        return result

    def _fresh(self, value: Any, given: set[int], view: bool) -> Any:
        """A result that is an argument itself gets an identity of its own."""
        if id(value) not in given:
            return value
        if view and is_conj_or_neg(value):
            return self._record(_aten.alias.default, (value,), {})
        if view:
            alias = self.fakes.like(value)
            self._nodes[id(alias)] = self._nodes[id(value)]
            return alias
        return self._record(_aten.clone.default, (value,), {})

    def _note_view(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        source = args[0]
        if not isinstance(source, FakeTensor) or result is source:
            return  # `resolve_conj` of what is not conjugated is that
        if func is _aten.as_strided.default and not is_dense(
            tuple(source.shape), tuple(source.stride())
        ):
            self.reaches_between = True
        several = isinstance(result, (list, tuple))
        for index, part in enumerate(result) if several else [(None, result)]:
            self.view_of[id(part)] = (source, ViewStep(func, tuple(args[1:]), kwargs, index))

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args = self._lift_constants(args)
        if not self.draws_in_backward and torch.Tag.nondeterministic_seeded in func.tags:
            raise self._refusal("AO0043")
        if func is _aten.as_strided_scatter.default and not args[0].is_contiguous():
            raise self._refusal("AO0044")
        mode = self.fakes.mode
        if any(isinstance(x, FakeTensor) and x.fake_mode is not mode for x in args):
            raise self._refusal("AO0045")  # a value of another trace, which this graph cannot hold
        if any(map(iskeyword, str(func).split("."))):
            raise self._refusal("AO0162", func=func)
        result = self.fakes.run(func, args, kwargs)
        node = self.graph.create_node(
            "call_function", func, self._to_nodes(args), self._to_nodes(kwargs)
        )
        node.meta.update(self._meta)
        self.regions.recorded(node)
        self._bind(node, result)
        return result

    def _outside(self, args: tuple[Any, ...]) -> bool:
        """Whether an `as_strided` of an input leaves its elements: eager raises where it leaves its
        memory, which only a call knows. One of a value that has taken the place of another, and
        that leaves that one's memory, is refused."""
        source, size, stride = args[:3]
        offset = args[3] if len(args) > 3 and args[3] is not None else source.storage_offset()
        known = all(isinstance(number, int) for number in (*size, *stride, offset))
        if not known or 0 in size:
            return False
        end = offset + reach(size, stride)
        if self._nodes[id(source)].op == "placeholder":
            own = 0 if source.numel() == 0 else reach(source.shape, source.stride())
            return bool(end > source.storage_offset() + own)
        if end * source.element_size() > source.untyped_storage().nbytes():
            raise self._refusal("AO0046")
        return False

    def _bind(self, node: fx.Node, result: Any) -> None:
        node.meta["val"] = result
        if self.fakes.symbolic:
            self.sizes.made(node, result)
        if isinstance(result, torch.Tensor):
            if result.layout != torch.strided:
                raise self._refusal("AO0047", target=node.target, layout=result.layout)
            self._nodes[id(result)] = node
        elif isinstance(result, (list, tuple)):
            for index, part in enumerate(result):
                if part is None:
                    continue
                item = self.graph.create_node("call_function", operator.getitem, (node, index))
                item.meta.update(self._meta)
                if REGION in node.meta:
                    item.meta[REGION] = node.meta[REGION]
                self._bind(item, part)

    def _to_nodes(self, value: Any) -> Any:
        def node(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                return self._nodes[id(leaf)]
            return self.sizes.node(leaf) if is_symbolic(leaf) else leaf

        return map_leaves(value, node)

    def _lift_constants(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Real tensors inside the program become inputs of the graph."""
        for item in args:
            if isinstance(item, (list, tuple)) or (
                isinstance(item, torch.Tensor) and not isinstance(item, FakeTensor)
            ):
                return tuple([map_tensors(part, self._lift) for part in args])
        return args

    def _lift(self, tensor: torch.Tensor) -> FakeTensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        if (known := self._constant_fakes.get(id(tensor))) is not None:
            return known
        if tensor.requires_grad:
            raise self._refusal("AO0048")
        value = self.fakes.like(tensor)
        self._constant_fakes[id(tensor)] = value
        self.constants.append(tensor)
        self.constant_nodes.append(self.placeholder(f"constant_{len(self.constants)}", value))
        return value
