"""Bisection over the inductor's rewrites, passes, fusions, kernels and lowerings, by fuel.

In: a program that is right as a graph of primitives, and wrong with generated kernels. Out: a
`Verdict`. Invariant: one half of one graph is looked at, all others do without generated code; what
is blamed is the first step with which that half goes wrong, of the first kind of steps without
which it is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from flambeau_inductor.lowering.graph import VIEW_PRIMITIVES
from flambeau_inductor.lowering.registry import rule_of
from flambeau_inductor.options import Fuel, Options
from flambeau_inductor.pipeline import CAPTURED, OPTIONAL
from flambeau_prims import prim_of

from flambeau.bisecting.trials import TrialProgram, Verdict
from flambeau.events.bus import Listener, StageProduct
from flambeau.events.stage_products import user_lines_of
from flambeau.testing.comparison import Difference, first_bad

Key = tuple[str, str]
NOTHING = Fuel(passes=0, rewrites=0, lowerings=0, fusions=0, kernels=0)


class Kind(NamedTuple):
    """Steps that fuel counts: its field, one of them, and a compile without any."""

    fuel: str
    step: str
    without: str


RULES = Kind("rewrites", "rule", "without rules of the rewriter")
PASSES = Kind("passes", "pass", "without passes")
KERNELS = Kind("kernels", "kernel", "every kernel evaluated")
FUSIONS = Kind("fusions", "fusion", "nothing fused")
LOWERINGS = Kind("lowerings", "lowering", "no operation lowered")
KINDS = (RULES, PASSES, KERNELS, FUSIONS, LOWERINGS)

#: a step's name, and the nodes that it is of
Step = tuple[str, tuple[str, ...]]


@dataclass
class HalfSteps:
    """The steps of a half as far as it came, by kind, the nodes of its graph, and their lines."""

    nodes: list[Step] = field(default_factory=list)
    lines: dict[str, str] = field(default_factory=dict)
    steps: dict[str, list[Step]] = field(default_factory=lambda: {"passes": _names(OPTIONAL)})

    def of(self, kind: Kind) -> list[Step]:
        """Its steps of one kind; numbers alone where it did not come so far."""
        known = self.steps.get(kind.fuel)
        return known or _names([f"number {place}" for place, _ in enumerate(self.nodes, 1)])

    def lowering(self, number: int) -> Step:
        """The n-th operation that a rule lowers, or fails to."""
        lowered = self.steps.get("lowerings", [])
        if len(lowered) >= number:
            return lowered[number - 1]
        after = self.nodes.index(lowered[-1]) + 1 if lowered else 0
        for step in self.nodes[after:]:
            primitive = step[0].partition(" (")[0]
            # what fuel counts: a rule lowers it, and it is more than a view
            if rule_of(primitive) is not None and primitive not in VIEW_PRIMITIVES:
                return step
        return self.nodes[-1]


class Looking(Listener):
    """A listener that notes the steps of every half, in order."""

    every_stage = True

    def __init__(self) -> None:
        self.halves: dict[Key, HalfSteps] = {}

    def __call__(self, kind: str, product: object, owner: int) -> None:
        if not isinstance(product, StageProduct):
            return
        key, work = (product.graph, product.half), product.work
        if product.stage == "rewrite":
            graph = work.rewritten().graph
            nodes = [_operation(_primitive(n.target), n.name)
                     for n in graph.nodes if n.op == "call_function"]  # fmt: skip
            half = self.halves.setdefault(key, HalfSteps())
            half.nodes, half.lines = nodes, user_lines_of(graph.nodes)
        steps = self.halves[key].steps
        steps["rewrites"] = _names(work.ledger.done)
        if product.stage == "lower":
            lowered = [_operation(*each) for each in work.tensors.lowered]
            steps["lowerings"] = max(steps.get("lowerings", []), lowered, key=len)
        elif product.stage == "schedule":
            merges = [(merge.first, merge.second) for merge in work.merges]
            steps["fusions"] = [(f"of {one} and {other}", (one, other)) for one, other in merges]
        elif product.stage == "optimize":
            loops = [(loop.name, tuple(loop.origins)) for loop in work.loops()]
            steps["kernels"] = [(f"{name} ({', '.join(nodes)})", nodes) for name, nodes in loops]


def blame_inductor(program: TrialProgram, found: Difference) -> Verdict:
    """The graph and half, then the step in it."""
    seen = Looking()
    program.attempt("again, noting the steps", "inductor", listener=seen)
    keys = list(seen.halves)
    captured = _captured_pass(program)
    if captured is not None:
        return captured

    def first(count: int) -> bool:
        how = f"kernels in {count} of {len(keys)} halves of graphs"
        return _wrong(program, how, dict.fromkeys(keys[:count]))

    number = first_bad(len(keys), first) if len(keys) > 1 else len(keys)
    if not number:
        return Verdict("inductor", step="graphs", name="(before any half is lowered)")
    key = keys[number - 1]

    def wrong(how: str, fuel: Fuel, looking: Looking | None = None) -> bool:
        return _wrong(program, how, {**dict.fromkeys(keys[: number - 1]), key: fuel}, looking)

    return replace(_in_half(key, seen, wrong), graph=key[0], half=key[1])


def _in_half(key: Key, seen: Looking, wrong: Callable[..., bool]) -> Verdict:
    for kind in KINDS:
        # templates and variants take part in no compile without kernels: more of it may be seen
        looking = seen if kind is KERNELS else None
        if not wrong(kind.without, Fuel(**{kind.fuel: 0}), looking):
            break
    else:
        return Verdict("inductor", step="schedule", name="(with no operation lowered too)")
    half, looking = seen.halves[key], Looking()

    def with_first(count: int) -> bool:
        return wrong(f"{count} {kind.fuel}", Fuel(**{kind.fuel: count}), looking)

    steps = half.of(kind)
    number = first_bad(len(steps), with_first)
    if number is not None and kind is LOWERINGS:
        steps[number - 1] = looking.halves[key].lowering(number)
    return _verdict(kind, steps, number, half.lines)


def _captured_pass(program: TrialProgram) -> Verdict | None:
    """The pass before autograd that is wrong; None if it is not one of those."""

    def with_first(count: int) -> bool:
        how = f"every half bare, {count} of {len(CAPTURED)} passes before autograd"
        return _wrong(program, how, {}, inductor={"fuel": Fuel(passes=count)})

    if not with_first(len(CAPTURED)) or with_first(0):
        return None
    number = first_bad(len(CAPTURED), with_first)
    return _verdict(PASSES, _names(CAPTURED), number, {})


def _verdict(
    kind: Kind, steps: Sequence[Step], number: int | None, user_lines: Mapping[str, str]
) -> Verdict:
    if number is None:
        return Verdict("inductor", step=kind.fuel, name="(only all of them together)")
    name, nodes = steps[number - 1]
    avoid: dict[str, Any] = {"options": {"inductor.fuel": Fuel(**{kind.fuel: number - 1})}}
    if kind is KERNELS:
        avoid = {"backend": "aot_eager_prims"}
    elif kind in (RULES, PASSES):
        avoid = {"options": {"skip_passes": (name,)}}
    lines = filter(None, (user_lines.get(node.split(".")[0]) for node in nodes))
    return Verdict(
        "inductor", step=kind.step, name=name, lines=tuple(dict.fromkeys(lines)), avoid=avoid
    )


def _wrong(
    program: TrialProgram,
    how: str,
    fuels: Mapping[Key, Fuel | None],
    looking: Looking | None = None,
    inductor: Mapping[str, Any] | None = None,
) -> bool:
    """Whether it is wrong with so much fuel for each half: None is all, and others have none."""

    def tailor(options: Options, graph: str, half: str) -> Options:
        fuel = fuels.get((graph, half), NOTHING)
        return options if fuel is None else replace(options, fuel=fuel)

    found = program.attempt(how, "inductor", listener=looking, tailor=tailor, inductor=inductor)
    return found is not None


def _names(names: Sequence[str]) -> list[Step]:
    return [(name, ()) for name in names]


def _operation(primitive: str, node: str) -> Step:
    return f"{primitive} ({node})", (node,)


def _primitive(target: object) -> str:
    prim = prim_of(target)
    return str(target) if prim is None else prim.name
