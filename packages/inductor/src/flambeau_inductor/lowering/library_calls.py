"""Primitives that no kernel computes: library calls, each with the reason.

In: the registry of primitives and the lowering rules. Out: a reason by name. Invariant: a primitive
has a rule or a reason, never both, except for one whose rule refuses by that reason.
"""

from __future__ import annotations

from flambeau_prims import PRIMS, Prim

from flambeau_inductor.lowering.registry import rule_of

TABLES = "eager's is an approximation of its own, given by tables: no formula has its results"
SIZES = "the size of a result depends on elements, which a program of fixed loops cannot ask"
POOLS = "windows of a third dimension or of uneven sizes: the library's kernels hold the ties"
OF_FAMILIES = {
    "complex": "complex numbers have no kernels; most of these are views and compute nothing",
    "ctc": "a recurrence over time steps, one library call of which the derivative needs the parts",
    "distance": "a product of matrices where eager has one, and rows otherwise, by the sizes",
    "dynamic": SIZES,
    "effects": "an effect, not a value",
    "fft": "an algorithm of a library: pocketfft, MKL's or cuFFT",
    "linalg": "an algorithm of a library: LAPACK, MAGMA or cuSOLVER",
    "pooling": POOLS,
    "sampling": "reads at positions that are interpolated from elements, with eager's own rounding",
    "sort": "an order statistic or a search: the library's sort",
    "views": "a view, or a write through one: strides, and no arithmetic",
}
OF_NAMES = {
    "cummax": "a scan of pairs: the greatest so far and where it was",
    "cummin": "a scan of pairs: the least so far and where it was",
    "dirichlet_grad": TABLES,
    "embedding_bag_weights_backward": "sums over bags of uneven lengths",
    "gamma_grad": TABLES,
    "int_mm": "a product of int8 matrices: the library's instructions",
}

ON_CUDA = dict.fromkeys(
    (
        *(f"chebyshev_{kind}" for kind in "tuvw"),
        *("hermite_h", "hermite_he", "laguerre_l", "legendre_p", "zeta"),
    ),
    "eager's kernel for CUDA has other answers than its kernel for CPUs at NaN and far out, of "
    "which the device function has the latter",
)


def reason(prim: Prim) -> str | None:
    """Why a primitive is a library call; None where a kernel computes it."""
    if prim.name in OF_NAMES:
        return OF_NAMES[prim.name]
    return OF_FAMILIES.get(prim.family) if rule_of(prim.name) is None else None


def library_calls() -> dict[str, str]:
    """Every primitive that is a library call, with its reason."""
    return {name: why for name, prim in sorted(PRIMS.items()) if (why := reason(prim)) is not None}
