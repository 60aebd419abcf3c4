"""Polyfill of `str.format`.

In: the fields of a format string (`fields_of`), the arguments. Out: the text. Invariant: attributes
and items are read, and values formatted, in the order of the fields.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from typing import Any

_STRING: Any = vars(string)["_string"]  # what `string.Formatter` calls
#: the text before a field, the argument's place or name, its attributes and items, the conversion,
#: and the fields of the specification
Fields = tuple[tuple[Any, ...], ...]


def fields_of(text: str, count: int, names: Iterable[str]) -> Fields | None:
    """The fields of a format string; None: `str.format` refuses it, or these arguments."""
    numbers = iter(range(count))
    styles: set[bool] = set()

    def parsed(text: str, depth: int = 2) -> Fields:
        if not depth and "{" in text:
            raise ValueError("Max string recursion exceeded")
        found: list[tuple[Any, ...]] = []
        for literal, field, spec, conversion in string.Formatter().parse(text):
            if field is None:
                found.append((literal, None, (), None, ()))
                continue
            first, rest = _STRING.formatter_field_name_split(field)
            if not isinstance(first, str) or first == "":
                styles.add(first == "")
                first = next(numbers) if first == "" else first
                if first >= count:
                    raise IndexError(first)
            elif first not in names:
                raise KeyError(first)
            if len(styles) > 1 or conversion not in (None, "s", "r", "a"):
                raise ValueError(field)
            found.append((literal, first, tuple(rest), conversion, parsed(spec or "", depth - 1)))
        return tuple(found)

    try:
        return parsed(text)
    except (ValueError, IndexError, KeyError, StopIteration):
        return None


def formatted(fields: Fields, args: tuple[Any, ...], names: Any, named: tuple[Any, ...]) -> str:
    kwargs = dict(zip(names, named))
    made = ""
    for literal, first, rest, conversion, spec in fields:
        made += literal
        if first is None:
            continue
        value = kwargs[first] if isinstance(first, str) else args[first]
        for is_attribute, key in rest:
            value = getattr(value, key) if is_attribute else value[key]
        if conversion == "r":
            value = repr(value)
        elif conversion == "s":
            value = str(value)
        elif conversion == "a":
            value = ascii(value)
        made += format(value, formatted(spec, args, names, named))
    return made
