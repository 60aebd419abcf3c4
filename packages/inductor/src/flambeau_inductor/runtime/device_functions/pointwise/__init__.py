"""Kernel text of pointwise primitives, one function each, for both languages.

In: Triton tensors of one shape and dtype. Out: the same shape. Invariant: a public function has the
name of the primitive that it computes; Triton compiles it as it stands, and
`codegen/cpp/emit/device_functions.py` writes it in C++, so it keeps to what that reads:
assignments, `tl.where`, arithmetic, loops over a range, `while blocks.some(...)`, one `return`.

Unless a docstring says otherwise a function computes in float64 and rounds once.
"""
