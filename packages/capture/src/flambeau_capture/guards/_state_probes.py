"""Native probes of torch's global state.

In: the rows of a `GlobalState`. Out: the native `StatePattern` that compares them. Invariant: a row
is read where it lies if it is a variable of one of torch's modules; through a probe only if the
probe followed the state through changes made on this thread (where the state is the thread's own)
and gives, for the value in the row, the number that value has; else by calling its Python reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture._native import StatePattern, read_bytes, state_probe_call, state_symbol
from flambeau_capture.guards._tensor_layout import DEVICES, DTYPES
from flambeau_capture.guards.state_readers import AUTOCAST_DEVICES, readers

BYTE, WORD = 0xFF, 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True)
class Probe:
    """A function to call and how a value of the state looks as its result."""

    address: int
    argument: int
    mask: int
    encode: Callable[[Any], int | None]  # None: the value has no number, ask Python

    def read(self) -> int:
        return state_probe_call(self.address, self.argument) & self.mask


def state_pattern(values: tuple[tuple[str, Any], ...]) -> StatePattern:
    """The pattern of a state that is the present one: probes are tried on it."""
    table = readers()
    probes: list[tuple[int, int, int, int]] = []
    items: list[tuple[dict[str, Any], str, Any]] = []
    calls: list[tuple[Callable[[], Any], Any]] = []
    variable: tuple[str, bytes, tuple[int, ...]] | None = None
    for name, value in values:
        if name == "dispatch_keys" and (words := _key_set_words(value)) is not None:
            variable = words
            continue
        if name in compat.STATE_VARIABLES:
            items.append((*compat.STATE_VARIABLES[name], value))
            continue
        row = _probes().get(name, ())
        numbers = [(probe, probe.encode(value)) for probe in row]
        if row and all(number == probe.read() for probe, number in numbers):
            probes += [(p.address, p.argument, p.mask, n) for p, n in numbers if n is not None]
        else:
            calls.append((table[name], value))
    return StatePattern(tuple(probes), variable, tuple(items), tuple(calls))


@cache
def _probes() -> dict[str, tuple[Probe, ...]]:
    """The probes of each row that passed its trial."""
    return compat.in_plain_state(
        lambda: {name: row for name, row in _candidates() if _follows(name, row)}
    )


def _candidates() -> Iterator[tuple[str, tuple[Probe, ...]]]:
    for name in ("grad_mode", "inference_mode", "autocast_cache"):
        yield name, _row((name, int))
    yield "torch_function", _row(("torch_function", _torch_function_number))
    # only the empty stack has a number: modes are compared in Python
    empty = ("torch_function_modes", lambda modes: None if modes else 0)
    yield "torch_function_modes", _row(empty, mask=WORD)
    yield "default_dtype", _row(("default_dtype", DTYPES.get))
    context = _address("context")
    if context is not None:
        parts = ("deterministic", "deterministic_warn_only", "deterministic_fill")
        encoders = [lambda asked, place=place: int(asked[place]) for place in range(len(parts))]
        yield "deterministic", _row(*zip(parts, encoders), argument=state_probe_call(context, 0))
    for device in AUTOCAST_DEVICES:
        enabled = ("autocast_enabled", lambda pair: int(pair[0]))
        dtype = ("autocast_dtype", lambda pair: DTYPES.get(pair[1]))
        yield f"autocast_{device}", _row(enabled, dtype, argument=DEVICES[device])


def _row(
    *parts: tuple[str, Callable[[Any], int | None]], argument: int = 0, mask: int = BYTE
) -> tuple[Probe, ...]:
    """Empty if a symbol is missing."""
    row = [(_address(symbol), encode) for symbol, encode in parts]
    if any(address is None for address, _ in row):
        return ()
    return tuple(Probe(address or 0, argument, mask, encode) for address, encode in row)


def _address(symbol: str) -> int | None:
    library, name = compat.STATE_SYMBOLS[symbol]
    return state_symbol(compat.library_path(library), name)


def _torch_function_number(state: int) -> int | None:
    # the numbers of the C++ enumeration are learned, not known
    return _torch_function_numbers().get(state)


@cache
def _torch_function_numbers() -> dict[int, int]:
    return compat.in_plain_state(_learn_torch_function)


def _learn_torch_function() -> dict[int, int]:
    address = _address("torch_function")
    numbers: dict[int, int] = {}
    for change in _CHANGES["torch_function"]():
        with change:
            if address is not None:
                numbers[compat.torch_function_state()] = state_probe_call(address, 0) & BYTE
    return numbers if len(set(numbers.values())) == len(numbers) else {}


def _follows(name: str, row: tuple[Probe, ...]) -> bool:
    """Whether the probes say what the reader says, now and through the changes of this thread."""
    read = readers()[name]
    changes = _CHANGES.get(name, lambda: [nullcontext()])
    for change in changes():
        with change:
            value = read()
            for probe in row:
                number = probe.encode(value)
                # a value without a number must not look like one that has: it reads otherwise
                if number is not None and number != probe.read():
                    return False
                if name == "torch_function_modes" and number is None and probe.read() == 0:
                    return False
    return bool(row)


_CHANGES: dict[str, Callable[[], list[AbstractContextManager[Any]]]] = {
    "grad_mode": lambda: [torch.enable_grad(), torch.no_grad(), torch.enable_grad()],
    "inference_mode": lambda: [nullcontext(), torch.inference_mode(), nullcontext()],
    "torch_function": lambda: [compat.torch_function_set(state) for state in range(3)],
    "torch_function_modes": lambda: [nullcontext(), torch.device("cpu"), nullcontext()],
    "autocast_cache": lambda: [
        torch.autocast("cpu", torch.bfloat16, cache_enabled=on) for on in (False, True)
    ],
    "autocast_cpu": lambda: [
        nullcontext(),
        *(torch.autocast("cpu", t) for t in (torch.bfloat16, torch.float16)),
    ],
}


@cache
def _key_sets_address_works() -> bool:
    """Whether the words of the variable change exactly when the key sets do."""
    return compat.in_plain_state(_words_follow_key_sets)


def _words_follow_key_sets() -> bool:
    seen: dict[tuple[int, int], bytes] = {}
    modes = (torch.inference_mode(), torch.autocast("cpu", torch.bfloat16))
    for change in (nullcontext(), *modes, nullcontext()):
        with change:
            words = _key_set_bytes()
            if words is None or seen.setdefault(compat.dispatch_key_sets(), words) != words:
                return False
    return len(set(seen.values())) == len(seen) == 3


def _key_set_bytes() -> bytes | None:
    library, name = compat.KEY_SETS_VARIABLE
    address = state_symbol(compat.library_path(library), name)
    return None if address is None else read_bytes(address, 16)


# one object for the name: the native side keeps a thread's address by it
_VARIABLE_NAME = compat.KEY_SETS_VARIABLE[1].encode()


def _key_set_words(value: tuple[int, int]) -> tuple[str, bytes, tuple[int, ...]] | None:
    words = _key_set_bytes() if _key_sets_address_works() else None
    if words is None or compat.dispatch_key_sets() != value:
        return None
    path = compat.library_path(compat.KEY_SETS_VARIABLE[0])
    halves = (int.from_bytes(words[:8], "little"), int.from_bytes(words[8:], "little"))
    return path, _VARIABLE_NAME, halves
