"""Cases of one pass over memory: functions, their operands, and the passes that are needed.

In: nothing. Out: `CASES`. Invariant: the operands of a case are `BYTES` long whatever the dtype,
far more than the caches hold, and `forward` and `backward` count passes over so many bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

MOVES, HEAVY = 0.95, 0.85
"""Goals, as shares of a copy: of what only moves bytes, and of what is heavy in exponentials."""
BYTES = 512 << 20
COLUMNS, WORDS = 4096, 50000
LENGTHS = (64, 256, 1024, 4096, 32768, 131072)
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}

Operands = tuple[Tensor, ...]


@dataclass(frozen=True)
class Case:
    """`backward` is None where there is nothing to differentiate by one pass over memory; the
    gradients are those of the operands at `leaves`. What is `random` is not compared. `options` are
    our own."""

    fn: Callable[..., Tensor]
    operands: Callable[[], Operands]
    forward: float
    backward: float | None = None
    goal: float = MOVES
    leaves: tuple[int, ...] = (0,)
    random: bool = False
    options: tuple[tuple[str, Any], ...] = ()


def draw(dtype: torch.dtype, *shape: int) -> Tensor:
    """Normally distributed numbers."""
    return torch.randn(shape, device="cuda").to(dtype)


def matrix(dtype: torch.dtype, columns: int = COLUMNS) -> Tensor:
    """One operand of `BYTES`."""
    return draw(dtype, rows(dtype, columns), columns)


def rows(dtype: torch.dtype, columns: int = COLUMNS) -> int:
    """Of so many columns."""
    return BYTES // dtype.itemsize // columns


def whole(x: Tensor) -> Tensor:
    """Half precision as float32; anything wider as it is."""
    return x.float() if x.dtype.itemsize < 4 else x


def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def norm_gelu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x, (x.shape[-1],), w, b))


def residual_norm(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x + y, (x.shape[-1],), w, b)


def dropout_residual_norm(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(F.dropout(x, 0.1, training=True) + y, (x.shape[-1],), w, b)


def rmsnorm_swiglu(x: Tensor, gate: Tensor, w: Tensor) -> Tensor:
    wide = whole(x)
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (wide * scale).to(x.dtype) * w * F.silu(gate)


def rope(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = q.shape[-1] // 2
    turned = torch.cat((-q[..., half:], q[..., :half]), -1)
    return q * cos + turned * sin


def chain(x: Tensor, y: Tensor) -> Tensor:
    return torch.sigmoid(x * 1.5 + y) * torch.tanh(x) + y.abs().sqrt()


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)


def gelu(x: Tensor) -> Tensor:
    return F.gelu(x)


def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(whole(x), target)


def transpose_add(x: Tensor, y: Tensor) -> Tensor:
    return x.t() + y


def transpose_mul(x: Tensor, y: Tensor) -> Tensor:
    return x.t() * y


def column_sums(x: Tensor) -> Tensor:
    return whole(x).sum(0)


def column_squares(x: Tensor) -> Tensor:
    return whole(x).square().sum(0)


def row_variance(x: Tensor) -> Tensor:
    return whole(x).var(-1)


def embedding(table: Tensor, words: Tensor) -> Tensor:
    return F.embedding(words, table)


def of_dtype(dtype: torch.dtype) -> Iterator[tuple[str, Case]]:
    """The cases in one dtype, by name."""

    def m() -> Tensor:
        return matrix(dtype)

    def w(columns: int = COLUMNS) -> Tensor:
        return draw(dtype, columns)

    def turned() -> Tensor:
        return draw(dtype, COLUMNS, rows(dtype))

    def labels() -> Tensor:
        return torch.randint(0, COLUMNS, (rows(dtype),), device="cuda")

    def normed(columns: int) -> Operands:
        return matrix(dtype, columns), w(columns), w(columns)

    def heads() -> Operands:
        length = rows(dtype, 128) // 256
        return draw(dtype, 8, 32, length, 128), draw(dtype, length, 128), draw(dtype, length, 128)

    def looked_up() -> Operands:
        words = torch.randint(0, WORDS, (BYTES // 8192,), device="cuda")
        return draw(dtype, WORDS, 8192 // dtype.itemsize), words

    for length in LENGTHS:
        yield f"softmax of {length}", Case(softmax, lambda n=length: (matrix(dtype, n),), 2, 3)
    for length in LENGTHS:
        case = Case(norm, lambda n=length: normed(n), 2, 3, leaves=(0, 1, 2))
        yield f"layernorm of {length}", case
    dropout = Case(
        dropout_residual_norm, lambda: (m(), m(), w(), w()), 3, 4, MOVES, (0, 1, 2, 3), True
    )
    table = {
        "log-softmax": Case(log_softmax, lambda: (m(),), 2, 3),
        "residual+layernorm": Case(residual_norm, lambda: (m(), m(), w(), w()), 3),
        "layernorm+gelu": Case(norm_gelu, lambda: (m(), w(), w()), 2, 3, HEAVY, (0, 1, 2)),
        "dropout+residual+layernorm": dropout,
        "dropout+residual+layernorm, own numbers": replace(
            dropout, options=(("random", "philox"),)
        ),
        "rmsnorm+swiglu": Case(rmsnorm_swiglu, lambda: (m(), m(), w()), 3, 5, HEAVY, (0, 1, 2)),
        "gelu": Case(gelu, lambda: (m(),), 2, 3, HEAVY),
        "gelu by tanh": Case(gelu_tanh, lambda: (m(),), 2, 3, HEAVY),
        "pointwise chain": Case(chain, lambda: (m(), m()), 3, 5, HEAVY, (0, 1)),
        "cross-entropy": Case(cross_entropy, lambda: (m(), labels()), 1, 2, HEAVY),
        "rope": Case(rope, heads, 2, 2),
        "transpose+add": Case(transpose_add, lambda: (m(), turned()), 3),
        "transpose*": Case(transpose_mul, lambda: (m(), turned()), 3, 5, MOVES, (0, 1)),
        "column sums": Case(column_sums, lambda: (m(),), 1),
        "column sums of squares": Case(column_squares, lambda: (m(),), 1, 2),
        "variance of rows": Case(row_variance, lambda: (m(),), 1, 2),
        "embedding": Case(embedding, looked_up, 2, 1 + WORDS * 8192 / BYTES),
    }
    yield from table.items()


CASES: dict[str, Case] = {
    f"{name} {label}": case for label, dtype in DTYPES.items() for name, case in of_dtype(dtype)
}
