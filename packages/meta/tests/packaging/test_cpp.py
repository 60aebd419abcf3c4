"""A package in a C++ program, built as the page says, gives what eager gives or says why not."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import flambeau
from flambeau.packaging.processors import LEVELS, features

HERE = Path(__file__).with_name("served.cpp")
PAGE = Path(__file__).parents[4] / "docs" / "cpp.md"
pytestmark = pytest.mark.skipif(
    not (shutil.which("cmake") and shutil.which("g++") and PAGE.exists()),
    reason="no cmake, no C++ compiler, or no documentation beside the package",
)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x, mask):
        q, k, v = (each.unflatten(-1, (2, 8)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
        return self.out(y.transpose(1, 2).flatten(2)), y.norm()


def image():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def words():
    return nn.Sequential(nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 11), nn.LogSoftmax(-1))


def several(x, n):
    order = x.argsort(-1, descending=True)
    return {"b": x.gather(-1, order), "a": [order, x.cumsum(0), (x > 0).sum()], "c": x.half() * 2}


def halves(x):
    return x.reshape(x.shape[0] // 2, -1).exp().sum(-1), torch.arange(x.shape[0]) + x.shape[1]


def constants(x):
    return x @ torch.tensor([[1.0, 2.0], [3.0, 4.0]]) + torch.linspace(0, 1, 2, dtype=x.dtype)


def recurrent(x, gru):
    return gru(x)[0]


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        self.mean.lerp_(x.mean(0), 0.25)
        return x - self.mean, self.mean, self.calls


def writing(x, cache, at):
    cache[:, at] = x
    x.mul_(2)
    return x, cache, cache.sum(1)


def views(x, y):
    half = x[: x.shape[0] // 2]
    flat = (y + 1).flatten()
    return half.t(), x.reshape(-1, 2, 3)[:, 1], half.split([2, 4], 1)[1], flat, y, flat[1:]


ids = partial(torch.randint, 0, 11)
#: a program, the arguments of its example, how many rows are left open, other arguments
PROGRAMS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4)),
            lambda n: (torch.randn(n, 8),), 64),
    "image": (image, lambda n: (torch.randn(n, 3, 16, 16),), 0),
    "words": (words, lambda n: (ids((n, 5)),), 0),
    "open words": (words, lambda n: (ids((n, 5)),), 64),
    "attention": (Attention, lambda n: (torch.randn(n, 5, 16), torch.rand(n, 5) > -1), 64),
    "several": (lambda: several, lambda n: (torch.randn(n, 6), 3), 0),
    "halves": (lambda: halves, lambda n: (torch.randn(2 * n, 6),), 64),
    "constants": (lambda: constants, lambda n: (torch.randn(n, 2),), 0),
    "doubles": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Softplus()).double(),
                lambda n: (torch.randn(n, 4, dtype=torch.float64),), 64),
    "counting": (Counting, lambda n: (torch.randn(n, 4),), 0),
    "writing": (lambda: writing, lambda n: (torch.randn(n, 6), torch.zeros(n, 3, 6), 1), 0),
    "open writing": (lambda: writing, lambda n: (torch.randn(n, 6), torch.zeros(n, 3, 6), 1), 64),
    "views": (lambda: views, lambda n: (torch.randn(n, 6), torch.randn(n, 2)), 0),
    "open views": (lambda: views, lambda n: (torch.randn(n, 6), torch.randn(n, 2)), 64),
    "bfloat16": (lambda: nn.Sequential(nn.Linear(32, 32), nn.Tanh()).bfloat16(),
                 lambda n: (torch.randn(n, 32).bfloat16(),), 0),
}  # fmt: skip


def tensors(tree):
    leaves = torch.utils._pytree.tree_leaves(tree)
    return [each for each in leaves if isinstance(each, torch.Tensor)]


def saved(tree, path):
    torch.save(tensors(tree), path)


def block(language):
    """What the page shows in a language."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return found[0]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The C++ program of the page, built against the folders that the command names: once, for all
    test processes of a run, whose temporary folders are in one."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "served"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built" / "served").exists():
            build(folder, folder / "built")
    return folder / "built" / "served"


def build(source, folder):
    (source / "main.cpp").write_text(block("cpp"))
    served = f"add_executable(served {HERE})\ntarget_link_libraries(served flambeau::flambeau)\n"
    (source / "CMakeLists.txt").write_text(block("cmake") + served)
    where = subprocess.run(
        [sys.executable, "-m", "flambeau", "cmake"], capture_output=True, text=True, check=True
    ).stdout.strip()
    configure = ["cmake", "-S", str(source), "-B", str(folder), f"-DCMAKE_PREFIX_PATH={where}"]
    for each in (configure, ["cmake", "--build", str(folder), "-j2"]):
        done = subprocess.run(each, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def serve(program, *folders):
    done = subprocess.run([program, *folders], capture_output=True, text=True, env={"PATH": ""})
    assert done.returncode == 0, done.stderr


def packaged(name, folder):
    folder.mkdir(exist_ok=True)
    make, arguments, most = PROGRAMS[name]
    torch.manual_seed(0)
    made, example = make(), arguments(4)
    if isinstance(made, nn.Module):
        made.eval()
    if most:
        for each in tensors(example):
            flambeau.mark_dynamic(each, 0, min=2, max=most)
    with torch.no_grad():
        flambeau.package(made, *example, path=folder / "net.flambeau")
    rows = (2, 4, 7) if most else (4, 4)
    return made, [arguments(n) for n in (rows[:1] if name == "counting" else rows)]


def test_programs_give_what_eager_gives(program, tmp_path):
    known = {}
    for name in PROGRAMS:
        folder = tmp_path / name.replace(" ", "-")
        made, calls = packaged(name, folder)
        for k, given in enumerate(calls):
            saved(given, folder / f"in-{k}.pt")
        known[folder] = made, calls
    serve(program, *known)
    for folder, (made, calls) in known.items():
        refused = folder / "refused.txt"
        assert not refused.exists(), refused.read_text()
        for k, given in enumerate(calls):
            said = folder / f"out-{k}.txt"
            assert not said.exists(), f"{folder.name}: {said.read_text()}"
            with torch.no_grad():
                expected = tensors(made(*given))
            torch.testing.assert_close(
                torch.load(folder / f"out-{k}.pt", weights_only=False), expected
            )


def test_the_program_of_the_page(program, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(compile(block("python"), str(PAGE), "exec"), {})
    expected = capsys.readouterr().out
    done = subprocess.run([program.with_name("program")], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "s0 = 300: made for sizes with s0 <= 256\n"
    number = re.compile(r"-?\d+\.\d+")
    assert number.findall(done.stdout) == number.findall(expected)
    assert len(number.findall(expected)) == 6


def test_calls_that_the_file_is_not_made_for(program, tmp_path):
    packaged("open words", tmp_path)
    wrong = {
        "takes 1 tensors, given are 2": [ids((4, 5)), ids((4, 5))],
        "the file is made for int64 of 2 dimensions on cpu": [torch.randn(4, 5)],
        "has the sizes [4, 6], the file is made for [4, 5]": [ids((4, 6))],
        "has the strides [1, 4], the file is made for [5, 1]": [ids((5, 4)).t()],
        "s0 = 65: made for sizes with s0 <= 64": [ids((65, 5))],
        "index out of range": [torch.full((4, 5), 11)],
    }
    for k, given in enumerate(wrong.values()):
        saved(given, tmp_path / f"in-{k}.pt")
    serve(program, tmp_path)
    for k, said in enumerate(wrong):
        assert said in (tmp_path / f"out-{k}.txt").read_text()


def test_a_call_whose_written_argument_shares_memory_is_refused(program, tmp_path):
    packaged("writing", tmp_path)
    (tmp_path / "first-of-second").touch()
    saved([torch.randn(4, 6), torch.randn(4, 3, 6)], tmp_path / "in-0.pt")
    serve(program, tmp_path)
    assert "writes to a tensor that shares memory" in (tmp_path / "out-0.txt").read_text()


def draws(x):
    return torch.nn.functional.dropout(x, 0.5) * 2


def test_files_that_are_for_python_alone(program, tmp_path):
    grad = nn.Linear(3, 3)
    wanted = {"grad": (grad, "make it under torch.no_grad()"), "draws": (draws, "random numbers")}
    for name, (fn, _) in wanted.items():
        (tmp_path / name).mkdir()
        with torch.set_grad_enabled(fn is grad):
            flambeau.package(fn, torch.randn(4, 3), path=tmp_path / name / "net.flambeau")
    serve(program, *(tmp_path / name for name in wanted))
    for name, (_, said) in wanted.items():
        text = (tmp_path / name / "refused.txt").read_text()
        assert "net.flambeau: it needs Python: " in text and said in text


def test_damage_is_found(program, tmp_path):
    whole = tmp_path / "whole"
    packaged("mlp", whole)
    data = (whole / "net.flambeau").read_bytes()
    harmed = {
        "cut": (data[:-40], "not a file of Flambeau, or cut off"),
        "empty": (b"", "not a file of Flambeau"),
        "changed": (data.replace(b"(free", b"(fred", 1), "program.steps is not what was written"),
    }
    for name, (bytes_, _) in harmed.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.flambeau").write_bytes(bytes_)
    serve(program, *(tmp_path / name for name in harmed), tmp_path / "absent")
    for name, (_, said) in harmed.items():
        assert said in (tmp_path / name / "refused.txt").read_text()


def test_the_first_processor_that_fits(program, tmp_path):
    if "x86-64-v2" not in levels():
        pytest.skip("no x86-64 processor")
    net, x = nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval(), torch.randn(4, 8)
    names = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
    with torch.no_grad():
        flambeau.package(net, x, path=tmp_path / "net.flambeau", processors=names)
    saved([x], tmp_path / "in-0.pt")
    serve(program, tmp_path)
    assert not (tmp_path / "refused.txt").exists()
    made = torch.load(tmp_path / "out-0.pt", weights_only=False)
    torch.testing.assert_close(made, [net(x)])


def levels():
    return [name for name, needed in LEVELS.items() if needed <= features()]
