"""The product does without torch's own compile stack, and the tool that says so can see."""

import pytest

from tools import forbidden


def told(tmp_path, text, name="sample.py"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"import importlib, builtins, operator, sys, torch\n{text}\n")
    return [line.removeprefix(f"{path}:") for line in forbidden.findings(path)]


@pytest.mark.parametrize(
    "line",
    [
        "import torch._dynamo",
        "import torch._inductor.config as c",
        "from torch import _dynamo",
        "from torch._prims_common import dtype_to_type",
        "from torch.fx.experimental.proxy_tensor import make_fx",
        "torch.compile(f)",
        "x = torch._refs.add",
        "importlib.import_module('torch._functorch.aot_autograd')",
        "import functorch",
        "__import__('torch._dynamo')",
        "builtins.__import__('torch._inductor.config')",
        "getattr(torch, '_dynamo')",
        "hasattr(torch.fx.experimental, 'proxy_tensor')",
        "getattr(torch, '_d' + 'ynamo')",
        "__import__('torch.' + '_decomp')",
    ],
)
def test_it_sees_names(tmp_path, line):
    assert told(tmp_path, line)[0].startswith("2: names ")


def test_it_sees_names_behind_other_names(tmp_path):
    assert [line[:8] for line in told(tmp_path, "import torch as t\nt.compile(f)")] == ["3: names"]
    text = "from torch.fx import experimental as e\ne.proxy_tensor.make_fx(f)"
    assert [line[:8] for line in told(tmp_path, text)] == ["3: names"]


@pytest.mark.parametrize(
    "line",
    [
        "operator.attrgetter('_dynamo.config')(torch)",
        "sys.modules['torch._dynamo']",
        "sys.modules.get('torch._inductor.config')",
        "vars(torch)['_dynamo']",
        "torch.__dict__['_refs']",
        "NAME = 'torch._functorch'",
        "NAMES = {'torch._decomp.decompositions': 1}",
        "getattr(f, 'm').startswith('torch._prims')",
        "x = f'call {f} of torch.export'",
        "LAST = 'make_fx'",
        "NAME = 'torch.' + '_dynamo'",
        "NAME = 'functorch'",
        "def f():\n    'torch._dynamo'\n    return '_prims_common'",
    ],
)
def test_it_sees_what_a_string_spells(tmp_path, line):
    (found,) = told(tmp_path, line)
    assert ": spells " in found


@pytest.mark.parametrize(
    "line",
    [
        "getattr(torch, name)",
        "getattr(torch, NAME.rpartition('.')[2])",
        "hasattr(torch.fx.experimental, name)",
        "vars(torch)[name]",
        "torch.__dict__[name]",
        "__import__(name)",
        "importlib.import_module(f'torch.{name}')",
        "from importlib import import_module as load\nload(name)",
    ],
)
def test_it_sees_what_is_computed(tmp_path, line):
    (found,) = told(tmp_path, line)
    assert found.endswith(": computes a name of torch's or of a module")


@pytest.mark.parametrize(
    "text",
    [
        '"""Not torch.compile."""\nimport re\nre.compile("a")  # torch._dynamo',
        "class C:\n    'As torch.compile does.'\n    def f(self):\n        'torch._dynamo'",
        "getattr(torch, 'sin')\ngetattr(torch.ops, name)\nvars(torch)['sin']",
        "NAME = 'flambeau_inductor'\nMARK = 'torch_dynamo_backends'\nVIA = 'aot_eager_prims'",
        "importlib.import_module('json')\nx = torch.compiler.is_compiling()",
    ],
)
def test_it_lets_words_be(tmp_path, text):
    assert told(tmp_path, text) == []


def test_what_is_allowed_is_allowed_there_and_so_many_times_alone(tmp_path):
    allowed = forbidden.ALLOWED[0]
    line = f"X = {allowed.name!r}"
    place = f"packages/{allowed.path}"
    assert allowed.times == 1 and allowed.reason
    rest = [each.name for each in forbidden.ALLOWED[1:] if each.path == allowed.path]
    others = "\n".join(f"Y = {name!r}" for name in rest)
    assert told(tmp_path, f"{line}\n{others}", place) == []
    assert len(told(tmp_path, f"{line}\n{line}\n{others}", place)) == 1
    assert len(told(tmp_path, line)) == 1
    (unused,) = told(tmp_path, others, place)
    assert unused.endswith(f" 1 places for {allowed.name!r} are allowed, 0 needed")


def test_no_package_names_it_and_what_is_allowed_is_told(capsys):
    assert forbidden.main([]) == 0
    used = sum(each.times for each in forbidden.ALLOWED)
    assert f"; {used} places spell or compute a name" in capsys.readouterr().out
    assert forbidden.main(["--reasons"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(forbidden.ALLOWED)
