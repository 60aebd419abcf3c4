"""Programs of calls that no table writes: arguments are drawn until Python takes them.

In: an expression with a place for arguments. Out: calls that work, and one that is refused.
Invariant: chance is seeded with the text, so that it draws the same at any time.
"""

from __future__ import annotations

import contextlib
import functools
import io
import random
import signal
import warnings
from collections.abc import Mapping
from typing import Any

from integration_tests.campaign.families import library
from integration_tests.campaign.observing import Setting, namespace
from integration_tests.conformance.construct import CALLS, SETUP

WORKING, TRIES = 3, 100
LONGEST = 0.5
PLAIN = (int, float, complex, str, bytes, type(None), list, tuple, dict, set, frozenset, type)
#: the kinds of the pool that most functions take
LIKELY = ("int", "float", "str", "list", "function", "tuple")


@functools.cache
def _known(setup: str) -> Mapping[str, Any]:
    space = namespace(Setting())
    exec(SETUP + "\n" + setup, space)
    return space | {name: eval(text, space) for name, text in CALLS[0].items()}


def tried(text: str, setup: str) -> tuple[bool | None, Any]:
    """Whether the statements run, None if they do not end, and `r` after them."""
    space = {**_known(setup), "xs": [1, 2, 3], "y": 1.5, "s": "ab", "d": {"a": 1}}
    before = signal.signal(signal.SIGVTALRM, _too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            exec(text, space)
    except Exception as error:
        return None if isinstance(error, TimeoutError) else False, None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return True, space.get("r")


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError


def _given(chance: random.Random, arity: tuple[int, int, list[str]]) -> str:
    least, most, named = arity
    kinds = LIKELY if chance.random() < 0.6 else library.KINDS
    parts = [library.value(chance, kinds) for _ in range(chance.randint(least, max(least, most)))]
    if named and chance.random() < 0.3:
        parts.append(f"{chance.choice(named)}={library.value(chance, kinds)}")
    return ", ".join(parts)


def _free(arguments: str) -> bool:
    """Names that the campaign's programs have and these have not are not used."""
    words = (
        arguments.replace("(", " ").replace(")", " ").replace(",", " ").replace("*", " ").split()
    )
    return not {"y", "s", "d"} & set(words)


def calls(call: str, function: Any, bound: bool, before: str = "", setup: str = "") -> list[str]:
    """Texts by `call`, which has `{}` for its arguments."""
    chance, arity = random.Random(call), library.arity(function, bound)
    worked: dict[str, bool] = {}
    refused: list[str] = []
    for _ in range(TRIES):
        given = _given(chance, arity)
        if not _free(given):
            continue
        text = call.replace("{}", given)
        if text in worked or text in refused:
            continue
        works, value = tried(f"{before}\nr = {text}", setup)
        if works:
            worked[text] = isinstance(value, PLAIN) and "0x" not in repr(value)
        elif works is False and given:
            refused.append(text)
        if len(worked) >= WORKING and refused:
            break
    found = [
        f"r = {text}\nR.append({'r' if plain else 'shown(r)'})"
        for text, plain in [*worked.items()][:WORKING]
    ]
    return found + ["try:\n    R.append(shown(" + text + "))\nexcept Exception as error:\n"
                    "    R.append(text_of(error))" for text in refused[:1]]  # fmt: skip
