"""The statements a program is made of.

What comes in: names and values of the tensors made so far, and random numbers. What goes out:
Python source of one statement whose result is called `r`, or None where it does not apply.
Invariant: a statement reads nothing but tensors of the program and names of `scope`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Operands:
    """Two tensors of the program so far, by name and by value, and two small numbers."""

    a: str
    b: str
    x: torch.Tensor
    y: torch.Tensor
    i: int
    j: int

    @property
    def dim(self) -> int:
        return self.i % self.x.dim() if self.x.dim() else 0

    @property
    def other(self) -> int:
        return self.j % self.x.dim() if self.x.dim() else 0

    @property
    def at(self) -> int:
        return self.j % self.x.shape[self.dim] if self.x.dim() and self.x.shape[self.dim] else 0


Statement = Callable[[Operands], str | None]


def real(code: str, dims: int = 0) -> Statement:
    """An expression of a floating-point `a` of at least so many dimensions."""

    def make(o: Operands) -> str | None:
        if not o.x.is_floating_point() or o.x.dim() < dims:
            return None
        return "r = " + fill(code, o)

    return make


def floats(code: str, dims: int = 0) -> Statement:
    """An expression of two tensors of one floating-point dtype."""

    def make(o: Operands) -> str | None:
        if not o.x.is_floating_point() or o.x.dtype != o.y.dtype or o.x.dim() < dims:
            return None
        return "r = " + fill(code, o)

    return make


def matrices(code: str) -> Statement:
    """An expression of two matrices that can be multiplied."""

    def make(o: Operands) -> str | None:
        if o.x.dim() != 2 or o.y.dim() != 2 or o.x.shape[1] != o.y.shape[0]:
            return None
        if not o.x.is_floating_point() or o.x.dtype != o.y.dtype:
            return None
        return "r = " + fill(code, o)

    return make


def any_tensor(code: str, dims: int = 0) -> Statement:
    """An expression of any tensor of at least so many dimensions."""

    def make(o: Operands) -> str | None:
        return None if o.x.dim() < dims else "r = " + fill(code, o)

    return make


def lines(code: str, dims: int = 0, complex_too: bool = False) -> Statement:
    """Statements on a floating-point `a` without a result."""

    def make(o: Operands) -> str | None:
        fits = o.x.is_floating_point() or (complex_too and o.x.is_complex())
        return None if not fits or o.x.dim() < dims else fill(code, o)

    return make


def reading(code: str, dims: int = 0, complex_too: bool = False) -> Statement:
    """A write to `a` by one kernel that reads `b`.

    Where the two share memory and are not the same elements, eager reads what it has written
    already, or has not yet, by the order its threads happen to take: such a program has no
    answer, and is none.
    """
    plain = lines(code, dims, complex_too)

    def make(o: Operands) -> str | None:
        return None if _entangled(o.x, o.y) else plain(o)

    return make


def _entangled(x: torch.Tensor, y: torch.Tensor) -> bool:
    if x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr():
        return False
    if not x.numel() or not y.numel():
        return False
    same = x.data_ptr() == y.data_ptr() and x.shape == y.shape and x.stride() == y.stride()
    return not same and bool(set(_places(x)) & set(_places(y)))


def _places(x: torch.Tensor) -> list[int]:
    """The addresses of the elements."""
    first, size = x.data_ptr(), x.element_size()
    offsets = [0]
    for count, step in zip(x.shape, x.stride(), strict=True):
        offsets = [start + index * step for start in offsets for index in range(count)]
    return [first + offset * size for offset in offsets]


def fill(code: str, o: Operands) -> str:
    """The code with operands and numbers in their places."""
    return code.format(
        a=o.a, b=o.b, d=o.dim, e=o.other, n=o.at, i=o.i, j=o.j, half=o.x.numel() // 2 or 1
    )


PURE: dict[str, Statement] = {
    "sin": real("{a}.sin()"),
    "tanh": real("torch.tanh({a})"),
    "sigmoid": real("{a}.sigmoid()"),
    "relu": real("F.relu({a})"),
    "gelu": real("F.gelu({a})"),
    "scale": real("{a} * 0.5"),
    "clone": any_tensor("{a}.clone()"),
    "contiguous": any_tensor("{a}.contiguous()"),
    "softmax": real("torch.softmax({a}, {d})", 1),
    "sum": real("{a}.sum({d}, keepdim={i} > 2)", 1),
    "mean": real("{a}.mean()"),
    "amax": real("{a}.amax({d})", 1),
    "cumsum": real("{a}.cumsum({d})", 1),
    "sort": real("{a}.sort({d})[0]", 1),
    "flip": real("{a}.flip({d})", 1),
    "layer norm": real("F.layer_norm({a}, {a}.shape[-1:])", 1),
    "double": real("{a}.double()"),
    "float": real("{a}.float()"),
    "positive": real("{a} > 0"),
    "argmax": real("{a}.argmax({d})", 1),
    "zeros": any_tensor("torch.zeros_like({a})"),
    "ones": any_tensor("torch.ones(2, 3)"),
    "constant": any_tensor("torch.tensor([1.0, 2.0, 3.0])"),
    "arange": any_tensor("torch.arange(3) * 1.5"),
    "add": floats("{a} + {b}"),
    "multiply": floats("{a} * {b}"),
    "subtract": floats("{a} - 0.5 * {b}"),
    "where": floats("torch.where({a} > 0, {a}, {b})"),
    "maximum": floats("torch.maximum({a}, {b})"),
    "stack": floats("torch.stack([{a}, {b}], {d})"),
    "cat": floats("torch.cat([{a}, {b}], {d})", 1),
    "matmul": matrices("{a} @ {b}"),
    "matmul transposed": matrices("({b}.t() @ {a}.t()) * 0.3"),
    "gather": real("{a}.gather({d}, {a}.argsort({d}))", 1),
    "index": real("{a}[torch.tensor([0, 0])]", 1),
    "scatter add": real(
        "torch.zeros_like({a}).scatter_add({d}, {a}.argsort({d}), {a})", 1
    ),
    "user function": real("Clamped.apply({a})"),
    "user function of two": floats("Weighted.apply({a}, {b})"),
    "checkpoint": real("checkpoint(lambda v: (v.sin() * {a}).tanh(), {a}, use_reentrant=False)"),
    "checkpoint of two": floats(
        "checkpoint(lambda v, w: (v.exp().sin() * w).cos(), {a}, {b}, use_reentrant=False)"
    ),
    "checkpoint with dropout": real(
        "checkpoint(lambda v: F.dropout(v.sin(), 0.5).cos(), {a}, "
        "use_reentrant=False)"
    ),
    "dropout": real("F.dropout({a}, 0.5)"),
    "rand": any_tensor("torch.rand(3)"),
    "rand_like": real("torch.randn_like({a}.contiguous())"),
    "fft": real("torch.view_as_real(torch.fft.fft({a}.float()))", 1),
    "complex": real("torch.complex({a}.float(), {a}.float().sin())"),
    "conj": any_tensor("{a}.conj()"),
    "complex product": real("modulus({a})"),
    "resolve": any_tensor("{a}.conj().resolve_conj()"),
    "autocast": matrices("mixed({a}, {b})"),
    "custom operator": real("torch.ops.flambeau_aot_tests.cube({a})"),
    "detached under no_grad": real("frozen({a})"),
    "item of shape": real("{a} * {a}.shape[0]", 1),
    "pole": real("({a} * 0.0).sqrt()"),
    "pole of two": floats("torch.where({a} > 0, {b}, 0.0 * {a}).abs().sqrt()"),
}  # fmt: skip

VIEWS: dict[str, Statement] = {
    "t": any_tensor("{a}.t()"),
    "transpose": any_tensor("{a}.transpose({d}, {e})", 1),
    "tail": any_tensor("{a}[1:]", 1),
    "last": any_tensor("{a}[..., -1]", 1),
    "select": any_tensor("{a}.select({d}, {n})", 1),
    "every other": any_tensor("{a}[::2]", 1),
    "narrow": any_tensor("{a}.narrow({d}, 0, 1)", 1),
    "unsqueeze": any_tensor("{a}.unsqueeze({d})"),
    "squeeze": any_tensor("{a}.squeeze()"),
    "flat": any_tensor("{a}.view(-1)"),
    "reshape": any_tensor("{a}.reshape(-1)"),
    "expand": any_tensor("{a}.unsqueeze(0).expand(2, *{a}.shape)"),
    "unbind": any_tensor("{a}.unbind({d})[{n}]", 1),
    "split": any_tensor("{a}.split(1, {d})[-1]", 1),
    "chunk": any_tensor("{a}.chunk(2, {d})[0]", 1),
    "diagonal": any_tensor("{a}.diagonal()", 2),
    "permute": any_tensor("{a}.permute(*reversed(range({a}.dim())))"),
    "strided": any_tensor("{a}.as_strided((2,), (1,))", 1),
    "strided further": any_tensor("{a}.as_strided(({half},), (1,), {a}.storage_offset())", 1),
    "detach": any_tensor("{a}.detach()"),
    "data": any_tensor("{a}.data"),
    "view_as": any_tensor("{a}.view_as({a})"),
    "whole": any_tensor("{a}[...]"),
    "unfold": any_tensor("{a}.unfold({d}, 2, 1)", 1),
    "movedim": any_tensor("{a}.movedim({d}, {e})", 1),
    "as real": lambda o: fill("r = torch.view_as_real({a})", o) if o.x.is_complex() else None,
    "real part": lambda o: fill("r = {a}.real", o) if o.x.is_complex() else None,
    "imaginary part": lambda o: fill("r = {a}.imag", o) if o.x.is_complex() else None,
    "view without grad": any_tensor("unrecorded({a})"),
    "bits": lambda o: fill("r = {a}.view(torch.int32)", o) if o.x.dtype is torch.float32 else None,
}  # fmt: skip

WRITES: dict[str, Statement] = {
    "add_": reading("{a}.add_({b})"),
    "mul_": lines("{a}.mul_(0.5)", complex_too=True),
    "copy_": reading("{a}.copy_({b})", complex_too=True),
    "zero_": lines("{a}.zero_()", complex_too=True),
    "fill_": lines("{a}.fill_(0.25)"),
    "sin_": lines("{a}.sin_()"),
    "relu_": lines("F.relu({a}, inplace=True)"),
    "iadd": lines("{a} += 1"),
    "row": lines("{a}[0] = 2.0", 1),
    "row by row": reading("{a}[-1].mul_({b})", 1),
    "column": lines("{a}[..., 0].add_(1)", 1),
    "masked": lines("{a}[{a} > 0] = 0.5", 1),
    "masked_fill_": lines("{a}.masked_fill_({a} > 0.5, -1.0)"),
    "index_put_": lines("{a}.index_put_((torch.tensor([0, 0]),), {b}.clone(), accumulate=True)", 1),
    "scatter_": lines("{a}.scatter_({d}, {a}.argsort({d}), {b}.clone())", 1),
    "clamp_": lines("{a}.clamp_(-0.5, 0.5)"),
    "add under no_grad": lines("with torch.no_grad():\n    {a}.add_(0.5)"),
    "data": lines("{a}.data.mul_(2)"),
    "detached": lines("{a}.detach().mul_(0.5)"),
    "out": reading("torch.add({b}, 1.0, out={a})"),
    "foreach": lines("torch._foreach_mul_([{a}, {b}], 0.5)"),
    "addmm_": lines("{a}.add_({a} @ {a})", 2),
    "normal_": lines("with torch.no_grad():\n    {a}.contiguous().normal_()"),
    "batch norm": lines("r = normalized({a}, {b})", 2),
    "transposed": lines("{a}.t()[0].add_(2)", 2),
    "flat": lines("{a}.view(-1)[::2].mul_(3)"),
    "swapped": lines("{a}[:, :1].copy_({a}[:, -1:])", 2),
    "custom operator": lines("torch.ops.flambeau_aot_tests.halve_({a})"),
}  # fmt: skip

METADATA: dict[str, Statement] = {
    "t_": any_tensor("{a}.t_()"),
    "transpose_": any_tensor("{a}.transpose_({d}, {e})", 1),
    "unsqueeze_": any_tensor("{a}.unsqueeze_({d})"),
    "squeeze_": any_tensor("{a}.squeeze_()"),
    "swapdims_": any_tensor("{a}.swapdims_({d}, {e})", 1),
    "detach_": any_tensor("{a}.detach_()"),
    "as_strided_": any_tensor("{a}.as_strided_((2,), (1,))", 1),
    "requires_grad_": lines("r = {a}.detach().clone().requires_grad_()"),
    "requires_grad_ in place": lambda o: None if o.x.requires_grad else f"{o.a}.requires_grad_()",
    "hook": lines("r = {a} * 1\nr.is_leaf or r.register_hook(lambda g: g * 2)"),
    "hook on value": lines("{a}.is_leaf or {a}.register_hook(lambda g: g * 0.5)"),
    "hook that adds": lines("{a}.is_leaf or {a}.register_hook(lambda g: g + 0.125)"),
    "saved tensors hooks": lines("with halved():\n    r = {a} * {a}.sin()"),
}  # fmt: skip

FAMILIES: dict[str, dict[str, Statement]] = {
    "pure": PURE,
    "view": VIEWS,
    "write": WRITES,
    "metadata": METADATA,
}
