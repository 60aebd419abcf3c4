"""Programs of a few integers: made, viewed, written to and read in any order.

In: a seed. Out: the source of a function of two small tensors and a float, and calls of it.
Invariant: the programs raise nothing in eager, so that captured code may not either.
"""

from __future__ import annotations

import random

MADE = ("torch.ones(4).long()", "torch.arange(4)", "torch.zeros(4, dtype=torch.long)", "a", "b",
        "torch.tensor([3, 1, 2, 0])", "a * b", "(a > 1).long()", "torch.full_like(b, 2)",
        )  # fmt: skip
VIEWS = ("{0}[:]", "{0}.view(2, 2).view(4)", "{0}.flip(0)", "{0}.clone()", "{0}.detach()",
         "{0}.reshape(4)", "{0} + 1", "{0}.clamp(0, 3)", "torch.where({0} > 1, {0}, 0)",
         "{0}.cumsum(0)", "{0}.data", "{0}.sort()[0]", "{0}.expand(4)")  # fmt: skip
WRITES = ("{0}.add_(1)", "{0}[1] = 5", "{0}[:2] += 1", "{0}.data.add_(1)", "{0}.numpy()[2] = 4",
          "{0} *= 2", "{0}[{0} > 2] = 0", "torch.add({0}, 1, out={0})", "{0}.copy_({1})",
          "{0}.fill_(2)", "{0}.detach().sub_(1)", "torch._foreach_add_([{0}], 1)")  # fmt: skip
READS = ("x = x * {0}.sum().item()", "x = x + {0}.tolist()[2]", "x = x - int({0}[1])",
         "x = x + 1 if ({0} > 1).any() else x * 2", "x = x + {0}[{0} > 1].sum()",
         "x = x + len({0}.nonzero())", "x = x + torch.arange({0}.max() % 5 + 1).sum()",
         "x = x.repeat({0}[3].abs() % 2 + 1)[:1]", "found.append({0}.max().item())",
         "x = x + torch.repeat_interleave({0}, {0}.abs() % 3).sum()",
         "x = x * (2 if {0}[0] else 3)", "kept = {0}[torch.arange(4) % 2 == 0].clone()",
         )  # fmt: skip


def program(seed: int) -> str:
    """A function `run(x, a, b)` as source."""
    draw = random.Random(seed)
    names = ["a", "b"]
    lines = []
    for step in range(draw.randint(3, 9)):
        kind = draw.random()
        if kind < 0.2:
            names.append(f"n{step}")
            lines.append(f"{names[-1]} = {draw.choice(MADE)}")
        elif kind < 0.5:
            made = draw.choice(VIEWS).format(draw.choice(names))
            names.append(f"n{step}")
            lines.append(f"{names[-1]} = {made}")
        elif kind < 0.6:
            lines.append(draw.choice(WRITES).format(draw.choice(names), draw.choice(names)))
        else:
            lines.append(draw.choice(READS).format(draw.choice(names)))
    lines.append(draw.choice(READS).format(draw.choice(names)))
    body = "\n    ".join(["found = []", *lines, f"return x, found, {', '.join(names)}"])
    return f"def run(x, a, b):\n    {body}\n"
