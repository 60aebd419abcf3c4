"""The primitives that are more than one ATen call, against NumPy; Philox against its authors."""

import numpy as np
import torch

P = torch.ops.flambeau_prims


def test_shapes_against_numpy():
    a = torch.randn(5, 3, 4).permute(1, 2, 0)
    n = a.numpy()
    got = P.slice(a, [0, 1, 2], [3, 4, 5], [2, 1, 2])
    np.testing.assert_array_equal(got.numpy(), n[0:3:2, 1:4, 2:5:2])
    got = P.pad(a, [1, 0, 2], [0, 3, 1], 7)
    expected = np.pad(n, [(1, 0), (0, 3), (2, 1)], constant_values=7)
    np.testing.assert_array_equal(got.numpy(), expected)
    got = P.broadcast_in_dim(a, [2, 3, 4, 5], [1, 2, 3])
    np.testing.assert_array_equal(got.numpy(), np.broadcast_to(n, (2, 3, 4, 5)))
    src = torch.randn(2, 3, 2)
    got = P.slice_scatter(a, src, [0, 1, 2], [3, 4, 5], [2, 1, 2])
    expected = n.copy()
    expected[0:3:2, 1:4, 2:5:2] = src.numpy()
    np.testing.assert_array_equal(got.numpy(), expected)
    assert not np.array_equal(got.numpy(), n)
    np.testing.assert_array_equal(P.flip(a, [0, 2]).numpy(), n[::-1, :, ::-1])
    np.testing.assert_array_equal(P.iota(5, 2, 3, dtype=torch.int64, device="cpu"), range(2, 17, 3))


def test_views_share_storage():
    a = torch.randn(3, 4)
    for view in (
        P.broadcast_in_dim(a, [2, 3, 4], [1, 2]),
        P.reshape(a, [12]),
        P.permute(a, [1, 0]),
        P.slice(a, [1, 1], [3, 4], [1, 1]),
    ):
        assert view.untyped_storage().data_ptr() == a.untyped_storage().data_ptr()
    assert P.clone(a).data_ptr() != a.data_ptr()


def test_slice_of_an_offset_view():
    a = torch.arange(24.0).view(4, 6)[1:, 2:]
    assert P.slice(a, [1, 1], [3, 3], [1, 1]).tolist() == a[1:3, 1:3].tolist()


def test_reductions_keep_dtype():
    a = torch.randint(1, 9, (3, 4), dtype=torch.int32)
    assert P.sum(a, [1]).dtype == torch.int32 and P.prod(a, [0, 1]).dtype == torch.int32
    assert P.prod(a, [0, 1]).item() == np.prod(a.numpy().astype(np.int32))


def test_copy_writes():
    a, b = torch.zeros(3), torch.ones(3)
    out = P.copy_(a, b)
    assert a.tolist() == [1, 1, 1] and out.data_ptr() == a.data_ptr()


def test_philox_known_answer():
    # Random123's published vector for philox4x32-10, counter and key zero
    from flambeau_prims.philox import philox_blocks

    block = philox_blocks(torch.tensor(0), 0, 1)[0].tolist()
    assert block == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_philox_is_counted_and_distributed():
    kw = {"dtype": torch.float32, "device": "cpu"}
    seed = torch.tensor(2**62 + 12345)
    u = P.philox_uniform([4000], seed, 0, **kw)
    later = P.philox_uniform([3996], seed, 1, **kw)
    assert torch.equal(u[4:], later) and not torch.equal(u[:3996], later)
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.02
    assert abs(u.var() - 1 / 12) < 0.005
    n = P.philox_normal([40000], seed, 0, **kw)
    assert abs(n.mean()) < 0.02 and abs(n.var() - 1) < 0.03
    assert abs((n**4).mean() - 3) < 0.2
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        half = P.philox_uniform([4000], seed, 0, dtype=dtype, device="cpu")
        assert half.min() >= 0 and half.max() < 1  # rounding up to 1 would break dropout


def test_seed_follows_torch():
    torch.manual_seed(3)
    a, b = P.seed(device="cpu"), P.seed(device="cpu")
    torch.manual_seed(3)
    assert P.seed(device="cpu") == a and a != b


def test_autograd_passes_through():
    x = torch.randn(3, requires_grad=True)
    assert not P.add(x.detach(), x.detach()).requires_grad
