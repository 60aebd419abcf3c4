"""A file of GPU kernels: the driver loads them, and Triton is not there. What needs no GPU of this
is in test_package.py and in the inductor's tests/runtime/gpu/test_binaries.py."""

import json
import os
import subprocess
import sys

import pytest
import torch

import flambeau

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LOAD = """
import json, sys, time, torch
x = torch.load(sys.argv[2])
torch.nn.functional.linear(x, x.new_ones(3, x.shape[-1]))  # the device has been started
torch.cuda.synchronize()
start = time.perf_counter()
import flambeau
loaded = flambeau.load(sys.argv[1])
loading = time.perf_counter() - start
with torch.no_grad():
    results = [loaded(x) for _ in range(6)]
    unaligned = torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)
    results.append(loaded(unaligned))
torch.cuda.synchronize()
seconds = time.perf_counter() - start
compilers = ("sympy", "networkx", "triton", "flambeau_prims", "flambeau_capture",
    "flambeau_aot.joint", "flambeau_inductor.compile", "flambeau_inductor.codegen")
torch.save([each["y"] for each in results], sys.argv[3])
print(json.dumps({"loading": loading, "seconds": seconds,
    "there": [name for name in compilers if name in sys.modules]}))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(64, 256), torch.nn.Linear(256, 65)
        self.norm = torch.nn.LayerNorm(256)

    def forward(self, x, scale=2):
        y = torch.nn.functional.gelu(self.first(x))
        return {"y": torch.softmax(self.last(self.norm(y)) * scale, -1), "rest": [x.view(-1), 7]}


@pytest.mark.parametrize("mode", [None, "max-autotune"])
def test_a_process_with_the_runtime_alone(tmp_path, mode):
    net, x = Net().cuda().eval(), torch.randn(128, 64, device="cuda")
    with torch.no_grad():
        path = flambeau.package(net, x, path=tmp_path / "net.flambeau", mode=mode)
        expected = net(x)["y"]
    torch.save(x, tmp_path / "x.pt")
    env = {**os.environ, "PATH": "", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    given = [str(path), str(tmp_path / "x.pt"), str(tmp_path / "y.pt")]
    done = subprocess.run([sys.executable, "-c", LOAD, *given], env=env, capture_output=True,
                          text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(found)
    assert found["there"] == []
    results = torch.load(tmp_path / "y.pt")
    assert len(results) == 7
    for result in results:
        torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-4)


def test_trained_after_loading(tmp_path):
    net, x = Net().cuda(), torch.randn(32, 64, device="cuda")
    loaded = flambeau.load(flambeau.package(net, x, path=tmp_path / "net.flambeau"))
    got, expected = loaded(x)["y"], net(x)["y"]
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
    names = dict(net.named_parameters())
    grads = torch.autograd.grad(got.square().sum(), [loaded.state_dict()[n] for n in names])
    wanted = torch.autograd.grad(expected.square().sum(), list(names.values()))
    torch.testing.assert_close(grads, wanted, rtol=1e-3, atol=1e-4)


def test_kernels_for_several_kinds_of_gpu(tmp_path, monkeypatch):
    """Those of this machine run; a file without them says what to do."""
    net, x = Net().cuda().eval(), torch.randn(128, 64, device="cuda")
    own = "sm_{}{}".format(*torch.cuda.get_device_capability())
    others = [name for name in ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100") if name != own]
    with torch.no_grad():
        path = flambeau.package(net, x, path=tmp_path / "net.flambeau", gpus=[*others, own])
        torch.testing.assert_close(flambeau.load(path)(x)["y"], net(x)["y"], rtol=1e-3, atol=1e-4)
        path = flambeau.package(net, x, path=tmp_path / "net.flambeau", gpus=others)
    with pytest.raises(flambeau.Refused, match=f'gpus=.*"{own}"'):
        flambeau.load(path)


def test_another_index_or_kind_is_refused(tmp_path):
    x = torch.randn(8, 64, device="cuda")
    with torch.no_grad():
        path = flambeau.package(Net().cuda().eval(), x, path=tmp_path / "net.flambeau")
    loaded = flambeau.load(path)
    assert loaded.facts["gpu"]["name"] == torch.cuda.get_device_name()
    with pytest.raises(ValueError, match="on cpu, the file is made for"):
        loaded(x.cpu())


def spread(x):
    return x.softmax(-1), x.mean(0), (x.mT * 2).reshape(-1)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(("example", "others"), [(50, (2, 7, 64, 201)), (48, (16, 160, 240))])
def test_open_sizes_are_of_each_call(tmp_path, dim, example, others):
    """Also where the example, as all sizes here, is a multiple of 16. Rows that a program holds are
    of the example's class of sizes."""

    def made(size):
        return torch.randn((size, 64) if dim == 0 else (64, size), device="cuda")

    x = made(example)
    flambeau.mark_dynamic(x, dim)
    with torch.no_grad():
        loaded = flambeau.load(flambeau.package(spread, x, path=tmp_path / "spread.flambeau"))
        for size in (example, *others):
            x = made(size)
            unaligned = torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)
            for given in (x, unaligned):
                torch.testing.assert_close(loaded(given), spread(given), rtol=1e-4, atol=1e-5)
        with pytest.raises(ValueError, match=r"65.*the file is made for"):
            loaded(torch.randn((example, 65) if dim == 0 else (65, example), device="cuda"))
        if dim == 1:
            with pytest.raises(ValueError, match=r"= 1024 .*made for sizes with s0 <= 256"):
                loaded(made(1024))


def test_trained_at_several_sizes_after_loading(tmp_path):
    net, x = Net().to("cuda"), torch.randn(50, 64, device="cuda")
    flambeau.mark_dynamic(x, 0)
    loaded = flambeau.load(flambeau.package(net, x, path=tmp_path / "net.flambeau"))
    names = dict(net.named_parameters())
    for rows in (50, 2, 7, 129):
        x = torch.randn(rows, 64, device="cuda")
        got, expected = loaded(x), net(x)
        torch.testing.assert_close(got["y"], expected["y"], rtol=1e-3, atol=1e-4)
        assert torch.equal(got["rest"][0], x.view(-1)) and got["rest"][1] == 7
        grads = torch.autograd.grad(
            got["y"].square().sum(), [loaded.state_dict()[n] for n in names]
        )
        wanted = torch.autograd.grad(expected["y"].square().sum(), list(names.values()))
        torch.testing.assert_close(grads, wanted, rtol=1e-3, atol=1e-4)
