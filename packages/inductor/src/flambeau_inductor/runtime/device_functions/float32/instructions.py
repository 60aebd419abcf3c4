"""Machine instructions, each with a plain form for the interpreter, and sums of products.

In: numbers of float32, and of float64 where it says so. Out: Triton tensors of the same shape.
Invariant: a call that is an instruction on the device is an equal formula under the interpreter.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl

DEVICE = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1")
"""False under the interpreter, which knows no machine instructions."""


@triton.jit
def instruction(NAME: tl.constexpr, x):
    """A machine instruction of one operand and a result of its dtype, float32 or float64."""
    KINDS: tl.constexpr = "=d,d" if x.dtype == tl.float64 else "=f,f"
    return tl.inline_asm_elementwise(
        f"{NAME} $0, $1;", KINDS, [x], dtype=x.dtype, is_pure=True, pack=1
    )


@triton.jit
def again(x):
    """The same numbers of 16 bits as values of their own, so that what was computed from them
    before need not be kept."""
    if DEVICE:
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2
        )
    else:
        return x


@triton.jit
def as_bfloat16(x):
    """float32 rounded to bfloat16 and kept as float32. Two at a time: one conversion of the
    arithmetic units, where each alone takes one of the few that also compute exponentials."""
    if DEVICE:
        return tl.inline_asm_elementwise(
            "{ .reg .b32 both; cvt.rn.bf16x2.f32 both, $3, $2;"
            " shl.b32 $0, both, 16; and.b32 $1, both, 0xffff0000; }",
            "=&r,=r,r,r",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=2,
        )
    else:
        return x.to(tl.bfloat16).to(tl.float32)


@triton.jit
def inverse(x):
    """1 / x of float32 within 1 ulp; what is smaller than the smallest normal number is zero."""
    if DEVICE:
        return instruction("rcp.approx.ftz.f32", x)
    else:
        return 1.0 / x


@triton.jit
def inverse_with_denormals(x):
    """The same, denormal results included."""
    if DEVICE:
        return instruction("rcp.approx.f32", x)
    else:
        return 1.0 / x


@triton.jit
def mad(x, p, c):
    """x * p + c, rounded once in float32: kernels are compiled with no contraction across
    instructions (eager rounds each operator's result), so what may be contracted says so."""
    if x.dtype == tl.float64:
        return x * p + c
    else:
        return tl.fma(x, p, c)


@triton.jit
def polynomial(x, COEFFICIENTS: tl.constexpr):
    """By Horner's rule, the coefficient of the highest power first."""
    value = mad(x, COEFFICIENTS[0], COEFFICIENTS[1])
    for k in tl.static_range(2, len(COEFFICIENTS)):
        value = mad(x, value, COEFFICIENTS[k])
    return value


@triton.jit
def quotient(a, b):
    """a / b of float32 or float64, correctly rounded."""
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def reciprocal(x):
    """1 / x of float32, correctly rounded."""
    return tl.div_rn(tl.full(x.shape, 1.0, tl.float32), x)


@triton.jit
def rsqrt(x):
    """1 / sqrt(x) of float32 by the instruction that eager's kernels use (2 ulp), which takes
    denormal numbers as they are."""
    if DEVICE:
        return instruction("rsqrt.approx.f32", x)
    else:
        return 1.0 / tl.sqrt_rn(x)


@triton.jit
def exp2(x):
    """2**x of float32 within 2 ulp, denormal results included."""
    if DEVICE:
        return instruction("ex2.approx.f32", x)
    else:
        return tl.exp2(x)
