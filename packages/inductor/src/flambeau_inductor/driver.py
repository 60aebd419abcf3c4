"""The driver: runs the passes of a list over one level of IR.

In: a context, a list of passes, an IR. Out: the IR after the last of them. Invariant: a pass runs
from here alone, so that each is timed, counted as fuel, left out, verified and shown by its name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from flambeau_inductor.options import Options
from flambeau_inductor.passes.rewriter import Ledger
from flambeau_inductor.scheduling_limits import Limits


@dataclass(slots=True, kw_only=True)
class PassContext:
    """What passes are given besides their IR, and what the driver notes about them.

    changed: how many places each pass that ran has changed. pass_seconds: what each took. begun:
    passes so far that may be left out, which is what fuel counts; ledger: the same of the rules of
    the rewriter. show: called for each pass that changed something, with the level, the pass'
    number and name, its IR, how many places.
    """

    options: Options = field(default_factory=Options)
    changed: dict[str, int] = field(default_factory=dict)
    pass_seconds: dict[str, float] = field(default_factory=dict)
    begun: int = 0
    ledger: Ledger = field(init=False)
    show: Callable[[str, int, str, Any, int], None] | None = None

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.options.skip_passes, self.options.fuel.rewrites)

    @property
    def limits(self) -> Limits:
        """Thresholds of inlining, fusion and sharing of memory."""
        return self.options.limits


IR = TypeVar("IR")
Context = TypeVar("Context", bound=PassContext, contravariant=True)


@dataclass(frozen=True, slots=True)
class Pass(Generic[Context, IR]):
    """A step of one level: the IR after it, and in how many places that is another.

    name: a verb. when: the options with which it runs. required: it cannot be left out. rules: the
    names of its rules that are not the pass' own; each may be left out.
    """

    name: str
    run: Callable[[Context, IR], tuple[IR, int]]
    when: Callable[[Options], bool] = lambda options: True
    required: bool = False
    rules: tuple[str, ...] = ()


def run_passes(
    context: Context,
    level: str,
    passes: Sequence[Pass[Context, IR]],
    ir: IR,
    verify: Callable[[IR], object],
) -> IR:
    """`ir` after all passes but those that options leave out or fuel does not reach."""
    options = context.options
    for number, each in enumerate(passes):
        if not each.required:
            context.begun += 1
            out_of_fuel = options.fuel.passes is not None and context.begun > options.fuel.passes
            if out_of_fuel or each.name in options.skip_passes:
                continue
        if not each.when(options):
            continue
        started = time.perf_counter()
        ir, changed = each.run(context, ir)
        seconds = time.perf_counter() - started
        context.pass_seconds[each.name] = context.pass_seconds.get(each.name, 0.0) + seconds
        context.changed[each.name] = context.changed.get(each.name, 0) + changed
        if changed and options.verify:
            try:
                verify(ir)
            except Exception as error:
                raise AssertionError(f"after {each.name}: {error}") from error
        if changed and context.show is not None:
            context.show(level, number, each.name, ir, changed)
    return ir


def optional(*lists: Sequence[Pass[Any, Any]]) -> tuple[str, ...]:
    """Names of the passes that may be left out, in the order in which fuel counts them."""
    return tuple(each.name for some in lists for each in some if not each.required)
