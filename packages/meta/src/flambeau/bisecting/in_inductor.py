"""Bisection over the inductor's passes, fusions, kernels and lowerings, by fuel.

In: a program that is right as a graph of primitives, and wrong with generated kernels. Out: a
`Verdict`. Invariant: one half of one graph is looked at, all others do without generated code; what
is blamed is the first step with which that half goes wrong, in the order of the inductor's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flambeau_inductor.lowering.graph import VIEW_PRIMITIVES
from flambeau_inductor.lowering.registry import rule_of
from flambeau_inductor.options import Fuel, Options
from flambeau_inductor.pipeline import CAPTURED, OPTIONAL
from flambeau_prims import prim_of

from flambeau.bisecting.trials import TrialProgram, Verdict
from flambeau.events.bus import Listener, StageProduct
from flambeau.events.records import RecordCollector
from flambeau.events.stage_products import user_lines_of
from flambeau.testing.comparison import Difference, first_bad

Key = tuple[str, str]
Change = Callable[[Options], Options]
Wrong = Callable[..., bool]
NOTHING = Fuel(passes=0, lowerings=0, fusions=0, kernels=0)


@dataclass
class Looking(Listener):
    """A listener that notes the steps of every half, in order, as far as each half came.

    nodes: operations of the half, which `lowered` are the first of.
    """

    every_stage: bool = True
    nodes: dict[Key, list[tuple[str, str]]] = field(default_factory=dict)
    lowered: dict[Key, list[tuple[str, str]]] = field(default_factory=dict)
    merges: dict[Key, list[tuple[str, str]]] = field(default_factory=dict)
    kernels: dict[Key, list[tuple[str, tuple[str, ...]]]] = field(default_factory=dict)
    lines: dict[Key, dict[str, str]] = field(default_factory=dict)

    def __call__(self, kind: str, product: object, owner: int) -> None:
        if not isinstance(product, StageProduct):
            return
        key, work = (product.graph, product.half), product.work
        if product.stage == "rewrite":
            nodes = [n for n in work.rewritten().graph.nodes if n.op == "call_function"]
            self.nodes[key] = [(_primitive(n.target), n.name) for n in nodes]
            self.lines[key] = user_lines_of(work.rewritten().graph.nodes)
        elif product.stage == "lower":
            known = self.lowered.get(key, [])
            self.lowered[key] = max(known, list(work.tensors.lowered), key=len)
        elif product.stage == "schedule":
            self.merges[key] = [(merge.first, merge.second) for merge in work.merges]
        elif product.stage == "optimize":
            self.kernels[key] = [(loop.name, tuple(loop.origins)) for loop in work.loops()]

    def step(self, key: Key, number: int) -> tuple[str, str]:
        """The n-th operation that a rule lowers, or fails to: (primitive, node)."""
        lowered = self.lowered.get(key, [])
        if len(lowered) >= number:
            return lowered[number - 1]
        names = [name for _, name in self.nodes[key]]
        after = names.index(lowered[-1][1]) + 1 if lowered else 0
        left = [step for step in self.nodes[key][after:] if _has_rule(step[0])]
        return left[0] if left else self.nodes[key][-1]

    def lines_of(self, key: Key, names: Iterable[str]) -> tuple[str, ...]:
        """The user's lines of some nodes."""
        found = (self.lines[key].get(name.split(".")[0], "") for name in names)
        return tuple(dict.fromkeys(line for line in found if line))


def blame_inductor(program: TrialProgram, found: Difference) -> Verdict:
    """The graph and half, then the step in it."""
    seen = Looking()
    recorder = RecordCollector()
    recorder.watch.own.add(seen)
    program.attempt("again, noting the steps", "inductor", recorder=recorder)
    keys = list(seen.nodes)
    captured = _captured_pass(program)
    if captured is not None:
        return captured

    def first(count: int) -> bool:
        some = set(keys[:count])
        how = f"kernels in {count} of {len(keys)} halves of graphs"
        return _wrong(program, how, lambda key, o: o if key in some else _bare(o))

    number = first_bad(len(keys), first) if len(keys) > 1 else len(keys)
    if not number:
        return Verdict("inductor", step="graphs", name="(before any half is lowered)")
    key = keys[number - 1]

    def wrong(how: str, change: Change, looking: Looking | None = None) -> bool:
        def tailor(of: Key, options: Options) -> Options:
            if of == key:
                return change(options)
            return options if of in keys[: number - 1] else _bare(options)

        return _wrong(program, how, tailor, looking)

    return replace(_in_half(key, seen, wrong), graph=key[0], half=key[1])


def _in_half(key: Key, seen: Looking, wrong: Wrong) -> Verdict:
    if not wrong("without passes", _fuel(Fuel(passes=0))):
        return _pass(OPTIONAL, lambda n, how: wrong(how, _fuel(Fuel(passes=n))))
    if not wrong("every kernel evaluated", _fuel(Fuel(kernels=0)), seen):
        return _kernel(key, seen, wrong)
    if not wrong("nothing fused", _fuel(Fuel(fusions=0))):
        return _fusion(key, seen, wrong)
    if wrong("no operation lowered", _fuel(Fuel(lowerings=0))):
        return Verdict("inductor", step="schedule", name="(with no operation lowered too)")
    return _lowering(key, seen, wrong)


def _captured_pass(program: TrialProgram) -> Verdict | None:
    """The pass before autograd that is wrong; None if it is not one of those."""

    def with_first(count: int, how: str) -> bool:
        fuel = {"fuel": Fuel(passes=count)}
        return _wrong(program, how, lambda key, options: _bare(options), inductor=fuel)

    if not with_first(len(CAPTURED), "every half without passes, fusions and kernels"):
        return None
    if with_first(0, "the same, and no pass before autograd"):
        return None
    return _pass(CAPTURED, with_first)


def _pass(passes: Sequence[str], wrong: Callable[[int, str], bool]) -> Verdict:
    number = first_bad(len(passes), lambda n: wrong(n, f"passes up to {passes[n - 1]}"))
    name = passes[(number or len(passes)) - 1]
    return Verdict("inductor", step="pass", name=name, avoid={"options": {"skip_passes": (name,)}})


def _kernel(key: Key, seen: Looking, wrong: Wrong) -> Verdict:
    kernels = seen.kernels.get(key, [])
    number = first_bad(len(kernels), lambda n: wrong(f"{n} kernels", _fuel(Fuel(kernels=n))))
    if number is None:
        return Verdict("inductor", step="kernels", name="(only all of them together)")
    name, origins = kernels[number - 1]
    told = f"{name} ({', '.join(origins)})"
    avoid = {"backend": "aot_eager_prims"}
    lines = seen.lines_of(key, origins)
    return Verdict("inductor", step="kernel", name=told, lines=lines, avoid=avoid)


def _fusion(key: Key, seen: Looking, wrong: Wrong) -> Verdict:
    known = seen.merges.get(key)  # None where joining itself fails
    count = len(seen.nodes[key]) if known is None else len(known)
    number = first_bad(count, lambda n: wrong(f"{n} fusions", _fuel(Fuel(fusions=n))))
    if number is None:
        return Verdict("inductor", step="fusions", name="(only all of them together)")
    avoid = {"options": {"inductor.fuel": Fuel(fusions=number - 1)}}
    if known is None:
        told = f"number {number}"
        return Verdict("inductor", step="fusion", name=told, avoid=avoid)
    pair = known[number - 1]
    told, lines = f"of {pair[0]} and {pair[1]}", seen.lines_of(key, pair)
    return Verdict("inductor", step="fusion", name=told, lines=lines, avoid=avoid)


def _lowering(key: Key, seen: Looking, wrong: Wrong) -> Verdict:
    count = len(seen.lowered.get(key) or seen.nodes[key])
    looking = Looking()  # lowering may not have come to its end before
    number = first_bad(count, lambda n: wrong(f"{n} lowerings", _fuel(Fuel(lowerings=n)), looking))
    if number is None:
        return Verdict("inductor", step="lowerings", name="(only all of them together)")
    primitive, node = looking.step(key, number)
    avoid = {"options": {"inductor.fuel": Fuel(lowerings=number - 1)}}
    name, lines = f"{primitive} ({node})", seen.lines_of(key, [node])
    return Verdict("inductor", step="lowering", name=name, lines=lines, avoid=avoid)


def _wrong(
    program: TrialProgram,
    how: str,
    tailor: Callable[[Key, Options], Options],
    seen: Looking | None = None,
    inductor: Mapping[str, Any] | None = None,
) -> bool:
    recorder = RecordCollector()
    if seen is not None:
        recorder.watch.own.add(seen)
    recorder.watch.tailor = lambda options, graph, half: tailor((graph, half), options)
    return program.attempt(how, "inductor", recorder=recorder, inductor=inductor) is not None


def _primitive(target: object) -> str:
    prim = prim_of(target)
    return str(target) if prim is None else prim.name


def _has_rule(primitive: str) -> bool:
    """Whether fuel counts it: a rule lowers it, and it is more than a view."""
    return rule_of(primitive) is not None and primitive not in VIEW_PRIMITIVES


def _fuel(fuel: Fuel) -> Change:
    return lambda options: replace(options, fuel=fuel)


def _bare(options: Options) -> Options:
    """No pass, no lowering, no fusion, no kernel."""
    return replace(options, fuel=NOTHING)
