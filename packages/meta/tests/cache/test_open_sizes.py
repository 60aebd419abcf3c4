"""Graphs with open sizes come from the disk, with the same guards, where their conditions hold."""

import hashlib
import json
import os
import subprocess
import sys

import pytest
import torch
from flambeau_capture import mark_dynamic
from flambeau_capture.api import compiler_of

import flambeau
from flambeau.cache import graphs


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def guards_of(compiled):
    """All guards of each entry as text, conditions on sizes written out."""
    return [
        sorted(f"{guard} {[getattr(part, 'text', '') for part in guard.params]}" for guard in found)
        for found in (each.items for each in compiler_of(compiled).records.guards)
    ]


def run(fn, *sizes, dim=0, make=lambda n: torch.randn(n, 6)):
    """Compile and call at all sizes, each right; the compiled function and its records."""
    compiled = flambeau.compile(fn, options={"raise_internal_errors": True})
    for size in sizes:
        x = make(size)
        mark_dynamic(x, dim)
        torch.testing.assert_close(compiled(x), fn(x))
    return compiled, flambeau.report(compiled).records


def rows(x):
    return torch.softmax(x * 2, -1).sum(0)


def test_one_entry_serves_all_sizes_under_the_same_guards():
    first, cold = run(rows, 5, 9)
    second, warm = run(rows, 30, 4, 77)
    assert [each.from_disk for each in cold] == [False] and not cold[0].not_cached
    assert [each.from_disk for each in warm] == [True]
    assert list(warm[0].seconds) == ["cache: load", "other"]
    assert guards_of(first) == guards_of(second)
    assert flambeau.cache.why_miss(first, second) == []


def matched(x):
    return (x * x.new_ones(x.shape)).sum()


def joined(x, y):
    return (x * y).tanh().sum(1)


def chosen(x):
    return x[x[:, 0] > 0].tanh().sum(0) + torch.cat([x[x[:, 1] > 0], x])[-1:].sum()


def cut(x):
    n = (x[:, 0] > 0).sum().item()
    return x[:n].cos().sum() * n + x[n:].sum()


@pytest.mark.sweep(8)
@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("fn", [matched, chosen, cut, lambda x: joined(x, x + 1)])
def test_sizes_that_depend_on_data_come_from_the_disk(fn, dynamic):
    """Whatever is open besides: operators count them anew, and the graph checks what it assumes."""
    for number in range(2):
        compiled = flambeau.compile(fn, dynamic=dynamic, options={"raise_internal_errors": True})
        for size in (9, 5, 12) if dynamic else (9, 9):
            x = torch.randn(size, 6, requires_grad=True)
            found = [fn(x), compiled(x)]
            grads = [torch.autograd.grad(each.sum(), x)[0] for each in found]
            torch.testing.assert_close(found[1], found[0])
            torch.testing.assert_close(grads[1], grads[0])
        records = flambeau.report(compiled).records
        assert [(each.from_disk, each.not_cached) for each in records] == [(number == 1, "")]


def test_two_inputs_of_one_open_size_come_from_the_disk():
    for number in range(2):
        compiled = flambeau.compile(joined, dynamic=True, options={"raise_internal_errors": True})
        for size in (9, 5):
            x, y = torch.randn(size, 6), torch.randn(size, 6)
            torch.testing.assert_close(compiled(x, y), joined(x, y))
        records = flambeau.report(compiled).records
        assert [(each.from_disk, each.not_cached) for each in records] == [(number == 1, "")]


def halved(x):
    # what is assumed: an even number of rows, more than six
    if x.shape[0] % 2 == 0 and x.shape[0] > 6:
        return x.reshape(x.shape[0] // 2, -1).tanh()
    return x.tanh()


def test_each_branch_has_an_entry_of_its_own():
    for number, sizes in enumerate(((8, 10), (5, 3), (4, 6))):
        _, records = run(halved, *sizes)
        assert [each.from_disk for each in records] == [False], number
    for sizes in ((12, 8, 64), (3, 5), (2, 6)):
        _, records = run(halved, *sizes)
        assert [each.from_disk for each in records] == [True], sizes
    again, records = run(halved, 12, 5, 4)
    assert [each.from_disk for each in records] == [True] * 3
    assert len({str(each) for each in guards_of(again)}) == 3


def reshaped(x):
    return torch.nn.functional.pad(x, (0, 0, 0, 1)).view(3, -1).relu().sum(0)


def test_what_the_compile_assumes_is_assumed_again():
    """A view asks the environment: the answer has to be a guard of the restored program too."""
    first, cold = run(reshaped, 5, 8)
    second, warm = run(reshaped, 11, 5)
    assert [each.from_disk for each in warm] == [True] * len(cold)
    assert guards_of(first) == guards_of(second)
    assert any("// 3" in guard for guard in guards_of(second)[0])


def rewrite_conditions(folder, text):
    """Other conditions in the only entry, with a right digest; the file."""
    (path,) = folder.glob("graphs/*/*/" + graphs.SIZES)
    path.write_text(text)
    digests = json.loads((path.parent / "digests.json").read_text())
    digests[graphs.SIZES] = hashlib.sha256(path.read_bytes()).hexdigest()
    (path.parent / "digests.json").write_text(json.dumps(digests))
    return path


def test_entries_whose_conditions_fail_are_left_alone(folder):
    run(rows, 5)
    rewrite_conditions(folder, json.dumps([["Equality", ["Mod", ["s", 0], 7], 0]]))
    _, records = run(rows, 5)
    assert [each.from_disk for each in records] == [False]
    compiled, records = run(rows, 14, 21)
    assert [each.from_disk for each in records] == [True]
    assert any("% 7" in guard for guard in guards_of(compiled)[0])


@pytest.mark.parametrize(
    "content", ["[]]", '[["exec", 1]]', '{"a": 1}', '[["s", 9]]', "7"], ids=lambda text: text
)
def test_conditions_of_another_kind_cost_a_compile(folder, content):
    run(rows, 5)
    path = rewrite_conditions(folder, content)
    _, records = run(rows, 5)
    assert [each.from_disk for each in records] == [False]
    assert "does not load" in records[0].cache_faults[0]
    path.write_text("[]")  # and one whose digest is wrong is made again in its place
    _, records = run(rows, 5)
    assert not records[0].cache_faults


def test_no_more_than_so_many_entries(folder, monkeypatch):
    monkeypatch.setattr(graphs, "VARIANTS", 1)
    run(rows, 5)
    rewrite_conditions(folder, json.dumps([["Equality", ["Mod", ["s", 0], 7], 0]]))
    _, records = run(rows, 5)
    assert not records[0].from_disk and "other sizes" in records[0].not_cached


def scaled(x, k):
    return (x * k).sum(-1) + k


def test_numbers_that_vary():
    def fresh():
        compiled = flambeau.compile(scaled)
        for k in (3, 4, 9, 0.5, 0.25, 2.5):
            x = torch.randn(3, 4)
            torch.testing.assert_close(compiled(x, k), scaled(x, k))
        return compiled, flambeau.report(compiled).records

    first, cold = fresh()
    second, warm = fresh()
    assert {each.not_cached for each in cold} == {""}
    assert [each.from_disk for each in warm] == [True] * len(cold)
    assert guards_of(first) == guards_of(second)


PROGRAM = """
import json, sys, torch, flambeau
from flambeau_capture import mark_dynamic
from flambeau_capture.api import compiler_of
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
def loss(x):
    return torch.log_softmax(net(x), -1).pow(2).mean(0).sum()
compiled = flambeau.compile(loss)
for size in map(int, sys.argv[1:]):
    x = torch.randn(size, 8)
    mark_dynamic(x, 0)
    grads = []
    for fn in (compiled, loss):
        net.zero_grad()
        fn(x).backward()
        grads.append([p.grad.clone() for p in net.parameters()])
    torch.testing.assert_close(*grads)
records = flambeau.report(compiled).records
print(json.dumps({"disk": [each.from_disk for each in records],
    "stages": [sorted(each.seconds) for each in records],
    "guards": [sorted(f"{g} {[getattr(p, 'text', '') for p in g.params]}" for g in each.items)
               for each in compiler_of(compiled).records.guards],
    "code": [dict(each.key.parts)["code"] for each in records]}))
"""


def process(folder, *sizes):
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(folder)}
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-c", PROGRAM, *map(str, sizes)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_another_process_trains_at_any_size_without_a_compile(folder):
    cold, warm = process(folder, 5, 8), process(folder, 31, 6, 64)
    if cold["code"] != warm["code"]:  # somebody edits the packages just now
        cold, warm = warm, process(folder, 31, 6, 64)
    assert cold["guards"] == warm["guards"]
    assert cold["code"] != warm["code"] or (cold["disk"], warm["disk"]) == ([False], [True])
    if warm["disk"] == [True]:
        assert warm["stages"] == [["cache: load", "other"]]


def test_derivatives_of_second_order_of_a_restored_program():
    def fn(x):
        return (x.sin() * x).sum()

    def hessian(f, x):
        (first,) = torch.autograd.grad(f(x), [x], create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), [x])[0]

    for number in range(2):
        compiled = flambeau.compile(fn)
        for size in (4, 7):
            x = torch.randn(size, 3, dtype=torch.float64, requires_grad=True)
            mark_dynamic(x, 0)
            torch.testing.assert_close(hessian(compiled, x), hessian(fn, x))
        (record,) = flambeau.report(compiled).records
        assert record.from_disk == (number == 1)


def test_carried_to_another_folder(folder, tmp_path, monkeypatch):
    run(rows, 5)
    assert flambeau.cache.save(tmp_path / "cache.zip")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "other"))
    assert flambeau.cache.load(tmp_path / "cache.zip")
    _, records = run(rows, 40, 3)
    assert [each.from_disk for each in records] == [True]
