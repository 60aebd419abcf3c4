"""Linear algebra, Fourier transforms and complex numbers through prims, against eager.

Factors whose signs or phases are the library's choice are compared with eager's all the same: on
one device both are the same library's.
"""

import contextlib

import pytest
import torch
from flambeau_prims.conformance import Decomposing
from flambeau_prims.sweep.measure import compare
from torch.utils import _pytree as pytree

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
aten = torch.ops.aten
L = torch.linalg


def matrices(dtype, *batch):
    torch.manual_seed(0)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    a = torch.randn(*batch, 4, 4, dtype=wide)
    a = a + 4 * torch.eye(4, dtype=wide)
    b = torch.randn(*batch, 4, 2, dtype=wide)
    return a.to(dtype), (a @ a.mH).to(dtype), b.to(dtype)


# of a general matrix, a positive definite one, and right sides
CALLS = {
    "cholesky": lambda a, s, b: L.cholesky(s),
    "cholesky of old": lambda a, s, b: torch.cholesky(s),
    "cholesky_upper": lambda a, s, b: L.cholesky(s, upper=True),
    "cholesky_ex": lambda a, s, b: L.cholesky_ex(a - 9 * torch.eye(4, dtype=a.dtype)).info,
    "cholesky_solve": lambda a, s, b: torch.cholesky_solve(b, L.cholesky(s)),
    "cholesky_inverse": lambda a, s, b: torch.cholesky_inverse(L.cholesky(s, upper=True), True),
    "qr": lambda a, s, b: L.qr(torch.cat([a, s], -1)),
    "qr_complete": lambda a, s, b: L.qr(a[..., :2], "complete"),
    "qr_r": lambda a, s, b: L.qr(a[..., :2], "r"),
    "svd": lambda a, s, b: L.svd(a[..., :3], full_matrices=False),
    "svd_full": lambda a, s, b: L.svd(a[..., :3]),
    "svdvals": lambda a, s, b: L.svdvals(a),
    "eigh": lambda a, s, b: L.eigh(s),
    "eigh_upper": lambda a, s, b: L.eigh(s, "U"),
    "eigvalsh": lambda a, s, b: L.eigvalsh(s),
    "eig": lambda a, s, b: L.eig(a),
    "eigvals": lambda a, s, b: L.eigvals(a),
    "lu_factor": lambda a, s, b: L.lu_factor(a[..., :3]),
    "lu": lambda a, s, b: L.lu(a.mT[..., :3]),
    "lu_unpack": lambda a, s, b: torch.lu_unpack(*L.lu_factor(a[..., :3, :])),
    "lu_solve": lambda a, s, b: L.lu_solve(*L.lu_factor(a), b),
    "lu_solve_right": lambda a, s, b: L.lu_solve(*L.lu_factor(a), b.mT, left=False, adjoint=True),
    "solve": lambda a, s, b: L.solve(a, b),
    "solve_right": lambda a, s, b: L.solve(a, b.mT, left=False),
    "solve_vector": lambda a, s, b: L.solve(a, b[..., 0]),
    "solve_singular": lambda a, s, b: L.solve_ex(a * 0, b).info,
    "inv": lambda a, s, b: L.inv(a),
    "det": lambda a, s, b: L.det(a),
    "det_turned": lambda a, s, b: L.det(a.mT),
    "det_singular": lambda a, s, b: L.det(a * 0),
    "slogdet": lambda a, s, b: L.slogdet(a),
    "triangular": lambda a, s, b: L.solve_triangular(a, b, upper=True),
    "triangular_right": lambda a, s, b: L.solve_triangular(
        a, b.mT, upper=False, left=False, unitriangular=True
    ),
    "ldl": lambda a, s, b: L.ldl_factor(s),
    "ldl_solve": lambda a, s, b: L.ldl_solve(*L.ldl_factor(s.real), b.real),
    "lstsq": lambda a, s, b: L.lstsq(torch.cat([a, s], -2), torch.cat([b, b], -2)).solution,
    "lstsq_gels": lambda a, s, b: L.lstsq(
        torch.cat([a, s], -2), torch.cat([b, b], -2), driver="gels"
    )[:2],
    "pinv": lambda a, s, b: L.pinv(a[..., :3], rtol=1e-5),
    "pinv_hermitian": lambda a, s, b: L.pinv(s, hermitian=True),
    "matrix_exp": lambda a, s, b: L.matrix_exp(a / 4),
    "householder": lambda a, s, b: L.householder_product(*torch.geqrf(a[..., :3])),
    "ormqr": lambda a, s, b: torch.ormqr(*torch.geqrf(a), b, True, True),
    "cross": lambda a, s, b: L.cross(a[..., :3], s[..., :3]),
    "vector_norm": lambda a, s, b: L.vector_norm(a, 3, -1),
    "nuclear": lambda a, s, b: L.matrix_norm(a, "nuc"),
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_like_eager(name):
    for dtype in DTYPES:
        for batch in ((), (3,), (2, 1)):
            operands = matrices(dtype, *batch)
            expected = CALLS[name](*operands)
            with Decomposing() as seen:
                got = CALLS[name](*operands)
            wrong = compare(got, expected, None).wrong
            assert wrong is None, (dtype, batch, wrong)
            assert not [op for op in seen.left if "linalg" in op or "cholesky" in op], seen.left


def test_batches_meet():
    a, s, b = matrices(torch.float64, 3)
    for call in (
        lambda: L.solve(a[0], b),
        lambda: L.solve_triangular(a, b[0], upper=True),
        lambda: torch.cholesky_solve(b[0], L.cholesky(s)),
        lambda: L.lu_solve(*L.lu_factor(a), b[:1]),
    ):
        expected = call()
        with Decomposing():
            got = call()
        assert compare(got, expected, None).wrong is None


def gradients(call, *operands):
    inputs = [x.detach().clone().requires_grad_() for x in operands]
    result = call(*inputs)
    total = sum(x.abs().square().sum() for x in (result if isinstance(result, tuple) else [result]))
    return torch.autograd.grad(total, inputs, allow_unused=True)


@pytest.mark.parametrize(
    "name", ["cholesky", "qr", "svdvals", "eigvalsh", "solve", "inv", "det", "slogdet",
             "triangular", "matrix_exp", "pinv", "lu_solve", "cross"]
)  # fmt: skip
def test_gradients(name):
    for dtype in (torch.float64, torch.complex128):
        operands = matrices(dtype, 2)
        expected = gradients(CALLS[name], *operands)
        with Decomposing():
            got = gradients(CALLS[name], *operands)
        wrong = compare(list(got), list(expected), None).wrong
        assert wrong is None, (dtype, wrong)


F = torch.fft
TRANSFORMS = {
    "fft": lambda x: F.fft(x),
    "fft_turned": lambda x: F.fft(x.mT, norm="ortho"),
    "ifft": lambda x: F.ifft(x, n=5, dim=0),
    "fft2": lambda x: F.fft2(x, norm="ortho"),
    "ifftn": lambda x: F.ifftn(x, norm="forward"),
    "rfft": lambda x: F.rfft(x.real, norm="forward"),
    "rfft2": lambda x: F.rfft2(x.real),
    "irfft": lambda x: F.irfft(x),
    "irfft_odd": lambda x: F.irfft(x, n=7, norm="ortho"),
    "irfft2": lambda x: F.irfft2(x),
    "hfft": lambda x: F.hfft(x),
    "ihfft": lambda x: F.ihfft(x.real),
    "fftshift": lambda x: F.fftshift(F.fft(x)),
    "stft": lambda x: torch.stft(x.real.flatten(), 8, 3, return_complex=True,
                                 window=torch.hann_window(8, dtype=x.real.dtype)),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(TRANSFORMS))
def test_transforms(name):
    for dtype in (torch.complex64, torch.complex128):
        torch.manual_seed(0)
        x = torch.randn(6, 8, dtype=dtype)
        expected = TRANSFORMS[name](x)
        with Decomposing() as seen:
            got = TRANSFORMS[name](x)
        measured = compare(got, expected, None)
        assert measured.wrong is None and measured.layout is None, measured
        assert not [op for op in seen.left if "_fft" in op]
    x = torch.randn(6, 8, dtype=torch.complex128)
    expected = gradients(TRANSFORMS[name], x)
    with Decomposing():
        got = gradients(TRANSFORMS[name], x)
    assert compare(list(got), list(expected), None).wrong is None


COMPLEX = {
    "complex": lambda z: torch.complex(z.real, z.imag[:1]),
    "polar": lambda z: torch.polar(z.real.abs(), z.imag),
    "angle": lambda z: torch.angle(z),
    "angle_real": lambda z: torch.angle(z.real),
    "abs": lambda z: z.abs(),
    "sgn": lambda z: torch.sgn(z),
    "conj": lambda z: z.conj() * 2,
    "conj_view": lambda z: z.mH + 1,
    "resolve": lambda z: z.conj().resolve_conj(),
    "imag_of_conj": lambda z: z.conj().imag * 1,
    "view_as_real": lambda z: torch.view_as_real(z) * 2,
    "view_as_complex": lambda z: torch.view_as_complex(torch.view_as_real(z) * 2),
    "exp": lambda z: z.exp(),
    "log": lambda z: z.log(),
    "sqrt": lambda z: z.sqrt(),
    "pow": lambda z: z**2.5,
    "tanh": lambda z: z.tanh(),
    "div": lambda z: z / (z + 1),
    "sum": lambda z: z.sum(1),
    "mean": lambda z: z.mean(0),
    "prod": lambda z: z.prod(1),
    "var": lambda z: torch.var_mean(z, 1),
    "std": lambda z: z.std(),
    "norm": lambda z: z.norm(),
    "cumsum": lambda z: z.cumsum(1),
    "logcumsumexp": lambda z: z.logcumsumexp(0),
    "mm": lambda z: z @ z.mH,
    "addmm": lambda z: torch.addmm(z[:, :1], z, z.mT.contiguous()[:, :3], alpha=2j, beta=1 - 1j),
    "vdot": lambda z: torch.vdot(z[0], z[1]),
    "linear": lambda z: torch.nn.functional.linear(z, z, z[:, 0]),
    "to_real": lambda z: z.to(torch.float64),
    "from_real": lambda z: z.real.to(torch.complex128),
}


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("name", sorted(COMPLEX))
def test_complex_numbers(name):
    for dtype in (torch.complex64, torch.complex128):
        torch.manual_seed(0)
        z = torch.randn(3, 5, dtype=dtype)
        expected = COMPLEX[name](z)
        with Decomposing() as seen:
            got = COMPLEX[name](z)
        assert seen.decomposed and compare(got, expected, None).wrong is None


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3, 1), (4, 2)], ids=str)
def test_tolerances_of_a_pseudoinverse_broadcast_with_the_batch(shape):
    torch.manual_seed(0)
    a, tolerance = torch.randn(2, 3, 4), torch.rand(shape) / 2
    for given in ({"rtol": tolerance}, {"atol": tolerance}):
        expected = torch.linalg.pinv(a, **given)
        with Decomposing():
            found = torch.linalg.pinv(a, **given)
        torch.testing.assert_close(found, expected)


# of a matrix that is singular, not positive-definite, or a batch with one that is
CHECKED = {
    "solve": lambda a: L.solve(a, torch.ones(3, 1)),
    "solve_right": lambda a: L.solve(a, torch.ones(1, 3), left=False),
    "solve_ex": lambda a: L.solve_ex(a, torch.ones(3, 1), check_errors=True),
    "inv": L.inv,
    "inv_ex": lambda a: L.inv_ex(a, check_errors=True),
    "lu_factor": L.lu_factor,
    "lu_factor_ex": lambda a: L.lu_factor_ex(a, check_errors=True),
    "ldl_factor": L.ldl_factor,
    "ldl_factor_ex": lambda a: L.ldl_factor_ex(a, check_errors=True),
    "cholesky": lambda a: L.cholesky(-a - 1),
    "cholesky_ex": lambda a: L.cholesky_ex(-a - 1, check_errors=True),
    "matrix_power": lambda a: L.matrix_power(a, -1),
}


@pytest.mark.parametrize("batch", [(), (2,)], ids=["matrix", "batch"])
@pytest.mark.parametrize("name", CHECKED)
def test_a_failure_is_raised_in_eagers_words(name, batch):
    """By the host, whatever the device: nothing is asserted there, which no program survives."""
    a = torch.zeros(*batch, 3, 3)
    if batch:
        a[0] = torch.eye(3)
    told = []
    for mode in (contextlib.nullcontext(), Decomposing()):
        with mode, pytest.raises(RuntimeError) as caught:
            CHECKED[name](a)
        told.append((caught.type, str(caught.value)))
    assert told[0] == told[1]


@pytest.mark.filterwarnings("ignore")
def test_no_matrices_are_laid_out_as_in_eager():
    """Whatever a batch of none is made into; however it lies."""
    wrong, asked = [], 0
    for name, call in CALLS.items():
        for turned in (False, True):
            given = [x.mT if turned and x.shape[-1] == 4 else x for x in matrices(DTYPES[1], 0)]
            try:
                expected = call(*given)
            except RuntimeError:  # a sum of no eigenvalues
                continue
            with Decomposing():
                found = call(*given)
            pairs = (
                [(x.shape, x.stride()) for x in pytree.tree_leaves(results) if hasattr(x, "stride")]
                for results in (found, expected)
            )
            one, other = pairs
            asked += len(other)
            if one != other:
                wrong.append((name, turned, one, other))
    assert not wrong
    assert asked > len(CALLS)


@pytest.mark.parametrize("dim", [None, [], 0, -1, (0,)])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (3, 1)])
def test_norms_of_one_number_overflow_where_eager_s_do(shape, dim):
    """Eager sees that a row has one number, but for a tensor without dimensions along one."""
    x = torch.full(shape, -32.0)
    expected = L.vector_norm(x, 255, dim)
    with Decomposing() as seen:
        got = L.vector_norm(x, 255, dim)
    assert torch.equal(got, expected) and seen


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_bilinear_sums_by_pairs(dtype):
    """Of infinities and large numbers: what the first pair sums to is rounded before the second."""
    table = torch.tensor([0.0, 1.0, -2.5, 300.0, torch.inf, -torch.inf])
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)

        def drawn(*shape, generator=generator):
            x = torch.randn(shape, generator=generator)
            special = table[torch.randint(0, 6, shape, generator=generator)]
            return torch.where(torch.rand(shape, generator=generator) < 0.1, special, x).to(dtype)

        given = drawn(3, 4), drawn(3, 5), drawn(2, 4, 5), drawn(2)
        expected = torch.nn.functional.bilinear(*given)
        with Decomposing() as seen:
            found = torch.nn.functional.bilinear(*given)
        assert seen.decomposed["aten._trilinear.default"]
        torch.testing.assert_close(found, expected, equal_nan=True, rtol=0.05, atol=0.05)


FLOATS = (torch.float32, torch.float64, torch.complex64)


@pytest.mark.parametrize("one", FLOATS, ids=str)
@pytest.mark.parametrize("other", FLOATS, ids=str)
def test_mixed_dtypes_that_no_primitive_takes_are_atens(one, other):
    a, b = torch.eye(3, dtype=one), torch.ones(3, 2, dtype=other)
    for call in (
        lambda: torch.linalg.solve_triangular(a, b, upper=True),
        lambda: torch.triangular_solve(b, a),
        lambda: torch.cholesky_solve(b, a),
        lambda: torch.linalg.solve(a, b),
        lambda: torch.linalg.lu_solve(a, torch.ones(3, dtype=torch.int32), b),
    ):
        try:
            expected = call()
        except RuntimeError:
            with Decomposing(), pytest.raises(RuntimeError):
                call()
            continue
        with Decomposing():
            torch.testing.assert_close(call(), expected)
