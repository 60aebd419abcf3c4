"""A compiled function in a file: the runtime alone runs it; what does not fit is refused."""

import json
import os
import subprocess
import sys
import zipfile

import pytest
import torch

import flambeau
from flambeau import CannotPackage, Refused
from flambeau.packaging import loading, processors
from flambeau.packaging.processors import LEVELS


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 10)
        self.norm = torch.nn.LayerNorm(10)
        self.register_buffer("shift", torch.randn(10))

    def forward(self, x, scale=2):
        y = torch.softmax(self.norm(torch.nn.functional.gelu(self.linear(x))) + self.shift, -1)
        return {"y": y * scale, "rest": [x.view(-1), 7]}


@pytest.fixture
def net():
    return Net().eval()


@pytest.fixture
def x():
    return torch.randn(4, 6)


def package(net, x, path, **more):
    with torch.no_grad():
        return flambeau.package(net, x, path=path, **more)


LOAD = """
import json, sys, time, torch
x = torch.load(sys.argv[2])
start = time.perf_counter()
import flambeau
loaded = flambeau.load(sys.argv[1])
with torch.no_grad():
    result = loaded(x)
seconds = time.perf_counter() - start
compilers = ("sympy", "networkx", "triton", "flambeau_prims", "flambeau_capture",
    "flambeau_aot.joint", "flambeau_aot.partition", "flambeau_aot.compile",
    "flambeau_inductor.compile", "flambeau_inductor.codegen", "flambeau_inductor.lowering",
    "flambeau_inductor.schedule", "flambeau_inductor.ir", "flambeau_inductor.passes")
print(json.dumps({"seconds": seconds, "y": result["y"].tolist(),
    "there": [name for name in compilers if name in sys.modules]}))
"""


@pytest.mark.parametrize("rows", [4, 9], ids=["constant", "open"])
def test_a_process_with_the_runtime_alone(net, x, tmp_path, rows):
    if rows != len(x):
        flambeau.mark_dynamic(x, 0)
    path = package(net, x, tmp_path / "net.flambeau")
    x = torch.randn(rows, 6)
    torch.save(x, tmp_path / "x.pt")
    env = {**os.environ, "PATH": "", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", LOAD, str(path), str(tmp_path / "x.pt")]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["there"] == []
    torch.testing.assert_close(torch.tensor(found["y"]), net(x)["y"])


def test_called_as_the_function(net, x, tmp_path):
    loaded = flambeau.load(package(net, x, tmp_path / "net.flambeau"))
    with torch.no_grad():
        result, expected = loaded(x), net(x)
    torch.testing.assert_close(result, expected)
    assert result["rest"][1] == 7 and set(loaded.state_dict()) == set(net.state_dict())
    assert loaded.guards and "net" in repr(loaded)


def test_a_file_made_without_grad_serves_in_any_grad_mode(net, x, tmp_path):
    loaded = flambeau.load(package(net, x, tmp_path / "net.flambeau"))
    assert any(each.requires_grad for each in loaded.state_dict().values())
    result = loaded(x)
    torch.testing.assert_close(result["y"], net(x)["y"])
    assert not result["y"].requires_grad
    with pytest.raises(ValueError, match=r"argument 0 requires grad, .* made under torch.no_grad"):
        loaded(x.requires_grad_())
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), net(x))


def test_what_it_is_called_with_is_checked(net, x, tmp_path):
    loaded = flambeau.load(package(net, x, tmp_path / "net.flambeau"))
    with pytest.raises(ValueError, match=r"argument 0 is float32 \[3, 6\] on cpu, the file is"):
        loaded(torch.randn(3, 6))
    with pytest.raises(ValueError, match="float64"):
        loaded(x.double())
    with pytest.raises(TypeError, match="another structure"):
        loaded(x, 2)
    with pytest.raises(TypeError, match="is a int"):
        loaded(3)


def test_a_value_that_is_no_tensor_is_fixed(net, x, tmp_path):
    with torch.no_grad():
        path = flambeau.package(net, x, scale=3, path=tmp_path / "net.flambeau")
        loaded = flambeau.load(path)
        torch.testing.assert_close(loaded(x, scale=3), net(x, scale=3))
    with pytest.raises(ValueError, match="argument 1 is 4, the file is made for 3"):
        loaded(x, scale=4)


def test_weights_of_ones_own(net, x, tmp_path):
    path = package(net, x, tmp_path / "net.flambeau", weights=False)
    other = Net().eval()
    with torch.no_grad():
        torch.testing.assert_close(flambeau.load(path, state=other)(x), other(x))
        torch.testing.assert_close(flambeau.load(path, state=net.state_dict())(x), net(x))
    with pytest.raises(Refused, match=r"made without weights, and state= has no"):
        flambeau.load(path)
    with pytest.raises(Refused, match=r"linear\.weight is torch\.float64"):
        flambeau.load(path, state=Net().double())


def test_trained_after_loading(net, x, tmp_path):
    path = flambeau.package(net, x, path=tmp_path / "net.flambeau", weights=False)
    other = Net().eval()
    loaded = flambeau.load(path, state=other)
    loaded(x)["y"].square().sum().backward()
    got = other.linear.weight.grad.clone()
    other.zero_grad()
    other(x)["y"].square().sum().backward()
    torch.testing.assert_close(got, other.linear.weight.grad)


def rewritten(path, change):
    with zipfile.ZipFile(path) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    with zipfile.ZipFile(path, "w") as packed:
        for name, data in members.items():
            packed.writestr(name, change(name, data))
    return path


@pytest.mark.parametrize("member", ["program.json", "call.json", "weights.pt", "kernels.so"])
def test_a_changed_file_is_refused(net, x, tmp_path, member):
    path = package(net, x, tmp_path / "net.flambeau")
    rewritten(path, lambda n, d: d[:-1] + bytes([d[-1] ^ 1]) if n.endswith(member) else d)
    with pytest.raises(Refused, match="digest differs"):
        flambeau.load(path)


def test_a_truncated_file_is_refused(net, x, tmp_path):
    path = package(net, x, tmp_path / "net.flambeau")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(Refused, match="cut off"):
        flambeau.load(path)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("python", "cpython-399", "made for python cpython-399"),
        ("torch", "1.9.0", "made with torch 1.9.0"),
        ("machine", "vax", "made for machine vax"),
        ("features", ["avx1024"], "lacks avx1024"),
        ("packages", {"flambeau-aot": "9.1"}, "made with flambeau-aot 9.1"),
    ],
)
def test_another_machine_is_refused(net, x, tmp_path, name, value, reason):
    def change(member, data):
        if member != "manifest.json":
            return data
        manifest = json.loads(data)
        manifest["facts"][name] = value
        return json.dumps(manifest).encode()

    path = rewritten(package(net, x, tmp_path / "net.flambeau"), change)
    with pytest.raises(Refused, match=reason):
        flambeau.load(path)


def test_here_fits_here():
    assert loading.misfits(loading.machine_facts()) == []
    assert loading.features()


def test_another_gpu_is_refused():
    made = {"index": 0, "name": "H200", "capability": "9.0"}
    of, here = loading.machine_facts() | {"gpu": made}, loading.machine_facts()
    assert loading.misfits(of, here | {"gpu": made | {"name": "H100"}}) == []
    (found,) = loading.misfits(of, here | {"gpu": made | {"capability": "8.0", "name": "A100"}})
    assert "compute capability 9.0, here is 8.0 (A100)" in found and 'gpus=[..., "sm_80"]' in found
    (found,) = loading.misfits(of, here | {"gpu": None})
    assert found.endswith("compute capability 9.0, and there is no such GPU here")


def test_the_variant_of_a_kind_of_gpu_is_found():
    own = frozenset({"sse", "avx"})
    needs = [(["avx512f"], "9.0"), (["avx"], "9.0"), (["avx"], "8.6"), (["avx"], "10.0")]
    variants = [{"features": each, "capability": kind} for each, kind in needs]
    gpu = {"index": 0, "name": "some"}
    facts = loading.machine_facts() | {"gpu": gpu | {"capability": "9.0"}, "variants": variants}
    here = loading.machine_facts() | {"features": list(own)}
    for kind, number in (("9.0", 1), ("8.6", 2), ("10.0", 3)):
        assert processors.chosen(variants, own, kind and {"capability": kind}) == number
        assert loading.misfits(facts, here | {"gpu": gpu | {"capability": kind}}) == []
    for kind in ("8.0", "8.9", None):
        assert processors.chosen(variants, own, kind and {"capability": kind}) is None
        found = None if kind is None else gpu | {"capability": kind}
        (said,) = loading.misfits(facts, here | {"gpu": found})
        assert "compute capability 9.0 or 8.6 or 10.0" in said
        assert ("no such GPU" if kind is None else f"here is {kind} (some)") in said
    (said,) = loading.misfits(facts, here | {"features": ["sse"], "gpu": facts["gpu"]})
    assert "this processor lacks avx" in said


@pytest.mark.parametrize("gpus", [["sm_99"], ["9.0"], ["sm_90"]])
def test_kinds_of_gpu_that_cannot_be_had(net, x, tmp_path, gpus):
    known = gpus == ["sm_90"]
    said = "no kernels for a GPU" if known else "takes names out of sm_70"
    with pytest.raises(flambeau.CannotPackage if known else flambeau.BadOption, match=said):
        package(net, x, tmp_path / "net.flambeau", gpus=gpus)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_file_for_a_gpu_is_refused_where_there_is_none(net, x, tmp_path):
    def change(member, data):
        if member != "manifest.json":
            return data
        manifest = json.loads(data)
        manifest["facts"]["gpu"] = {"index": 0, "name": "H200", "capability": "9.0"}
        return json.dumps(manifest).encode()

    path = rewritten(package(net, x, tmp_path / "net.flambeau"), change)
    with pytest.raises(Refused, match=r"compute capability 9\.0, and there is no such GPU"):
        flambeau.load(path)


class Opaque:
    def __init__(self, y):
        self.y = y


torch.utils._pytree.register_pytree_node(Opaque, lambda o: ([o.y], None), lambda v, _: Opaque(*v))


def test_what_has_no_form_in_a_file_is_named(x, tmp_path):
    def fn(x):
        return Opaque(x * 2)

    with pytest.raises(CannotPackage, match="Opaque"):
        flambeau.package(fn, x, path=tmp_path / "fn.flambeau")
    assert list(tmp_path.glob("*.flambeau")) == []


def test_a_result_that_no_program_in_a_file_makes_is_named(x, tmp_path):
    with torch.no_grad(), pytest.raises(CannotPackage, match="no form in a file"):
        flambeau.package(lambda x: (x.data, x + 1), x, path=tmp_path / "fn.flambeau")


def test_a_graph_break_is_an_error_that_names_the_line(x, tmp_path):
    def fn(x):
        return x * int(x.sum().item() * 0 + 2)

    with pytest.raises(flambeau.Unsupported, match="item"):
        flambeau.package(fn, x, path=tmp_path / "fn.flambeau")
    assert list(tmp_path.glob("*.flambeau")) == []


# --- sizes that are left open ---------------------------------------------------------------------


def folded(x, w):
    return (x.reshape(x.shape[0] // 2, -1) @ w).tanh() * x.shape[0]


@pytest.fixture
def open_path(tmp_path):
    x = torch.randn(8, 6)
    flambeau.mark_dynamic(x, 0, min=4, max=64)
    with torch.no_grad():
        return flambeau.package(folded, x, torch.randn(12, 5), path=tmp_path / "open.flambeau")


def test_one_file_serves_all_sizes_within_its_conditions(open_path):
    loaded, w = flambeau.load(open_path), torch.randn(12, 5)
    for rows in (4, 10, 64):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(loaded(x, w), folded(x, w))
    for rows, said in ((66, "s0 <= 64"), (2, "s0 >= 4")):
        with pytest.raises(ValueError, match=said):
            loaded(torch.randn(rows, 6), w)
    with pytest.raises(ValueError, match=r"2|//"):  # an odd number cannot be folded
        loaded(torch.randn(9, 6), w)
    with pytest.raises(ValueError, match=r"float32 \[s0, 6\]"):
        loaded(torch.randn(8, 7), w)


def test_open_sizes_in_training(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.GELU(), torch.nn.Linear(10, 2))
    x = torch.randn(7, 6)
    flambeau.mark_dynamic(x, 0)
    loaded = flambeau.load(flambeau.package(net, x, path=tmp_path / "net.flambeau"))
    for rows in (11, 25):
        x = torch.randn(rows, 6)
        got, expected = loaded(x), net(x)
        torch.testing.assert_close(got, expected)
        grads = torch.autograd.grad(got.sum(), list(loaded.state_dict().values()))
        wanted = torch.autograd.grad(expected.sum(), list(net.parameters()))
        torch.testing.assert_close(grads, wanted)


@pytest.mark.parametrize("opened", [False, True])
def test_memory_that_is_laid_out_in_another_way_is_refused(tmp_path, opened):
    """The code reads by strides: it gave another tensor's elements."""
    x = torch.randn(8, 6)
    if opened:
        flambeau.mark_dynamic(x, 0)
    with torch.no_grad():
        path = flambeau.package(lambda x: (x * 2).softmax(-1), x, path=tmp_path / "f.flambeau")
    loaded, other = flambeau.load(path), torch.randn(6, 8).t()
    with pytest.raises(ValueError, match="strides"):
        loaded(other)
    torch.testing.assert_close(loaded(other.contiguous()), (other * 2).softmax(-1))


def test_a_gradient_that_would_be_missing_is_refused(tmp_path):
    x = torch.randn(3)
    path = flambeau.package(lambda x: x.sin(), x, path=tmp_path / "sin.flambeau")
    loaded = flambeau.load(path)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.randn(3), torch.ones(3))
        with pytest.raises(ValueError, match="tangent"):
            loaded(dual)
    with pytest.raises(ValueError, match="requires grad"):
        loaded(torch.randn(3, requires_grad=True))
    with torch.no_grad():
        y = torch.randn(3, requires_grad=True)
        torch.testing.assert_close(loaded(y), y.sin())


@pytest.mark.parametrize("change", ["conditions", "truncated"])
def test_open_files_that_were_changed_are_refused(open_path, change):
    if change == "truncated":
        open_path.write_bytes(open_path.read_bytes()[:-200])
    else:
        with zipfile.ZipFile(open_path) as packed:
            files = {name: packed.read(name) for name in packed.namelist()}
        assert b'"LessThan"' in files["call.json"]
        files["call.json"] = files["call.json"].replace(b"64]", b"99]")
        with zipfile.ZipFile(open_path, "w") as packed:
            for name, content in files.items():
                packed.writestr(name, content)
    with pytest.raises(Refused):
        flambeau.load(open_path)


def test_a_file_for_several_processors(net, x, tmp_path, monkeypatch):
    names = [name for name, needed in LEVELS.items() if needed <= processors.features()][::-1]
    if not names:
        pytest.skip("no x86-64 processor")
    path = package(net, x, tmp_path / "net.flambeau", processors=names)
    for name in names:
        monkeypatch.setattr(loading, "features", LEVELS[name].copy)
        with torch.no_grad():
            torch.testing.assert_close(flambeau.load(path)(x)["y"], net(x)["y"])
    monkeypatch.setattr(loading, "features", lambda: frozenset({"sse"}))
    with pytest.raises(Refused, match=r"this processor lacks .*popcnt.* processors= of"):
        flambeau.load(path)
    assert [each["processor"] for each in flambeau_facts(path)] == names


def flambeau_facts(path):
    return json.loads(zipfile.ZipFile(path).read("manifest.json"))["facts"]["variants"]


def test_processors_that_are_unknown(net, x, tmp_path):
    with pytest.raises(flambeau.BadOption, match="cannot be 'znver99': it takes names out of"):
        package(net, x, tmp_path / "net.flambeau", processors=["znver99"])
    with pytest.raises(flambeau.BadOption, match="processor cannot be 'znver99'"):
        flambeau.compile(net, options={"processor": "znver99"})
