"""Which library calls a template replaces without measurement.

In: a scheduled program on a GPU. Out: `Selected`. Invariant: only calls that the template was
faster than at every size measured (`benchmarks/results/h200-gpu-check.md`), on devices like the one
it was measured on, and only where the work outweighs the compile.

Attention in half precision: the library's kernel for operands with a bias takes two to three times
as long as the template, its other one (FlashAttention 2) half as long again, forth and back;
cuDNN's is faster and stays.
"""

from __future__ import annotations

import torch

from flambeau_inductor.ir.program import Extern, Program
from flambeau_inductor.templates.attention import Attention, blocks_for
from flambeau_inductor.templates.attentions import find_attention
from flambeau_inductor.templates.backwards import find_backward
from flambeau_inductor.templates.flash import attention_kernel
from flambeau_inductor.templates.flash_backward import backward_blocks
from flambeau_inductor.templates.select import (
    Selected,
    facts,
    with_attention,
    with_backward,
)

SLOWER = frozenset(
    {
        "flambeau_prims.attention.default",
        "flambeau_prims.attention_backward.default",
        "aten._scaled_dot_product_flash_attention.default",
        "aten._scaled_dot_product_flash_attention_backward.default",
        "aten._scaled_dot_product_efficient_attention.default",
        "aten._scaled_dot_product_efficient_attention_backward.default",
    }
)
CAPABILITY = (9, 0)
"""Of the devices that this was measured on."""
LEAST_LENGTH = 256
LEAST_OPERATIONS = 1e9
WIDTHS = (32, 128)


def select_by_model(program: Program) -> Selected:
    """The program with templates in the place of calls that they are known to be faster than."""
    selected = Selected(program)
    done: set[str] = set()
    while True:
        calls = [f for f in find_attention(selected.program) if f.result not in done]
        if not calls:
            break
        found = calls[0]
        done.add(found.result)
        if _slower(selected.program, found.call) and worth(found.attention):
            blocks = blocks_for(found.attention, described=True)[0]
            name = f"{found.result}_{blocks.name}"
            kernel = attention_kernel(found.attention, blocks, *facts(selected.program), name)
            with_attention(selected, found, kernel)
            selected.chosen[found.result] = blocks.name
    while True:
        backwards = [f for f in find_backward(selected.program) if f.result not in done]
        if not backwards:
            return selected
        back = backwards[0]
        done.add(back.result)
        if _slower(selected.program, back.call) and worth(back.backward.forward):
            pair = backward_blocks(back.backward.forward, described=True)[0]
            kernels = back.kernels(pair, *facts(selected.program), f"{back.result}_{pair[0].name}")
            with_backward(selected, back, kernels)
            selected.chosen[back.result] = "+".join(blocks.name for blocks in pair)


def worth(attention: Attention) -> bool:
    """Whether the template is known to be faster for such operands, and by enough."""
    batch, heads, _, length, keys, width, out = attention.sizes
    operations = 2 * batch * heads * length * keys * (width + out) / (2 if attention.causal else 1)
    least, most = WIDTHS
    return (
        attention.dtype in (torch.bfloat16, torch.float16)
        and min(length, keys) >= LEAST_LENGTH
        and least <= min(width, out)
        and max(width, out) <= most
        and operations >= LEAST_OPERATIONS
    )


def _slower(program: Program, call: int) -> bool:
    step = program.steps[call]
    return isinstance(step, Extern) and step.target in SLOWER
