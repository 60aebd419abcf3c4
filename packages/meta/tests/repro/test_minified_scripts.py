"""Bugs are planted; scripts of a few nodes come out that fail in the same way."""

import os
import subprocess
import sys

import flambeau_prims
import pytest
import torch
from torch import fx

import flambeau
from flambeau.repro import GraphCheck, Settings, first_bad_node, read_script, shrink
from flambeau.variables import BadSetting


def model(x, w, deep=6):
    for step in range(deep):
        x = torch.relu(x @ w) + step
        x = x - x.mean(-1, keepdim=True)
    y = torch.sin(x) * 0.5
    for _ in range(deep // 2):
        y = torch.tanh(y @ w) + y
    return y.sum(0), y.amax(1)


def shallow(x, w):
    return model(x, w, 2)


def arguments():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(6, 8, generator=generator)
    return x, torch.randn(8, 8, generator=generator) / 3


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FLAMBEAU_REPRO_DIR", str(tmp_path / "repro"))
    return tmp_path / "repro"


def scripts(folder):
    return sorted(folder.glob("*.py")) if folder.is_dir() else []


def operations(path):
    gm, _, _ = read_script(path)
    return [n for n in gm.graph.nodes if n.op in ("call_function", "call_method")]


def test_nothing_is_written_unless_it_is_asked_for(folder):
    flambeau.compile(model, backend="eager")(*arguments())
    assert not folder.exists()


def test_a_program_without_tools_does_not_import_them():
    program = (
        "import sys, torch, flambeau; flambeau.compile(torch.sin, backend='eager')(torch.ones(2));"
        "print([n for n in sys.modules if n.startswith(('flambeau.repro', 'flambeau.page'))])"
    )
    clean = {k: v for k, v in os.environ.items() if k != "FLAMBEAU_REPRO_AFTER"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=clean
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_settings():
    assert Settings.from_environment({}) is None
    found = Settings.from_environment({"FLAMBEAU_REPRO_AFTER": "aot", "FLAMBEAU_REPRO_LEVEL": "4"})
    assert (found.after, found.level) == ("aot", 4)
    with pytest.raises(BadSetting):
        Settings.from_environment({"FLAMBEAU_REPRO_AFTER": "aot", "FLAMBEAU_REPRO_LEVEL": "5"})
    with pytest.raises(ValueError, match="capture"):
        Settings.from_environment({"FLAMBEAU_REPRO_AFTER": "dynamo"})


def refuses_sine(gm, inputs):
    """A backend with a bug."""
    if any(node.target is torch.sin for node in gm.graph.nodes):
        raise KeyError("no sine")
    return gm.forward


def wrong_sine(gm, inputs):
    """A backend that gives wrong answers."""

    def run(*given):
        swapped = fx.GraphModule(gm, gm.graph.__class__())
        graph = fx.Graph()
        graph.output(graph.graph_copy(gm.graph, {}))
        for node in graph.nodes:
            if node.target is torch.sin:
                node.target = torch.cos
        swapped = fx.GraphModule(gm, graph)
        return swapped(*given)

    return run


def test_a_backend_that_raises(folder, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_REPRO_AFTER", "capture")
    with pytest.warns(UserWarning, match="no sine"):
        flambeau.compile(model, backend=refuses_sine)(*arguments())
    (path,) = scripts(folder)
    assert [node.target for node in operations(path)] == [torch.sin]
    assert "KeyError" in path.read_text()


def test_a_backend_that_no_module_offers_comes_as_text(folder, monkeypatch):
    limit = 0

    def mine(gm, inputs):
        if sum(node.target is torch.sin for node in gm.graph.nodes) > limit:
            raise KeyError("no sine")
        return gm.forward

    monkeypatch.setenv("FLAMBEAU_REPRO_AFTER", "capture")
    with pytest.warns(UserWarning, match="no sine") as told:
        flambeau.compile(model, backend=mine)(*arguments())
    (own,) = (each for each in told if each.category is flambeau.FlambeauWarning)
    assert own.filename == __file__  # the line of the program, not one of ours
    (path,) = scripts(folder)
    text = path.read_text()
    assert "def mine(gm, inputs):" in text and "limit = 0" in text
    assert "BACKEND = mine" in text and "_pytree" not in text
    clean = {k: v for k, v in os.environ.items() if k != "FLAMBEAU_REPRO_AFTER"}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=clean)
    assert done.returncode == 1 and done.stdout.startswith("KeyError: "), done.stderr


def test_level_1_writes_the_graph_as_it_is(folder, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_REPRO_AFTER", "capture")
    monkeypatch.setenv("FLAMBEAU_REPRO_LEVEL", "1")
    with pytest.warns(UserWarning, match="no sine"):
        flambeau.compile(model, backend=refuses_sine)(*arguments())
    (path,) = scripts(folder)
    assert len(operations(path)) > 25
    assert "python -m flambeau minify" in path.read_text()


def test_a_backend_that_is_wrong(folder, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_REPRO_AFTER", "capture")
    monkeypatch.setenv("FLAMBEAU_REPRO_LEVEL", "4")
    with pytest.warns(UserWarning, match="wrong"):
        flambeau.compile(model, backend=wrong_sine)(*arguments())
    (path,) = scripts(folder)
    assert torch.sin in [node.target for node in operations(path)]
    assert len(operations(path)) <= 2


def test_a_decomposition(folder, monkeypatch):
    real = flambeau_prims.decompositions

    def planted(*given, **named):
        table = dict(real(*given, **named))
        op = torch.ops.aten.tanh.default
        rule = table.get(op, op)
        table[op] = lambda x: rule(x) * 1.01
        return table

    monkeypatch.setattr(flambeau_prims, "decompositions", planted)
    monkeypatch.setenv("FLAMBEAU_REPRO_AFTER", "capture")
    monkeypatch.setenv("FLAMBEAU_REPRO_LEVEL", "4")
    with pytest.warns(UserWarning, match="wrong"):
        flambeau.compile(shallow)(*arguments())
    (path,) = scripts(folder)
    assert [node.target for node in operations(path)] == [torch.tanh]


@pytest.mark.parametrize("after", ["capture", "aot"])
def test_a_lowering(folder, monkeypatch, after):
    from flambeau_inductor.lowering.registry import RULES, rule_of

    monkeypatch.setitem(RULES, "sin", rule_of("cos"))
    monkeypatch.setenv("FLAMBEAU_REPRO_AFTER", after)
    monkeypatch.setenv("FLAMBEAU_REPRO_LEVEL", "4")
    with pytest.warns(UserWarning, match="wrong"):
        flambeau.compile(shallow)(*arguments())
    (path,) = scripts(folder)
    (left,) = operations(path)
    sine = torch.sin if after == "capture" else torch.ops.flambeau_prims.sin.default
    assert left.target is sine


PLANTED = """
from flambeau_inductor.lowering.registry import RULES, rule_of
RULES["sin"] = rule_of("cos")
"""


def test_the_script_fails_alone_and_passes_when_the_bug_is_gone(folder, monkeypatch):
    from flambeau_inductor.lowering.registry import RULES, rule_of

    with monkeypatch.context() as patch:
        patch.setitem(RULES, "sin", rule_of("cos"))
        patch.setenv("FLAMBEAU_REPRO_AFTER", "capture")
        patch.setenv("FLAMBEAU_REPRO_LEVEL", "4")
        with pytest.warns(UserWarning, match="wrong"):
            flambeau.compile(shallow)(*arguments())
    (path,) = scripts(folder)
    clean = {k: v for k, v in os.environ.items() if k != "FLAMBEAU_REPRO_AFTER"}
    well = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=clean)
    assert well.returncode == 0 and "does not fail any more" in well.stdout, well.stderr
    text = path.read_text()
    planted = folder / "planted.py"
    planted.write_text(text.replace("import sys\n", f"import sys\n{PLANTED}", 1))
    for tensors in folder.glob("*_tensors.pt"):
        tensors.rename(folder / "planted_tensors.pt")
        planted.write_text(planted.read_text().replace(tensors.name, "planted_tensors.pt"))
    ill = subprocess.run([sys.executable, str(planted)], capture_output=True, text=True, env=clean)
    assert ill.returncode == 1 and "wrong" in ill.stdout, ill.stderr


def ends_the_process(gm, inputs):
    """A backend that crashes on a sine."""
    if any(node.target is torch.sin for node in gm.graph.nodes):
        os.kill(os.getpid(), 11)
    return gm.forward


CRASH = """
import sys
sys.path.insert(0, {here!r})
import test_minified_scripts as t, flambeau
flambeau.compile(t.small, backend=t.ends_the_process)(*t.arguments())
"""


def small(x, w):
    return torch.sin(x) + 1


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.skipif("FLAMBEAU_SWEEPS" not in os.environ, reason="one of the sweeps")
def test_shrinking_a_graph_that_ends_the_process(folder):
    shrunk_by_the_command(crashed(folder))


def test_a_process_that_ends_leaves_a_script(folder):
    path = crashed(folder)
    assert [node.target for node in operations(path)].count(torch.sin) == 1
    assert "the process ended" in path.read_text()


def surroundings(**variables):
    here = os.path.dirname(__file__)
    paths = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": paths, **variables}


def crashed(folder):
    """A process that a backend ends; the script that it leaves."""
    environment = surroundings(FLAMBEAU_REPRO_AFTER="capture", FLAMBEAU_REPRO_LEVEL="3")
    program = CRASH.format(here=os.path.dirname(__file__))
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert done.returncode == -11, done.stderr
    (path,) = scripts(folder)
    return path


def shrunk_by_the_command(path):
    command = [sys.executable, "-m", "flambeau", "minify", str(path)]
    done = subprocess.run(command, env=surroundings(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ": 1 operations" in done.stdout and "signal 11" in done.stdout


def graph_of(fn, *args):
    seen = []
    flambeau.compile(fn, backend=lambda gm, inputs: seen.append(gm) or gm.forward)(*args)
    return seen[0]


def test_shrinking_keeps_the_kind_of_failure():
    gm = graph_of(model, *arguments())
    shrunk = shrink(gm, list(arguments()), GraphCheck(refuses_sine))
    assert shrunk.operations == 1 and shrunk.failure.kind == "KeyError"
    assert shrunk.tests < 100
    assert shrink(gm, list(arguments()), GraphCheck("eager")) is None


def test_two_nodes_that_fail_only_together_stay_together():
    def both(gm, inputs):
        targets = {node.target for node in gm.graph.nodes}
        if {torch.sin, torch.tanh} <= targets:
            raise KeyError("both")
        return gm.forward

    shrunk = shrink(graph_of(model, *arguments()), list(arguments()), GraphCheck(both))
    left = {node.target for node in shrunk.gm.graph.nodes}
    assert {torch.sin, torch.tanh} <= left and shrunk.operations <= 3


def test_the_first_bad_node():
    gm = graph_of(model, *arguments())
    node = first_bad_node(gm, list(arguments()), GraphCheck(wrong_sine))
    assert node.target is torch.sin


def test_a_graph_with_parameters(folder, monkeypatch):
    layer = torch.nn.Linear(8, 8)
    monkeypatch.setenv("FLAMBEAU_REPRO_AFTER", "capture")
    monkeypatch.setenv("FLAMBEAU_REPRO_LEVEL", "1")
    with pytest.warns(UserWarning, match="no sine"):
        flambeau.compile(lambda x: torch.sin(layer(x)), backend=refuses_sine)(torch.randn(2, 8))
    (path,) = scripts(folder)
    gm, inputs, _ = read_script(path)
    torch.testing.assert_close(gm(*inputs)[0].shape, torch.Size([2, 8]))
