"""What a shape rule says about arguments that it does not take: the primitive, and the rule."""

import pytest
import torch
from flambeau_prims import PrimError
from torch._subclasses.fake_tensor import FakeTensorMode

P = torch.ops.flambeau_prims
F32, C64, I64 = torch.float32, torch.complex64, torch.int64


def new(*shape, dtype=F32):
    return torch.empty(shape, dtype=dtype)


REFUSED = {
    "complex: parts of dtypes": lambda: P.complex(new(2), new(2, dtype=torch.float64)),
    "complex: not defined on torch.bfloat16": lambda: P.complex(
        new(2, dtype=torch.bfloat16), new(2, dtype=torch.bfloat16)
    ),
    "conj: not defined on torch.float32": lambda: P.conj(new(2)),
    "view_as_complex: the last dimension": lambda: P.view_as_complex(new(2, 3)),
    "diagonal: dims 0 and 0": lambda: P.diagonal(new(2, 3), 0, 0, 0),
    "diagonal: dims -1 and 0": lambda: P.diagonal(new(2, 3), 0, -1, 0),
    "diagonal_scatter: src": lambda: P.diagonal_scatter(new(3, 3), new(2), 0, 0, 1),
    "unfold: size 5 and step 1": lambda: P.unfold(new(4), 0, 5, 1),
    "unfold: size 2 and step 0": lambda: P.unfold(new(4), 0, 2, 0),
    "as_strided: size": lambda: P.as_strided(new(4), [2], [1, 1], 0),
    "bitcast: ": lambda: P.bitcast(new(3), dtype=torch.float64),
    "gather: the index is torch.int32": lambda: P.gather(new(3), 0, new(3, dtype=torch.int32)),
    "gather: dim 1 of a 1-d": lambda: P.gather(new(3), 1, new(3, dtype=I64)),
    "scatter: torch.float64 into": lambda: P.scatter(
        new(3), 0, new(3, dtype=I64), new(3, dtype=torch.float64)
    ),
    "scatter_amax: not defined on torch.complex64": lambda: P.scatter_amax(
        new(3, dtype=C64), 0, new(3, dtype=I64), new(3, dtype=C64)
    ),
    "scatter_add: index .* is larger than src": lambda: P.scatter_add(
        new(3), 0, new(4, dtype=I64), new(3)
    ),
    "index: index shapes .* do not broadcast": lambda: P.index(
        new(3, 3), [new(2, dtype=I64), new(3, dtype=I64)]
    ),
    "index: an index is torch.float32": lambda: P.index(new(3), [new(2)]),
    "index_put: values": lambda: P.index_put(new(3), [new(2, dtype=I64)], new(3), False),
    "kthvalue: k=4 is not in 1..3": lambda: P.kthvalue(new(3), 4, 0),
    "median: no elements along 0": lambda: P.median(new(0), 0),
    "topk: k=4 of 3": lambda: P.topk(new(3), 4, 0, True, True),
    "sort: not defined on torch.complex64": lambda: P.sort(new(3, dtype=C64), 0, False, True),
    "searchsorted: values torch.int64": lambda: P.searchsorted(new(3), new(3, dtype=I64), False),
    "searchsorted: rows": lambda: P.searchsorted(new(2, 3), new(3, 3), False),
    "histc: low is": lambda: P.histc(new(3), 4, new(1), new()),
    "cummax: dim 1 of a 1-d": lambda: P.cummax(new(3), 1),
    "cumsum: not defined on torch.bool": lambda: P.cumsum(new(3, dtype=torch.bool), 0),
    "fft_c2c: not defined on torch.float32": lambda: P.fft_c2c(new(3), [0], True),
    "fft_r2c: dims": lambda: P.fft_r2c(new(3), [0, 0], True),
    "fft_c2r: 3 elements do not give 6": lambda: P.fft_c2r(new(3, dtype=C64), [0], 6),
    "cholesky: matrices of 2 by 3": lambda: P.cholesky(new(2, 3), False),
    "cholesky: not defined on torch.bfloat16": lambda: P.cholesky(
        new(2, 2, dtype=torch.bfloat16), False
    ),
    "svd: a 1-d tensor holds no matrices": lambda: P.svd(new(3), True),
    "lu_solve: a right side": lambda: P.lu_solve(
        new(3, 3), new(3, dtype=torch.int32), new(2, 3), True, False
    ),
    "lu_solve: pivots": lambda: P.lu_solve(new(3, 3), new(3, dtype=I64), new(3, 1), True, False),
    "solve_triangular: dtypes": lambda: P.solve_triangular(
        new(3, 3), new(3, 1, dtype=C64), True, True, False
    ),
    "lstsq: driver 'fast'": lambda: P.lstsq(new(3, 3), new(3, 1), 0.0, "fast"),
    "householder_product: tau": lambda: P.householder_product(new(3, 3), new(3, 3)),
    "ldl_solve: pivots": lambda: P.ldl_solve(new(3, 3), new(3), new(3, 1), True),
    "pivots_to_permutation": lambda: P.pivots_to_permutation(new(3, dtype=torch.int32), 2),
    "philox_bits: not defined for torch.float32": lambda: P.philox_bits(
        [2], new(dtype=I64), 0, dtype=F32, device="cpu"
    ),
    "philox_uniform: the seed": lambda: P.philox_uniform(
        [2], new(dtype=F32), 0, dtype=F32, device="cpu"
    ),
    "philox_normal: offset -1": lambda: P.philox_normal(
        [2], new(dtype=I64), -1, dtype=F32, device="cpu"
    ),
    "addmm: .* added to": lambda: P.addmm(new(5), new(2, 3), new(3, 5), 1, 1),
    "baddbmm: torch.float64 added": lambda: P.baddbmm(
        new(1, 2, 5, dtype=torch.float64), new(1, 2, 3), new(1, 3, 5), 1, 1
    ),
    "int_mm: not defined on torch.int32": lambda: P.int_mm(
        new(2, 3, dtype=torch.int32), new(3, 2, dtype=torch.int32)
    ),
    "bounds_checked: the index is torch.int32": lambda: P.bounds_checked(
        new(2, dtype=torch.int32), 3, "IndexError", ""
    ),
    "bounds_checked: KeyError is none of": lambda: P.bounds_checked(
        new(2, dtype=I64), 3, "KeyError", ""
    ),
    "assert_true: torch.float32": lambda: P.assert_true(new(), "so"),
    "masked_select: the mask is": lambda: P.masked_select(new(3), new(3)),
    "unique_dim: dim 1": lambda: P.unique_dim(new(3), 1, False),
    "bincount: not defined on": lambda: P.bincount(new(3), None, 0),
    "repeat_interleave: repeats": lambda: P.repeat_interleave(new(3)),
    "amax: no elements along": lambda: P.amax(new(2, 0), [1]),
    "sum: dims \\[1, 0\\]": lambda: P.sum(new(2, 3), [1, 0]),
    "full: shape": lambda: P.full([-1], 0, dtype=F32, device="cpu"),
    "copy_: dtypes": lambda: P.copy_(new(3), new(3, dtype=C64)),
}


@pytest.mark.parametrize("message", sorted(REFUSED))
def test_refused_while_tracing(message):
    with pytest.raises(PrimError, match=message), FakeTensorMode():
        REFUSED[message]()


def test_refused_when_it_runs():
    with pytest.raises(RuntimeError, match="so it is not"):
        P.assert_true(torch.tensor(False), "so it is not")
    a, beyond = torch.ones(3), torch.tensor([3])
    for error in (IndexError, RuntimeError):
        for outside in (3, -1):
            with pytest.raises(error, match=f"^{outside} of 3$"):
                index = torch.tensor([[0, 2], [1, outside]])
                P.bounds_checked(index, 3, error.__name__, "{index} of {size}")
    for call in (
        lambda: P.gather(a, 0, beyond),
        lambda: P.index(a, [beyond]),
        lambda: P.scatter(a, 0, beyond, a),
        lambda: P.index_select(a, 0, beyond),
    ):
        with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
            call()
