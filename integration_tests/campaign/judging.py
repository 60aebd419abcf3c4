"""Differences between a compiled program and the same as it is.

In: what was seen of both. Out: differences, each with its kind and place.
Invariant: bits are compared where eager computes exactly; else a value may be as far from the one
in double precision as four times eager's is, and what an error of one rounding in the inputs makes
of the result. What eager does not give twice is no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from integration_tests.campaign.addresses import long_numbers, placeless
from integration_tests.campaign.exactness import (
    OtherZeros,
    Overloads,
    but_unset,
    eagers_error,
    either_zero,
    exact,
    in_any_order,
    pointwise,
)
from integration_tests.campaign.moved_operands import (
    is_inexact,
    is_whole,
    may_overflow,
    nudged,
    rolled,
    run_again,
    surrounded,
    tensors_by_place,
    widened,
)
from integration_tests.campaign.nearness import (
    FACTOR,
    far,
    same_bits,
    same_but_zeros,
    shown_difference,
)
from integration_tests.campaign.observing import Kept, Seen, Setting, namespace, played
from integration_tests.campaign.program import Program

NUDGES = (1, 2, 3)
#: at need: a sum that cancels may come out as 0 a few times, and with its rounding error the next
MORE_NUDGES = tuple(range(4, 20))
#: how often eager is run again to see what it does not give twice
AGAIN = 3
#: by how much operands are rolled to see what the order of their terms does
ROLLS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Difference:
    """kind: outcome, message, printed, structure, plain, dtype, shape, stride, ..., value.
    guilty: the statement or the place that is named for it."""

    kind: str
    place: str
    text: str
    guilty: str = ""

    def __str__(self) -> str:
        return f"{self.kind} at {self.place}: {self.text}" + (
            f" [{self.guilty}]" if self.guilty else ""
        )


class Judge:
    """Compares the calls of one program; the runs that tell what rounding does are made at need."""

    def __init__(self, program: Program, setting: Setting) -> None:
        self.program, self.setting = program, setting
        self._spreads: list[list[Seen] | None] | None = None
        self._more: list[list[Seen] | None] | None = None

    def differences(self, eager: Sequence[Seen], ours: Sequence[Seen]) -> list[Difference]:
        """All that differs in the first call that differs."""
        for number, (want, got) in enumerate(zip(eager, ours, strict=True)):
            found = self._call(number, want, got)
            if found and self._has_no_order(number, want):
                return []
            if found and (known := self._addresses(number, want)) is not None:
                found = self._call(number, placeless(want, known), placeless(got, known))
            if found and self._either_zero():
                found = self._but_of_zeros(number, want, found)
            if found:
                return [
                    Difference(d.kind, f"call {number}, {d.place}", d.text, d.guilty) for d in found
                ]
        return []

    def _has_no_order(self, number: int, want: Seen) -> bool:
        """Whether eager's own answer depends on how far the threads of backward passes have counted
        before: it runs the node of the highest number first, and hooks may see that."""
        if self.setting.device == "cpu":  # one thread counts all
            return False
        other = _tried(self.program, Setting(self.setting.device, behind=True))
        return other is not None and bool(self._call(number, want, other[number]))

    def _call(self, number: int, want: Seen, got: Seen) -> list[Difference]:
        if (want.error is None) != (got.error is None) or (
            want.error and got.error and want.error[0] != got.error[0]
        ):
            return [Difference("outcome", "outcome", f"eager {_told(want)}, compiled {_told(got)}")]
        found: list[Difference] = []
        if want.error and got.error and want.error[1] != got.error[1]:
            found.append(
                Difference("message", "outcome", f"eager {_told(want)}, compiled {_told(got)}")
            )
        if want.printed != got.printed:
            found.append(
                Difference(
                    "printed", "stdout", f"eager {want.printed!r}, compiled {got.printed!r}"[:300]
                )
            )
        if list(want.leaves) != list(got.leaves):
            missing = [p for p in want.leaves if p not in got.leaves]
            more = [p for p in got.leaves if p not in want.leaves]
            text = f"missing {missing[:3]}, more {more[:3]}" if missing or more else "order"
            found.append(Difference("structure", (missing + more + ["order"])[0], text))
        exacts = None
        rewritten: set[str] = set()
        if self.program.steps and not want.error:
            exacts, rewritten = self._steps(number, got, rewritten)
            if rewritten:  # what follows them is judged given what they were before
                exacts, _ = self._steps(number, got, rewritten)
        for path, one in want.leaves.items():
            if path in got.leaves:
                steps = None if _place_of(path) in rewritten else exacts
                found += self._leaf(number, path, one, got.leaves[path], steps)
        if exacts:
            found += exacts.values()
        return found

    def _leaf(
        self, number: int, path: str, want: Any, got: Any, steps: dict[str, Difference] | None
    ) -> list[Difference]:
        if not isinstance(want, Kept) or not isinstance(got, Kept):
            if type(want) is type(got) and want == got:
                return []
            if steps is None and self._number_close(number, path, want, got):
                return []
            return [Difference("plain", path, f"eager {want!r}, compiled {got!r}"[:300])]
        for fact, value in want.facts.items():
            if got.facts.get(fact) != value:
                text = f"eager {value}, compiled {got.facts.get(fact)}"
                return [Difference(fact, path, text)]
        if want.share != got.share:
            return [
                Difference("alias", path, f"eager shares with {want.share}, compiled {got.share}")
            ]
        if want.same != got.same:
            return [Difference("identity", path, f"eager is {want.same}, compiled {got.same}")]
        if steps is not None and path.startswith("result"):
            return []  # judged by step, given what the compiled run computed before
        if same_bits(want.value, got.value):
            return []
        if self.program.exact:
            if same_but_zeros(want.value, got.value) and self._either_zero():
                return []
            text = shown_difference(want.value, got.value)
            return [] if self._unsteady(number, path) else [Difference("value", path, text)]
        return self._value(number, path, want.value, got.value)

    def _addresses(self, number: int, want: Seen) -> frozenset[str] | None:
        """The long numbers of a call that eager gives again, where it has some that it does not:
        where in memory an object is, or what a hash makes of that."""
        first = long_numbers(want)
        steady = first
        if not first:
            return None
        taken: list[object] = []  # memory, so that objects of the next run lie elsewhere
        for _ in range(AGAIN):
            taken += [bytes(size) for size in range(8, 512, 8) for _ in range(200)]
            run = _tried(self.program, Setting(self.setting.device))
            steady &= long_numbers(run[number]) if run is not None else first
        return steady if steady != first else None

    # --- values that rounding may change ---

    def _spread(self) -> list[list[Seen] | None]:
        """The program again as it is, in double precision, and with inputs nudged."""
        if self._spreads is None:
            device = self.setting.device
            settings = [Setting(device), Setting(device, wide=True)]
            settings += [Setting(device, nudge=n) for n in NUDGES]
            self._spreads = [_tried(self.program, each) for each in settings]
        return self._spreads

    def _seen(self, number: int, path: str) -> list[Any]:
        return [_leaf_of(run, number, path) for run in self._spread()]

    def _nudged_more(self, number: int, path: str) -> list[torch.Tensor]:
        """A result of the program with inputs nudged in more ways."""
        if self._more is None:
            device = self.setting.device
            self._more = [_tried(self.program, Setting(device, nudge=n)) for n in MORE_NUDGES]
        found = [_leaf_of(run, number, path) for run in self._more]
        return [each.value for each in found if isinstance(each, Kept)]

    def _unsteady(self, number: int, path: str) -> bool:
        again = self._seen(number, path)[0]
        first = _tried(self.program, Setting(self.setting.device))
        other = None if first is None else first[number].leaves.get(path)
        return not (
            isinstance(again, Kept)
            and isinstance(other, Kept)
            and same_bits(again.value, other.value)
        )

    def _either_zero(self) -> bool:
        return either_zero(self._noted())

    def _but_of_zeros(self, number: int, want: Seen, found: list[Difference]) -> list[Difference]:
        """Those where eager's own answer does not change with the signs of zeros that depend on
        where in a vector they stand: through a quotient or an angle they reach values and sizes."""
        with OtherZeros():
            turned = _tried(self.program, Setting(self.setting.device))
        if turned is None:
            return found
        changed = {d.place for d in self._call(number, want, turned[number])}
        return [d for d in found if d.place not in changed]

    def _noted(self) -> Overloads:
        noted = Overloads()
        with noted:
            _tried(self.program, Setting(self.setting.device))
        return noted

    def _number_close(self, number: int, path: str, want: Any, got: Any) -> bool:
        one, two = _as_number(want), _as_number(got)
        if one is None or two is None:
            return False
        nudged = [v for each in self._seen(number, path) if (v := _as_number(each)) is not None]
        room = max((abs(v - one) for v in nudged), default=0.0)
        return abs(one - two) <= FACTOR * room + 1e-5 * abs(one)

    def _value(
        self, number: int, path: str, want: torch.Tensor, got: torch.Tensor
    ) -> list[Difference]:
        again, wide, *nudged = self._seen(number, path)
        if not isinstance(again, Kept) or not same_bits(again.value, want):
            return []  # eager does not give the same twice
        others = [each.value for each in nudged if isinstance(each, Kept)]
        reference = wide.value if isinstance(wide, Kept) else None
        if not is_inexact(want):
            if any(not same_bits(want, other) for other in others):
                return []
            return [Difference("value", path, shown_difference(want, got))]
        text = far(want, got, reference, others)
        if text:
            text = far(want, got, reference, others + self._nudged_more(number, path))
        if text and same_bits(but_unset(self._noted(), want, got), got):
            return []  # what eager leaves undefined
        return [Difference("value", path, text)] if text else []

    # --- one operation a statement ---

    def _arguments(self, number: int) -> dict[str, Any]:
        """The names that a call of the program begins with."""
        space = namespace(self.setting)
        exec("\n".join(self.program.setup), space)
        for name, text in self.program.calls[number].arguments.items():
            space[name] = eval(text, space)
        return space

    def _steps(
        self, number: int, ours: Seen, rewritten: set[str]
    ) -> tuple[dict[str, Difference], set[str]]:
        """Each statement by itself, given what the compiled run computed before it; and the results
        that a later statement writes to: seen as they are at the end alone, they are judged as the
        whole program's."""
        space = self._arguments(number)
        found: dict[str, Difference] = {}
        made: dict[str, tuple[str, list[int]]] = {}
        for index, statement in enumerate(self.program.body):
            name = statement.partition(" = ")[0]
            place = ""
            if name in self.program.results:
                place = f"result[{self.program.results.index(name)}]"
            if place and place not in rewritten:
                text = self._step(statement, name, place, ours, space)
                made[name] = place, _versions(space[name])
                if text:
                    found[name] = Difference("value", place, text, statement)
                    if index >= 40:
                        break
            else:
                exec(statement, space)
        return found, rewritten | {
            place for name, (place, before) in made.items() if _versions(space[name]) != before
        }

    def _step(
        self, statement: str, name: str, path: str, ours: Seen, space: dict[str, Any]
    ) -> str | None:
        torch.default_generator.manual_seed(self.program.seed)
        before = dict(space)
        noted = Overloads()
        try:
            with noted:
                exec(statement, space)
        except Exception as error:
            return f"eager {type(error).__name__} on what was computed before: {error}"[:200]
        want = tensors_by_place(space[name], path)
        told, unset = None, noted.unset
        for where, value in want.items():
            got = ours.leaves.get(where)
            if (
                not isinstance(got, Kept)
                or got.value.shape != value.shape
                or got.value.dtype != value.dtype
            ):
                continue  # another kind of difference
            if same_bits(value, got.value):
                continue
            noted.unset = unset + self._beyond(statement, name, where, before, path)
            told = self._one(statement, name, where, value, got.value, before, noted, path)
            if told:
                break
        space[name] = _with(space[name], path, ours)
        return told

    def _beyond(
        self, statement: str, name: str, where: str, before: dict[str, Any], path: str
    ) -> list[torch.Tensor]:
        """Which elements eager computes from memory beyond its operands, of a sample whose sizes do
        not fit and that no kernel checks: they change with what lies there."""
        first, other = (
            run_again(
                statement, name, where, before, path,
                lambda t, b=byte: surrounded(t, b), self.program.seed,
            )
            for byte in (0, 0x3E)
        )  # fmt: skip
        if first is None or other is None or first.shape != other.shape or not is_inexact(first):
            return []
        return [(first != other) & ~(first.isnan() & other.isnan())]

    def _one(
        self, statement: str, name: str, where: str, want: torch.Tensor, got: torch.Tensor,
        before: dict[str, Any], noted: Overloads, path: str,
    ) -> str | None:  # fmt: skip
        again = run_again(statement, name, where, before, path, lambda t: t, self.program.seed)
        want, again = (t if t is None else but_unset(noted, t, got) for t in (want, again))
        if again is None or want is None or not same_bits(again, want):
            return None  # not the same twice
        if same_bits(want, got):
            return None
        operands = [t for t in before.values() if isinstance(t, torch.Tensor)]
        used = [
            before[key]
            for key in before
            if isinstance(before[key], torch.Tensor) and key in statement
        ]
        if either_zero(noted) and same_but_zeros(want, got):
            return None
        if exact(noted, [want, *used]) or not operands:
            return "exact: " + shown_difference(want, got)
        seed = self.program.seed
        reference = run_again(statement, name, where, before, path, widened, seed, torch.float64)
        others = []
        for nudge in NUDGES:
            other = run_again(
                statement,
                name,
                where,
                before,
                path,
                lambda t, n=nudge: nudged(t, n),
                self.program.seed,
            )
            others += [] if other is None else [other]
        if not is_inexact(want):
            return (
                None if any(not same_bits(want, o) for o in others) else shown_difference(want, got)
            )
        if in_any_order(noted) and "DEVICE" not in statement:
            others += self._reordered(statement, name, where, want, got, before, path)
        unsure = []
        if torch.finfo(want.dtype).bits < 64 and any(map(is_whole, operands)):
            moved = [
                run_again(
                    statement, name, where, before, path,
                    lambda t, n=n: nudged(t.double(), n) if is_whole(t) else widened(t),
                    seed, torch.float64,
                )
                for n in NUDGES
            ]  # fmt: skip
            unsure = [each for each in moved if each is not None]
        others = [but_unset(noted, t, got) for t in others if t.shape == got.shape]
        if reference is not None and reference.shape == got.shape:
            reference = but_unset(noted, reference, got.to(reference))
        finite = all(bool(torch.isfinite(t).all()) for t in used)
        overflows = not pointwise(noted) and finite and any(map(may_overflow, used))
        off = eagers_error(noted)
        cancelled = [room for room in noted.cancelled if room.shape == want.shape]
        return far(
            want, got, reference, others, not pointwise(noted), off, unsure, overflows, cancelled
        )

    def _reordered(
        self, statement: str, name: str, where: str, want: torch.Tensor, got: torch.Tensor,
        before: dict[str, Any], path: str,
    ) -> list[torch.Tensor]:  # fmt: skip
        """Where a result is no number or has no limit: eager's own, the terms in other orders."""
        if torch.isfinite(want).all() and torch.isfinite(got).all():
            return []
        found = [
            run_again(
                statement, name, where, before, path, lambda t, n=n: rolled(t, n),
                self.program.seed,
            )
            for n in ROLLS
        ]  # fmt: skip
        return [rolled(t, -n) for t, n in zip(found, ROLLS, strict=True) if t is not None]


def _leaf_of(run: list[Seen] | None, number: int, path: str) -> Any:
    return None if run is None or run[number].error else run[number].leaves.get(path)


def _versions(value: Any) -> list[int]:
    """How often each tensor of a result was written to."""
    return [t._version for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def _place_of(path: str) -> str:
    """The result that a leaf is of."""
    return path[: path.index("]") + 1] if path.startswith("result[") else path


def _with(value: Any, path: str, ours: Seen) -> Any:
    """The same with the compiled run's tensors."""
    if isinstance(value, torch.Tensor):
        got = ours.leaves.get(path)
        if (
            isinstance(got, Kept)
            and got.value.shape == value.shape
            and got.value.dtype == value.dtype
        ):
            return got.value.clone()
        return value
    if isinstance(value, list | tuple):
        return [_with(v, f"{path}[{n}]", ours) for n, v in enumerate(value)]
    return value


def _tried(program: Program, setting: Setting) -> list[Seen] | None:
    try:
        return played(program, lambda f: f, setting)
    except Exception:  # a program that takes no double precision has no reference
        return None


def _told(seen: Seen) -> str:
    return "answers" if seen.error is None else f"{seen.error[0]}: {seen.error[1]}"[:200]


def _as_number(leaf: Any) -> float | None:
    if isinstance(leaf, str) and leaf.startswith("float "):
        return float(leaf[6:])
    return None
