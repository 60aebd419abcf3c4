"""A part of a function keeps the variables that the function would: what goes on in it relies on
that. Every function here goes on at every statement, and again at every one after it.
"""

import contextlib

import pytest
from flambeau_capture.bytecode import decode, depths
from flambeau_capture.bytecode.flow import live_at
from flambeau_capture.emit.resume import CannotResume, Goal, make_resumption

#: what a function says first, and after which its parts are taken
LOOKS = ("pass", "seen = dir()", "look = locals", "exec('1')", "super().__init__()", "eval('n')")
#: how `v` gets its value, or loses it
BINDINGS = (
    "v = n",
    "(v := n)",
    "match n:\n        case 1 | 2 as v: pass",
    "class v: a = n",
    "def v(): return n",
    "import math as v",
    "for v in range(n): pass",
    "with open('/dev/null') as v: pass",
    "try: 1 / 0\n    except ZeroDivisionError as v: pass",
    "v = n\n    w = [v for v in range(n)]",
    "v = n\n    del v",
)
#: of a part's instructions, one in so many is looked at, others in each
STEP = 7
PROGRAM = """
class C:
  def f(n, t):
    {look}
    while t:
      if n: t -= 1
      {binding}
      n = n + t
    try: n = t / n
    finally: t = n
    return n, t
"""


def body_of(look, binding):
    world = {}
    exec(PROGRAM.format(look=look, binding=binding.replace("\n  ", "\n    ")), world)
    return decode(world["C"].f.__code__)


def parts(body, bound):
    """Each place with an empty stack, with the function that goes on there."""
    depth = depths(body)
    for place in body.instructions:
        if depth.get(place) == 0 and place.opname not in ("MAKE_CELL", "COPY_FREE_VARS", "RESUME"):
            with contextlib.suppress(CannotResume):
                arguments = live_at(body, place, bound)
                yield make_resumption(Goal(body, place), arguments, "part")


@pytest.mark.parametrize("look", LOOKS)
def test_a_part_keeps_what_the_whole_does(look):
    found = 0
    for binding in BINDINGS:
        whole = body_of(look, binding)
        bound = [*whole.code.co_varnames]
        for part in parts(whole, bound):
            body = decode(part.code)
            places = list(zip(part.sources, body.instructions))
            for source, place in places[len(places) % STEP :: STEP]:
                if source is None:
                    continue
                found += 1
                wanted = set(live_at(whole, source, bound))
                assert wanted <= set(live_at(body, place, bound)), (binding, source)
    assert found > 100
