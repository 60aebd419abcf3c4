"""A program that shows a cause, made as short as it may be.

In: a program and the cause that it shows. Out: programs to try, one after another, and the
shortest that still shows it. Invariant: what is kept shows the same cause as the first.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import replace

from integration_tests.campaign.program import Call, Program

Attempts = Generator[Program, bool, Program]


def shrink(program: Program, most: int = 400) -> Attempts:
    """Yields programs; is sent whether each still shows the cause; returns the shortest."""
    tried = {str(program)}
    again = True
    while again and most > 0:
        again = False
        for smaller in smaller_forms(program):
            if str(smaller) in tried:
                continue
            tried.add(str(smaller))
            most -= 1
            if most <= 0:
                break
            if (yield smaller):
                program, again = smaller, True
                break
    return program


def smaller_forms(p: Program) -> Iterator[Program]:
    """Programs with a part left out or simpler, the greatest parts first."""
    if len(p.calls) > 1:
        yield from (
            replace(p, calls=p.calls[:n] + p.calls[n + 1 :]) for n in range(len(p.calls))[::-1]
        )
    yield from _fewer_statements(p)
    if len(p.results) > 1:
        yield from (replace(p, results=(one,)) for one in p.results[::-1])
        for n in range(len(p.results)):
            yield replace(p, results=p.results[:n] + p.results[n + 1 :])
    text = "\n".join((*p.body, *p.results, *(s for c in p.calls for s in (*c.before, *c.after))))
    unread = [name for name in p.parameters if not re.search(rf"\b{name}\b", text)]
    for gone in ([unread] if len(unread) > 1 else []) + [[name] for name in unread]:
        yield replace(p, calls=tuple(_without(call, gone) for call in p.calls))
    for n in range(len(p.setup))[::-1]:
        yield replace(p, setup=p.setup[:n] + p.setup[n + 1 :])
    for where, call in enumerate(p.calls):
        for smaller in _simpler_calls(call):
            yield replace(p, calls=p.calls[:where] + (smaller,) + p.calls[where + 1 :])
    for parts, name in ((p.body, "body"), (p.setup, "setup")):
        for n, part in enumerate(parts):
            for form in _shorter_blocks(part):
                yield replace(p, **{name: parts[:n] + (form,) + parts[n + 1 :]})  # type: ignore[arg-type]
    if p.backend == "inductor":
        yield from (replace(p, backend=b) for b in ("aot_eager_prims", "aot_eager", "eager"))
    elif p.backend == "aot_eager_prims":
        yield from (replace(p, backend=b) for b in ("aot_eager", "eager"))
    elif p.backend == "aot_eager":
        yield replace(p, backend="eager")


def _fewer_statements(p: Program) -> Iterator[Program]:
    size = len(p.body) // 2
    while size >= 1:
        for start in range(0, len(p.body), size)[::-1]:
            body = p.body[:start] + p.body[start + size :]
            gone = {s.partition(" = ")[0] for s in p.body[start : start + size]}
            kept = {s.partition(" = ")[0] for s in body}
            results = tuple(r for r in p.results if r not in gone or r in kept)
            yield replace(p, body=body, results=results)
        size //= 2
    for n, statement in enumerate(p.body):  # of one that others read, its value may be an input
        name, _, value = statement.partition(" = ")
        for other in re.findall(r"\b[xtuv]\d*\b", value)[:2]:
            body = tuple(re.sub(rf"\b{name}\b", other, s) for k, s in enumerate(p.body) if k != n)
            yield replace(p, body=body, results=tuple(r for r in p.results if r != name))


def _without(call: Call, gone: list[str]) -> Call:
    return replace(call, arguments={k: v for k, v in call.arguments.items() if k not in gone})


def _simpler_calls(call: Call) -> Iterator[Call]:
    for n in range(len(call.before))[::-1]:
        yield replace(call, before=call.before[:n] + call.before[n + 1 :])
    for n in range(len(call.after))[::-1]:
        yield replace(call, after=call.after[:n] + call.after[n + 1 :])
    for name, text in call.arguments.items():
        for simpler in _simpler_inputs(text):
            yield replace(call, arguments=call.arguments | {name: simpler})


def _simpler_inputs(text: str) -> Iterator[str]:
    found = re.search(r"make\(\(([\d, ]*)\), (torch\.\w+), (\d+), '(\w+)', '(\w+)'\)", text)
    if not found:
        return
    shape, dtype, seed, kind, layout = found.groups()
    sizes = [int(size) for size in shape.replace(" ", "").split(",") if size]

    def form(sizes: list[int], seed: str, kind: str, layout: str) -> str:
        inner = ", ".join(map(str, sizes)) + ("," if len(sizes) == 1 else "")
        new = f"make(({inner}), {dtype}, {seed}, {kind!r}, {layout!r})"
        return text[: found.start()] + new + text[found.end() :]  # type: ignore[union-attr]

    if layout != "dense":
        yield form(sizes, seed, kind, "dense")
    if kind not in ("normal", "whole"):
        yield form(sizes, seed, "normal", layout)
    for n, size in enumerate(sizes):
        for less in {1, 2, size // 2} if size > 2 else {1} if size == 2 else set():
            yield form(sizes[:n] + [less] + sizes[n + 1 :], seed, kind, layout)
    if sizes:
        yield form(sizes[1:], seed, kind, layout)


def _shorter_blocks(text: str) -> Iterator[str]:
    """A statement of several lines without one of its lines, and what is indented below it."""
    lines = text.split("\n")
    if len(lines) < 2:
        return
    for n, line in enumerate(lines):
        deep = len(line) - len(line.lstrip())
        end = n + 1
        while end < len(lines) and len(lines[end]) - len(lines[end].lstrip()) > deep:
            end += 1
        if lines[:n] + lines[end:]:
            yield "\n".join(lines[:n] + lines[end:])
        if end > n + 1 and n:  # what is below it, without it
            inner = [inner[4:] for inner in lines[n + 1 : end]]
            yield "\n".join(lines[:n] + inner + lines[end:])
