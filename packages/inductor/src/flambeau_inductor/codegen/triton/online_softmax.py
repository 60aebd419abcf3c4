"""Online softmax: a row's maximum and sum of exponentials in one pass.

In: a loop with `sum(exp(x - max(x)))`. Out: which of its sums go with which maximum, and the lines
of such a pair. Invariant: the sum is that of the two passes but for rounding: a row without a
finite maximum gives NaN, as `exp(x - max)` does there.

Each lane of a block keeps a maximum and a sum of its own, and scales the sum when the maximum grows
(M. Milakov and N. Gimelshein: Online normalizer calculation for softmax, 2018).
"""

from __future__ import annotations

import torch

from flambeau_inductor.ir.loops import Loop, Point, Reduce


def online_sums(loop: Loop) -> dict[int, int]:
    """For each sum that can be had beside a maximum, the position of that maximum."""
    found: dict[int, int] = {}
    for position, instr in enumerate(loop.body):
        if not isinstance(instr, Reduce) or instr.kind != "sum" or instr.dtype != torch.float32:
            continue
        powers = loop.body[instr.arg]
        if not isinstance(powers, Point) or powers.op != "exp" or powers.dtype != torch.float32:
            continue
        moved = loop.body[powers.args[0]]
        if not isinstance(moved, Point) or moved.op != "sub" or moved.dtype != torch.float32:
            continue
        value, at = moved.args
        top = loop.body[at]
        if isinstance(top, Reduce) and top.kind == "max" and top.arg == value:
            if top.dtype == torch.float32 and at not in found.values():
                found[position] = at
    return found


def start(total: str, top: str, shape: str) -> list[str]:
    """Lines before the loop over blocks."""
    return [
        f"{top} = tl.full({shape}, fm.LOWEST, tl.float32)",
        f"{total} = tl.zeros({shape}, tl.float32)",
    ]


def step(total: str, top: str, value: str, mask: str | None) -> list[str]:
    """Lines inside it."""
    held = f"tl.where({mask}, {value}, float('-inf'))" if mask else value
    return [f"{top}, {total} = fm.online_sum({top}, {total}, {held})"]


def finish(total: str, top: str, result: str, result_top: str) -> list[str]:
    """Lines after it, leaving the sum in `result` and the maximum in `result_top`."""
    return [
        f"{result_top} = tl.reduce({top}, 1, fm.maximum)[:, None]",
        f"{result} = tl.sum(fm.online_share({top}, {total}, {result_top}), 1)[:, None]",
        f"{result_top}, {result} = fm.online_result({result}, {result_top})",
    ]
