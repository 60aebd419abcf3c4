"""Products of a few vectors by matrices of four bits, and their machine instructions.

In: memory of vectors, of bytes that hold two numbers each and of scales. Out: a tile of sums in
float32. Invariant: the numbers are made elements of half precision as PyTorch makes them, rounded
once; under the interpreter a plain product of the same elements is summed.

A warp multiplies 16 columns. Of the operand of `mma.m16n8k16` that a thread has (PTX ISA,
"Matrix Fragments for mma.m16n8k16"), the two elements of a register may be any two terms as long as
the other operand has the same two: the lower and the upper half of 32 bits shifted by 0, 4, 8 and
12 are numbers 0 and 4, 1 and 5, 2 and 6, 3 and 7, so that none is moved before it is multiplied.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flambeau_inductor.runtime.device_functions.float32.instructions import DEVICE

TERMS = tl.constexpr(32)
"""What a thread reads at once of a row: 16 bytes."""


@triton.jit
def _elements(words, scale, HALF: tl.constexpr, ZERO: tl.constexpr, SCALED: tl.constexpr):
    """Numbers 0 and 4 of 32 bits as two elements. A number in the last bits of a power of two is
    that power and the number, exactly."""
    KIND: tl.constexpr = "f16x2" if HALF else "bf16x2"
    POWER: tl.constexpr = "0x64006400" if HALF else "0x43004300"
    ONE: tl.constexpr = "0x3c003c00" if HALF else "0x3f803f80"
    SCALE: tl.constexpr = f"fma.rn.{KIND} $0, t, $2, n;" if SCALED else "mov.b32 $0, t;"
    return tl.inline_asm_elementwise(
        f"{{ .reg .b32 t, z, o, n; lop3.b32 t, $1, 0x000f000f, {POWER}, 0xEA; mov.b32 z, {ZERO};"
        f" mov.b32 o, {ONE}; mov.b32 n, 0x80008000; fma.rn.{KIND} t, t, o, z; {SCALE} }}",
        "=r,r,r",
        [words, scale],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def _multiplied(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, HALF: tl.constexpr):
    KIND: tl.constexpr = "f16.f16" if HALF else "bf16.bf16"
    return tl.inline_asm_elementwise(
        f"mma.sync.aligned.m16n8k16.row.col.f32.{KIND}.f32"
        " {$0,$1,$2,$3}, {$8,$9,$10,$11}, {$12,$13}, {$4,$5,$6,$7};",
        "=f,=f,=f,=f,f,f,f,f,r,r,r,r,r,r",
        [c0, c1, c2, c3, a0, a1, a2, a3, b0, b1],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=True,
        pack=1,
    )


@triton.jit
def _halves(a, b, WHICH: tl.constexpr):
    """The lower (0x5410) or the upper (0x7632) halves of two words as one."""
    return tl.inline_asm_elementwise(
        f"prmt.b32 $0, $1, $2, {WHICH};", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _four(at, inside):
    """Four words in a row, of each thread."""
    words = tl.load(at[:, None] + tl.arange(0, 4)[None, :], inside[:, None], other=0)
    pairs = tl.reshape(words, [words.shape[0], 2, 2])
    even, odd = tl.split(pairs)
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def _eight_terms(
    c0, c1, c2, c3, u, v, su, sv, x0, x1, x2, x3,
    HALF: tl.constexpr, ZERO: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Sums with 8 terms of two columns more, whose vectors' elements are `x0` to `x3`."""
    for turn in tl.static_range(2):
        a0 = _elements(u >> 8 * turn, su, HALF, ZERO, SCALED)
        a1 = _elements(v >> 8 * turn, sv, HALF, ZERO, SCALED)
        a2 = _elements(u >> 8 * turn + 4, su, HALF, ZERO, SCALED)
        a3 = _elements(v >> 8 * turn + 4, sv, HALF, ZERO, SCALED)
        low, high = (x0, x2) if turn == 0 else (x1, x3)
        b0 = _halves(low, high, "0x5410")
        b1 = _halves(low, high, "0x7632")
        c0, c1, c2, c3 = _multiplied(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, HALF)
    return c0, c1, c2, c3


@triton.jit
def _scale(at, inside, SCALED: tl.constexpr):
    if SCALED:
        bits = tl.load(at.to(tl.pointer_type(tl.uint16)), inside, other=0).to(tl.int32)
        return bits | bits << 16
    else:
        return tl.zeros_like(inside).to(tl.int32)


@triton.jit
def packed_product(
    x, x_row, words, word_row, scales, scale_row, scale_group, first_row, first_column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr, GROUP: tl.constexpr,
    MINUS: tl.constexpr, ZERO: tl.constexpr, SCALED: tl.constexpr, WARPS: tl.constexpr,
):  # fmt: skip
    """Sums of 8 rows by 16 columns, [8, 16] in float32. `x`: vectors of half precision;
    `words`: 32 bits each. Strides, in elements: `x_row` from vector to vector, `word_row` and
    `scale_row` from column to column, `scale_group` from group to group. `ZERO` is subtracted from
    each number; `MINUS` is the same negated, less the power of two that the number is in the last
    bits of, twice in 32 bits of half precision."""
    HALF: tl.constexpr = x.dtype.element_ty == tl.float16
    if DEVICE:
        thread = tl.arange(0, 32 * WARPS)
        warp = thread // 32
        group, place = thread % 32 // 4, thread % 4
        column = tl.minimum(first_column + group, COLUMNS - 1)
        other = tl.minimum(first_column + group + 8, COLUMNS - 1)
        row = tl.minimum(first_row + group, ROWS - 1)
        x_at = x.to(tl.pointer_type(tl.int32)) + row * (x_row // 2)
        u_at, v_at = words + column * word_row, words + other * word_row
        su_at, sv_at = scales + column * scale_row, scales + other * scale_row
        c0 = tl.zeros([32 * WARPS], tl.float32)
        c1, c2, c3 = c0, c0, c0
        for step in range((INNER + 128 * WARPS - 1) // (128 * WARPS)):
            term = (step * WARPS + warp) * 128 + 32 * place
            inside = term < INNER
            u0, u1, u2, u3 = _four(u_at + term // 8, inside)
            v0, v1, v2, v3 = _four(v_at + term // 8, inside)
            of = term // GROUP * scale_group
            su = _scale(su_at + of, inside, SCALED)
            sv = _scale(sv_at + of, inside, SCALED)
            at = x_at + term // 2
            x0, x1, x2, x3 = _four(at, inside)
            x4, x5, x6, x7 = _four(at + 4, inside)
            x8, x9, x10, x11 = _four(at + 8, inside)
            x12, x13, x14, x15 = _four(at + 12, inside)
            c0, c1, c2, c3 = _eight_terms(
                c0, c1, c2, c3, u0, v0, su, sv, x0, x1, x2, x3, HALF, MINUS, SCALED
            )
            c0, c1, c2, c3 = _eight_terms(
                c0, c1, c2, c3, u1, v1, su, sv, x4, x5, x6, x7, HALF, MINUS, SCALED
            )
            c0, c1, c2, c3 = _eight_terms(
                c0, c1, c2, c3, u2, v2, su, sv, x8, x9, x10, x11, HALF, MINUS, SCALED
            )
            c0, c1, c2, c3 = _eight_terms(
                c0, c1, c2, c3, u3, v3, su, sv, x12, x13, x14, x15, HALF, MINUS, SCALED
            )
        c0, c1 = tl.sum(tl.reshape(c0, [WARPS, 32]), 0), tl.sum(tl.reshape(c1, [WARPS, 32]), 0)
        c2, c3 = tl.sum(tl.reshape(c2, [WARPS, 32]), 0), tl.sum(tl.reshape(c3, [WARPS, 32]), 0)
        pairs = tl.join(tl.join(c0, c1), tl.join(c2, c3))  # of a thread: row, then half of columns
        total = tl.reshape(pairs, [8, 4, 2, 2])
        return tl.reshape(tl.permute(total, [1, 2, 3, 0]), [8, 16])
    else:
        rows = tl.minimum(first_row + tl.arange(0, 8), ROWS - 1)
        columns = tl.minimum(first_column + tl.arange(0, 16), COLUMNS - 1)
        total = tl.zeros([8, 16], tl.float32)
        for term in range(0, INNER, TERMS):
            terms = term + tl.arange(0, TERMS)
            held = tl.load(words + columns[:, None] * word_row + terms[None, :] // 8)
            elements = (((held >> 4 * (terms[None, :] % 8)) & 15) - ZERO).to(x.dtype.element_ty)
            if SCALED:
                scale = tl.load(scales + columns * scale_row + term // GROUP * scale_group)
                wide = elements.to(tl.float32) * scale.to(tl.float32)[:, None]
                elements = wide.to(elements.dtype)
            vectors = tl.load(x + rows[:, None] * x_row + terms[None, :])
            products = vectors.to(tl.float32)[:, None, :] * elements.to(tl.float32)[None, :, :]
            total += tl.sum(products, 2)
        return total
