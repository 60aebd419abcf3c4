"""`torch.compile(backend="flambeau")`: torch captures, and the rest is Flambeau's."""

import os
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest
import torch

import flambeau
from flambeau.switching.backend import flambeau as backend


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    yield
    torch.compiler.reset()


def kernels():
    return flambeau.report().kernels


def test_training_with_batches_that_vary():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 2))
    compiled = torch.compile(model, backend=backend)
    before = flambeau.report().records
    for size in (2, 3, 4, 5):
        results = []
        for fn in (model, compiled):
            x = torch.ones(size, 4, requires_grad=True)
            model.zero_grad()
            loss = fn(x).pow(2).sum()
            loss.backward()
            results.append([loss, x.grad, *(p.grad for p in model.parameters())])
        for eager, ours in zip(*results, strict=True):
            torch.testing.assert_close(ours, eager)
    known = {id(record) for record in before}
    made = [record for record in flambeau.report().records if id(record) not in known]
    assert len(made) == 2  # a size, and any size
    assert kernels() > 0


def test_sizes_among_the_results():
    def fn(x, n):
        return x.sum(0) * n + x.shape[0], x.shape[0] * 2, n + 1

    compiled = torch.compile(fn, backend=backend)
    for size in (2, 3, 4, 5):
        x = torch.arange(size * 3.0).reshape(size, 3)
        (tensor, *numbers), (expected, *others) = compiled(x, size + 7), fn(x, size + 7)
        torch.testing.assert_close(tensor, expected)
        assert numbers == others
    assert kernels() > 0


def test_choices_are_those_of_torch():
    compiled = torch.compile(
        lambda x: x.sin() + 1, backend=backend, options={"max_autotune": False}
    )
    torch.testing.assert_close(compiled(torch.zeros(3)), torch.ones(3))
    with pytest.raises(Exception, match="unknown mode 'fastest'"):
        torch.compile(lambda x: x.cos(), backend=backend, mode="fastest")(torch.zeros(3))


NAMED = """
import torch, flambeau
assert "flambeau" in torch.compiler.list_backends()
model = torch.nn.Linear(3, 2)
expected = model(torch.ones(4, 3))
compiled = torch.compile(model, backend="flambeau")
torch.testing.assert_close(compiled(torch.ones(4, 3)), expected)
model.compile(backend="flambeau")
torch.testing.assert_close(model(torch.ones(4, 3)), expected)
assert flambeau.report().graphs > 0
assert "flambeau" in flambeau.list_backends()
"""


def test_torch_finds_it_by_its_name(tmp_path):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    parts = []
    for group, points in project["entry-points"].items():
        parts += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items()), ""]
    folder = tmp_path / "flambeau-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: flambeau\nVersion: 0\n")
    (folder / "entry_points.txt").write_text("\n".join(parts))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", NAMED],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr


def test_torch_does_not_look_into_what_flambeau_compiled():
    inner = flambeau.compile(lambda x: x.sin() + 1, backend="eager")
    seen = []

    def counting(gm, example_inputs):
        seen.append(gm)
        return gm.forward

    outer = torch.compile(lambda x: inner(x * 2) * 3, backend=counting)
    x = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(outer(x), ((x * 2).sin() + 1) * 3)
    assert len(seen) == 2  # before and after it
    assert flambeau.report(inner).graphs == 1
