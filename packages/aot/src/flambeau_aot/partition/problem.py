"""The partitioning problem, read off a joint graph.

In: a `Joint` and the caller's classifier. Out: a `Problem`: the values that could cross from
forward to backward, and what is known of each.
Invariant: every value the backward part reads is computed from candidates alone.

A value may carry `node.meta["recompute"]`, put there by a checkpoint policy: "must_recompute",
"must_save", "prefer_recompute" or "prefer_save".
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, cast

from torch import fx

from flambeau_aot.errors import AotError
from flambeau_aot.interface import Classifier, OpClass
from flambeau_aot.joint.reach import computed_from
from flambeau_aot.joint.trace import Joint
from flambeau_aot.partition.cost import classify as class_of
from flambeau_aot.partition.cost import is_random, is_repeatable, work
from flambeau_aot.partition.memory import is_snapshot
from flambeau_aot.partition.shared_memory import read_late, results_kept, root_of
from flambeau_aot.partition.split import backward_only, forward_part

Mark = Literal["must_recompute", "must_save", "prefer_recompute", "prefer_save", ""]

FUSIBLE: tuple[OpClass, ...] = ("pointwise", "creation", "shape", "index")
UNFUSED: tuple[OpClass, ...] = ("matmul", "leaf", "random")

MARKS: tuple[Mark, ...] = ("must_recompute", "must_save", "prefer_recompute", "prefer_save", "")


@dataclass(frozen=True)
class Problem:
    """The values to decide about.

    candidates: in graph order; read: those the backward part reads itself. late: values that depend
    on a cotangent; early: what runs in the forward graph whatever is saved. written: inputs the
    program overwrites, so that saving one takes a copy. read_late: values that do not depend on a
    cotangent, and are computed in the backward pass all the same. lent: results that the caller is
    given and that eager keeps as well. again_of: inputs that are read again in the backward pass,
    also where eager has kept what it had computed of them.
    """

    joint: Joint
    candidates: tuple[fx.Node, ...]
    read: frozenset[fx.Node]
    late: frozenset[fx.Node]
    early: frozenset[fx.Node]
    written: frozenset[fx.Node]
    read_late: frozenset[fx.Node]
    kinds: dict[fx.Node, OpClass]
    lent: frozenset[fx.Node] = frozenset()
    again_of: frozenset[fx.Node] = frozenset()

    @property
    def bounded(self) -> Problem:
        """The same under a bound on memory, for which a write to a leaf may be an error, and to a
        result, that is none in eager."""
        pairs = zip(self.joint.primals, self.joint.inputs, strict=True)
        leaves = frozenset(node for node, known in pairs if known.leaf)
        return replace(self, lent=frozenset(), again_of=leaves)

    def expensive(self, node: fx.Node) -> bool:
        """Whether a forward value could be computed again, but at a price no cut pays unasked."""
        return (
            node.op == "call_function"
            and node in self.early
            and not is_snapshot(node)
            and self.kinds[node] in ("matmul", "leaf")
            and mark_of(node) == ""
            and is_repeatable(node.target)
        )

    def owned(self, node: fx.Node) -> bool:
        """Whether saving a value takes memory: an input is alive anyway, unless written to."""
        return node.op != "placeholder" or node in self.written

    @functools.cached_property
    def _returned(self) -> frozenset[fx.Node]:
        return frozenset(self.joint.outputs)

    def stored(self, node: fx.Node) -> bool:
        """Whether the forward part has a value in memory, be it saved or not: no fusible operator
        computes it, or somebody reads it who is no part of a kernel."""
        node = root_of(node, lambda item: self.kinds[item] == "view")
        if node.op != "call_function" or self.kinds[node] not in FUSIBLE:
            return True
        if node in self._returned:
            return True
        return any(self.kinds[user] in UNFUSED for user in node.users if user in self.early)

    def again(self, saved: Iterable[fx.Node]) -> list[fx.Node]:
        """The forward operators that run a second time in the backward graph."""
        needed = computed_from(self.joint.grads, given=set(saved))
        return [node for node in self.candidates if node in needed and node in self.early]

    def share(self, again: Iterable[fx.Node]) -> float:
        """Work done twice as a part of all the work of forward and backward."""
        total, twice = self._work(self.joint.graph.nodes), self._work(again)
        return twice / total if total else 0.0

    def _work(self, nodes: Iterable[fx.Node]) -> float:
        return sum(work(node, self.kinds[node]) for node in nodes if node.op == "call_function")


def problem_of(joint: Joint, known: Classifier | None = None) -> Problem:
    """The partition problem of a joint graph."""
    late = backward_only(joint)
    read, candidates = _candidates(joint, late)
    kinds: dict[fx.Node, OpClass] = {
        node: class_of(node.target, known) if node.op == "call_function" else "leaf"
        for node in joint.graph.nodes
    }
    return Problem(
        joint=joint,
        candidates=tuple(candidates),
        read=frozenset(read),
        late=frozenset(late),
        early=frozenset(forward_part(joint) | set(joint.primals)),
        written=frozenset(joint.primals[primal] for primal in joint.plan.written),
        read_late=read_late(joint, late, lambda node: kinds[node] == "view"),
        kinds=kinds,
        lent=results_kept(joint, late),
    )


def mark_of(node: fx.Node) -> Mark:
    """What a checkpoint policy says of a value; AotError for a word that is none of ours.

    An operator with several results and its parts share one mark, and random operators have none:
    they run once whatever a policy says.
    """
    whole = node
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        whole = node.args[0]
    if is_random(whole.target):
        return ""
    own = _word(node)
    if own or whole.op != "call_function":
        return own
    if whole is not node:
        return _word(whole)
    parts = [_word(user) for user in node.users if user.target is operator.getitem]
    return min((mark for mark in parts if mark), key=MARKS.index, default="")


def _word(node: fx.Node) -> Mark:
    mark = node.meta.get("recompute", "")
    if mark not in MARKS:
        known = ", ".join(item for item in MARKS if item)
        raise AotError(
            f"{node.name} is marked {mark!r}; known are {known}", node.meta.get("stack_trace", "")
        )
    return cast(Mark, mark)


def _candidates(joint: Joint, late: set[fx.Node]) -> tuple[set[fx.Node], list[fx.Node]]:
    """Values the backward part reads itself, and all that these are computed from, in order."""
    grads = {node for node in joint.grads if node is not None}
    behind = computed_from(
        grads & late, lambda node: [source for source in node.all_input_nodes if source in late]
    )
    read = grads | {source for node in behind for source in node.all_input_nodes}
    read -= late
    reached = computed_from(read)
    return read, [node for node in joint.graph.nodes if node in reached]
