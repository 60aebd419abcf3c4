"""On a CUDA device: rules against what its kernels return, decompositions against eager.

The same matters have tests without a device in test_rules.py and test_decomp_*.py.
"""

import pytest
import torch
import torch.nn.functional as F
from flambeau_prims import PRIMS, TensorMeta, philox
from flambeau_prims._op import is_same_layout, metas_of
from flambeau_prims.conformance import Decomposing, cases
from flambeau_prims.decomp.reduction import mean

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def move(x):
    if isinstance(x, torch.Tensor):  # with its strides
        out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")
        return x.cuda() if 0 in x.stride() or out.numel() == 0 else out.copy_(x)
    if isinstance(x, list):
        return [move(y) for y in x]
    return torch.device("cuda") if isinstance(x, torch.device) else x


def results(value):
    if value is None:
        return ()
    return value if isinstance(value, (tuple, list)) else (value,)


# Signs, phases, orders and pivots that are a library's choice: the metadata alone is compared.
CHOSEN = {"qr", "svd", "eigh", "eig", "eigvals", "geqrf", "householder_product", "ormqr"} | {
    "ldl_factor",
    "ldl_solve",
    "seed",
}


def taken(case):
    """Whether CUDA's libraries have a kernel for the call."""
    args = case.args
    if case.prim.name in ("mm", "bmm"):  # cuBLAS has no product of integers
        return inexact(args[0])
    if case.prim.name == "lstsq":
        return args[3] == "gels" and args[0].shape[-2] >= args[0].shape[-1]
    if case.prim.name == "int_mm":
        return args[0].shape[0] > 16 and args[1].stride(0) == 1
    if case.prim.name in ("attention", "attention_backward"):
        return args[0].dtype != torch.float64
    if case.prim.name in ("igamma", "igammac"):
        return args[0].dtype not in (torch.float16, torch.bfloat16)
    if case.prim.name == "ldl_solve":
        return not args[0].is_complex()
    if case.prim.name == "as_strided":  # `move` makes a storage of its own
        return args[0].storage_offset() == 0
    return case.prim.name != "topk" or args[4]  # the order of those that are not sorted is free


def inexact(x):
    return x.is_floating_point() or x.is_complex()


@pytest.mark.parametrize("name", sorted(PRIMS))
def test_rule_and_value(name):
    compared = 0
    for case in cases(names=[name]):
        if not taken(case):
            continue
        args = [move(a) for a in case.args]
        kwargs = {k: move(v) for k, v in case.kwargs.items()}
        if name == "attention_backward":  # the saved log-sum-exp is the device's own
            q, k, v, bias, rest = *args[1:4], args[6], args[7:]
            out, lse = PRIMS["attention"].overload(q, k, v, bias, *rest, **kwargs)
            args[4:6] = out, lse
        with torch.backends.cudnn.flags(allow_tf32=False):
            got = results(case.prim.overload(*args, **kwargs))
        expected = results(case.run())
        metas = {k: metas_of(v) for k, v in kwargs.items()}
        promised = expected
        if "data_dependent" not in PRIMS[name].tags:
            promised = results(case.prim.rule(*map(metas_of, args), **metas))
        for tensor, meta, cpu in zip(got, promised, expected, strict=True):
            compared += 1
            if meta is None:
                assert tensor is None
                continue
            assert (tuple(tensor.shape), tensor.dtype) == (tuple(meta.shape), meta.dtype)
            assert tensor.device.type == "cuda", case.label
            if isinstance(meta, TensorMeta):
                assert is_same_layout(tensor, meta), case.label
            if name not in CHOSEN and tensor.shape == cpu.shape:
                torch.testing.assert_close(
                    tensor.cpu(), cpu, rtol=2e-2, atol=2e-3, equal_nan=True, msg=case.label
                )
    assert compared or name == "assert_true"


def test_philox_is_the_same_everywhere():
    seed = torch.tensor(2**40 + 7)
    cpu, cuda = (philox.philox_blocks(seed.to(d), 3, 1000).cpu() for d in ("cpu", "cuda"))
    assert torch.equal(cpu, cuda)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(16)
        self.ln = torch.nn.LayerNorm(16)
        self.qkv = torch.nn.Linear(16, 48)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, x, target):
        x = F.max_pool2d(F.gelu(self.norm(self.conv(x))), 2)
        x = self.ln(x.flatten(2).transpose(1, 2))
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return F.cross_entropy(self.head(x.mean(1)), target)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_step(dtype):
    torch.manual_seed(0)
    net = Block().cuda().to(dtype)
    x, target = torch.randn(4, 3, 16, 16, device="cuda", dtype=dtype), torch.arange(4).cuda()

    def step():
        net.zero_grad()
        loss = net(x, target)
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in net.parameters())]

    with torch.backends.cudnn.flags(allow_tf32=False):
        expected = step()
        with Decomposing() as seen:
            got = step()
    print(dict(seen.left))
    assert any("batch_norm" in name for name in seen.decomposed)
    tolerance = 1e-3 if dtype == torch.float32 else 5e-2
    for g, e in zip(got, expected, strict=True):
        assert (g - e).norm() <= tolerance * e.norm() + tolerance * 0.02, (g, e)


@pytest.mark.parametrize("dims", [None, [0], [1]])
def test_the_mean_of_nothing(dims):
    x = torch.empty((0, 3), dtype=torch.complex64, device="cuda")
    wanted = torch.mean(x) if dims is None else torch.mean(x, dims)
    found = mean(x, dims)
    torch.testing.assert_close(
        torch.view_as_real(found), torch.view_as_real(wanted), equal_nan=True
    )
