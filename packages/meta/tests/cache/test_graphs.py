"""A graph that was compiled before comes from the disk and is the same; another one does not."""

import json
import os
import subprocess
import sys
import warnings

import pytest
import torch

import flambeau
from flambeau.cache.graphs import CacheLookup


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def once(fn, *args, **options):
    """Compile and call; the result and the only record."""
    compiled = flambeau.compile(fn, **options)
    result = compiled(*args)
    (record,) = flambeau.report(compiled).records
    return result, record


def softmax(x):
    return torch.softmax(x * 2, -1)


def test_the_second_compile_comes_from_the_disk():
    x = torch.randn(5, 7)
    first, cold = once(softmax, x)
    second, warm = once(softmax, x)
    assert not cold.from_disk and warm.from_disk
    assert cold.key == warm.key and cold.not_cached == warm.not_cached == ""
    assert torch.equal(first, second)
    assert warm.kernels == cold.kernels == 1
    assert list(warm.seconds) == ["cache: load", "other"]


PROGRAM = """
import json, sys, torch, flambeau
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n = torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16)
        self.b = torch.nn.Linear(16, 1)
    def forward(self, x):
        return self.b(torch.nn.functional.gelu(self.n(self.a(x)))).mean()
net, x = Net(), torch.randn(12, 8)
compiled = flambeau.compile(net)
for _ in range(2):
    loss = compiled(x); loss.backward()
(record,) = flambeau.report(compiled).records
print(json.dumps({"disk": record.from_disk, "kind": record.kind, "loss": loss.item(),
    "grad": net.a.weight.grad.sum().item(), "mean": net.n.running_mean.sum().item(),
    "seconds": list(record.seconds), "code": dict(record.key.parts)["code"]}))
"""


def process(folder):
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(folder)}
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_another_process_trains_from_the_disk(folder):
    cold, warm = process(folder), process(folder)
    if cold["code"] != warm["code"]:  # somebody edits the packages just now
        cold, warm = warm, process(folder)
    assert cold["code"] != warm["code"] or (cold["disk"], warm["disk"]) == (False, True)
    assert cold["kind"] == warm["kind"] == "training"
    assert ("cache: load" in warm["seconds"]) == warm["disk"]
    for name in ("loss", "grad", "mean"):
        assert cold[name] == pytest.approx(warm[name], rel=1e-6)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("inputs", lambda: (softmax, (torch.randn(5, 8),), {})),
        ("inputs", lambda: (softmax, (torch.randn(7, 5).t(),), {})),
        ("inputs", lambda: (softmax, (torch.randn(5, 7, requires_grad=True),), {})),
        ("inputs", lambda: (softmax, (torch.randn(5, 7).double(),), {})),
        ("graph", lambda: (lambda x: torch.softmax(x * 3, -1), (torch.randn(5, 7),), {})),
        ("options", lambda: (softmax, (torch.randn(5, 7),), {"options": {"threads": 1}})),
    ],
)
def test_what_differs_is_compiled_and_named(part, change):
    _, cold = once(softmax, torch.randn(5, 7))
    fn, args, options = change()
    result, other = once(fn, *args, **options)
    assert not other.from_disk
    torch.testing.assert_close(result, fn(*args))
    named = flambeau.cache.why_miss(cold.key, other.key)
    assert [text.partition(":")[0] for text in named] == [part]


def test_the_state_of_torch_is_part_of_the_key():
    x = torch.randn(5, 7)
    _, cold = once(softmax, x)
    with torch.no_grad():
        assert not once(softmax, x)[1].from_disk
    with torch.autocast("cpu", torch.bfloat16):
        assert not once(softmax, x)[1].from_disk
    torch.use_deterministic_algorithms(True)
    try:
        (text,) = flambeau.cache.why_miss(cold.key, once(softmax, x)[1].key)
    finally:
        torch.use_deterministic_algorithms(False)
    assert text.startswith("state") and "deterministic" in text


def test_values_of_weights_are_not():
    def run(scale):
        net = torch.nn.Linear(4, 4)
        torch.nn.init.constant_(net.weight, scale)
        torch.nn.init.zeros_(net.bias)
        return once(net, torch.ones(2, 4))

    (a, cold), (b, warm) = run(1.0), run(2.0)
    assert warm.from_disk and not cold.from_disk
    torch.testing.assert_close(b, a * 2)


@pytest.mark.parametrize("harm", ["truncated", "changed", "gone", "emptied"])
def test_a_broken_entry_is_made_again(folder, harm):
    x = torch.randn(5, 7)
    once(softmax, x)
    (path,) = folder.glob("graphs/*/*/program.json")
    if harm == "truncated":
        path.write_bytes(path.read_bytes()[:100])
    elif harm == "changed":
        path.write_text(path.read_text().replace('"fresh"', '"stale"'))
    elif harm == "gone":
        path.unlink()
    else:
        for each in path.parent.iterdir():
            each.unlink()
    result, again = once(softmax, x)
    assert not again.from_disk and torch.equal(result, once(softmax, x)[0])
    assert once(softmax, x)[1].from_disk


def test_an_entry_that_is_whole_but_no_program_is_counted_and_made_again(folder):
    """Digests hold, the content does not: as an entry of some other program would be."""
    x = torch.randn(5, 7)
    _, record = once(softmax, x)
    from flambeau_inductor.cache import open_store

    store = open_store(None)
    store.drop(record.key)
    assert store.put(record.key, {"program.json": b'{"halves": []}'}) == ""
    _, again = once(softmax, x)
    assert not again.from_disk and "does not load" in again.cache_faults[0]
    assert once(softmax, x)[1].from_disk


def shared(x, y):
    x.add_(1)
    return x + y


@torch.library.custom_op("flambeau_test_cache::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.mark.parametrize(
    ("fn", "args", "reason"),
    [
        (shared, lambda: (lambda b: (b[:4], b[2:]))(torch.arange(6.0)), "share memory"),
        (lambda x: twice(x) + 1, lambda: (torch.ones(3),), "flambeau_test_cache"),
    ],
)
def test_what_has_no_key_is_compiled_and_counted(fn, args, reason):
    reference = fn(*args())
    for _ in range(2):
        result, record = once(fn, *args())
        torch.testing.assert_close(result, reference)
        assert not record.from_disk and reason in record.not_cached


def test_the_option_that_turns_it_off():
    x = torch.randn(5, 7)
    for _ in range(2):
        _, record = once(softmax, x, options={"disk_cache": False})
        assert not record.from_disk and "disk_cache" in record.not_cached


def test_second_derivatives_of_what_came_from_the_disk():
    def fn(x):
        return torch.tanh(x).pow(2).sum()

    def second(run):
        x = torch.linspace(-1, 1, 9, requires_grad=True)
        (first,) = torch.autograd.grad(run(x), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    flambeau.compile(fn)(torch.linspace(-1, 1, 9, requires_grad=True))
    compiled = flambeau.compile(fn)
    torch.testing.assert_close(second(compiled), second(fn))
    assert flambeau.report(compiled).records[0].from_disk


def test_random_numbers_are_those_of_a_fresh_compile():
    def fn(x):
        return torch.nn.functional.dropout(x, 0.5)

    x, results = torch.ones(64), []
    for _ in range(2):
        torch.manual_seed(3)
        results.append(once(fn, x))
    assert results[1][1].from_disk and torch.equal(results[0][0], results[1][0])


def test_a_folder_that_cannot_be_used_costs_nothing_but_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "file" / "below"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.randn(5, 7)
        torch.testing.assert_close(once(softmax, x)[0], softmax(x))


def test_one_that_watches_sees_every_stage():
    x = torch.randn(5, 7)
    once(softmax, x)
    seen = []

    from flambeau.events.bus import Listener, listening

    class Kinds(Listener):
        every_stage = True

        def __call__(self, kind, product, owner):
            seen.append(kind)

    with listening(Kinds()):
        _, record = once(softmax, x)
    assert not record.from_disk and "stage" in seen and "aot" in seen


def test_a_lookup_of_open_sizes_has_no_key():
    from torch import fx

    class Open(fx.GraphModule):
        pass

    graph = fx.symbolic_trace(softmax)
    lookup = CacheLookup(graph, [object()], flambeau.choices.choose())
    assert lookup.key is None and "class object" in lookup.reason
