"""Table of the opcodes of the Python that runs it, which need have nothing installed.

`python3.14 tools/opcodes.py > packages/capture/src/flambeau_capture/bytecode/tables/3.14.txt`

A line is an opcode: name, number, what its operand stands for, inline cache units, change of the
stack's depth, and after a slash the change where it jumps. A term `2*n>>1&3` counts `n >> 1 & 3`
(n is the operand) twice. Lines with an @ name what operands number: operators, intrinsics, ...
Of an instrumented opcode, which no code object shows, there is the number alone.
"""

from __future__ import annotations

import dis
import opcode
import sys

#: up to the operands that fill two bytes: UNPACK_EX counts each on its own
BITS = 10


def kind(name: str, code: int) -> str:
    """What the operand stands for. Corrected: what the standard library says for its own use."""
    known = {
        "BINARY_OP": "binary",
        "CALL_INTRINSIC_1": "intrinsic_1",
        "CALL_INTRINSIC_2": "intrinsic_2",
        "COPY_FREE_VARS": "free_count",
        "END_ASYNC_FOR": "none",  # from 3.14 on a distance that only monitors look at
        "LOAD_CLOSURE": "cell",
        "LOAD_COMMON_CONSTANT": "common",
        "LOAD_DEREF": "cell",
        "LOAD_SMALL_INT": "small_int",
        "LOAD_SPECIAL": "special",
    }
    groups = {
        "name": opcode.hasname,
        "const": opcode.hasconst,
        "local": opcode.haslocal,
        "cell": opcode.hasfree,
        "compare": opcode.hascompare,
        "jump": [*opcode.hasjrel, *opcode.hasjabs],
    }
    if name in known:
        return known[name]
    for group, members in groups.items():
        if code in members:
            return group
    return "number" if takes_operand(code) else "none"


def takes_operand(code: int) -> bool:
    members = getattr(opcode, "hasarg", ())
    return code in members if members else code >= opcode.HAVE_ARGUMENT


def effect(code: int, *, jump: bool) -> str:
    """The change of depth as a number and terms: it is a sum over the bits of the operand."""
    if not takes_operand(code):
        return str(dis.stack_effect(code, jump=jump))
    base = dis.stack_effect(code, 0, jump=jump)
    weights = [dis.stack_effect(code, 1 << bit, jump=jump) - base for bit in range(BITS)]
    one = weights[0]
    if all(weight == one << bit for bit, weight in enumerate(weights)):
        terms = [f"{one}*n"] if one else []
    elif weights == [*(one << bit for bit in range(8)), weights[8], 2 * weights[8]]:
        terms = [f"{one}*n&255", f"{weights[8]}*n>>8"] if weights[8] else [f"{one}*n&255"]
    else:
        terms = [f"{w}*n>>{bit}&1" for bit, w in enumerate(weights) if w]
    return " ".join([str(base), *terms])


def inline_caches(name: str, code: int) -> int:
    table = getattr(opcode, "_inline_cache_entries")  # noqa: B009 - absent from the stubs
    if isinstance(table, dict):
        return int(table.get(name, 0))
    return int(table[code]) if code < len(table) else 0


def row(name: str, code: int) -> str:
    if name.startswith("INSTRUMENTED_"):
        return f"{name} {code}"
    if name == "BUILD_SLICE":  # of 2 or 3: of other numbers some versions say what others do not
        return f"{name} {code} number 0 1 -1*n"
    plain, jumping = effect(code, jump=False), effect(code, jump=True)
    ending = f" / {jumping}" if kind(name, code) == "jump" else ""
    return f"{name} {code} {kind(name, code)} {inline_caches(name, code)} {plain}{ending}"


def lists() -> dict[str, list[str]]:
    """What operands number, by the kind of operand."""
    common = getattr(opcode, "_common_constants", ())
    return {
        "compare": [*opcode.cmp_op],
        "binary": [symbol for _, symbol in getattr(opcode, "_nb_ops")],  # noqa: B009
        "intrinsic_1": [*getattr(opcode, "_intrinsic_1_descs", ())],
        "intrinsic_2": [*getattr(opcode, "_intrinsic_2_descs", ())],
        "special": [*getattr(opcode, "_special_method_names", ())],
        "common": [each.__name__ for each in common],
    }


def text() -> str:
    lines = [f"# CPython {sys.version_info[0]}.{sys.version_info[1]}, written by tools/opcodes.py"]
    lines += [" ".join([f"@{name}", *items]) for name, items in lists().items() if items]
    lines += [row(name, code) for name, code in sorted(opcode.opmap.items()) if code <= 255]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
