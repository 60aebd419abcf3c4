"""`install` replaces public names, and `uninstall` puts them back exactly."""

import functools
import gc
import inspect
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import types
import warnings
import weakref

import pytest
import torch
import torch._dynamo

import flambeau
from flambeau.switching import install as switch
from flambeau.switching import stand_ins, translation


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(translation, "_said", set())
    yield
    flambeau.uninstall()
    flambeau.set_stance("default")
    torch.compiler.set_stance("default")


@pytest.fixture
def installed():
    flambeau.install()


def names():
    """Every attribute of the modules that are patched."""
    return {
        (module, name): value
        for module in switch.NAMES
        for name, value in vars(sys.modules[module]).items()
    }


def differing(before):
    after = names()
    assert after.keys() == before.keys()
    return {key for key, value in before.items() if after[key] is not value}


def fn(x):
    return x.sin() + 1


def graphs(compiled):
    return flambeau.report(compiled).graphs


def seen_by(seen, original):
    """What a library puts in place of `torch.compile` to see its calls."""

    if not callable(original):
        later = None  # its cell, the first one, is empty

    @functools.wraps(original)
    def compile(*args, **kwargs):
        seen.append(kwargs)
        return original(*args, **kwargs) if seen else later

    return types.FunctionType(
        compile.__code__, {**globals(), "__name__": "library"}, "compile", None, compile.__closure__
    )


@pytest.mark.parametrize("when", ["before", "while", "before and again"])
def test_what_a_library_wraps_around_torch_compile_stays(when, monkeypatch):
    seen, torchs = [], torch.compile
    monkeypatch.setattr(torch, "compile", torchs)  # put back in the end
    if when == "while":
        flambeau.install()
    wrapper = seen_by(seen, torch.compile)
    wrapper.__wrapped__ = torch.compile
    torch.compile = wrapper
    flambeau.install()
    if when == "before and again":
        flambeau.uninstall()
        flambeau.install()
    for number in (1, 2):
        compiled = torch.compile(fn, dynamic=False)
        assert graphs_of_call(compiled) == 1
        assert torch.compile is wrapper and seen == [{"dynamic": False}] * number
        flambeau.uninstall()
        assert torch.compile is wrapper and torch.compile(fn, backend="eager", disable=True) is fn
        assert seen.pop()["disable"]
        if when != "while":
            assert wrapper.__closure__[1].cell_contents is torchs
        flambeau.install()


def graphs_of_call(compiled):
    torch.testing.assert_close(compiled(torch.ones(3)), fn(torch.ones(3)))
    return graphs(compiled)


def test_every_name_is_replaced_and_put_back():
    before = names()
    flambeau.install()
    wanted = {(module, name) for module, listed in switch.NAMES.items() for name in listed.split()}
    assert differing(before) == wanted & before.keys()
    flambeau.uninstall()
    assert differing(before) == set()


def test_each_name_has_a_stand_in():
    for listed in switch.NAMES.values():
        for name in listed.split():
            assert callable(getattr(stand_ins, name)), name


def test_installing_twice_is_installing_once():
    before = names()
    flambeau.install()
    once = names()
    flambeau.install()
    assert differing(once) == set()
    flambeau.uninstall()
    assert differing(before) == set()
    flambeau.uninstall()
    assert differing(before) == set()


def test_an_installation_that_fails_changes_nothing(monkeypatch):
    before = names()
    replacing = switch._replacement

    def fails_late(name, original):
        if name == "set_stance":
            raise MemoryError
        return replacing(name, original)

    monkeypatch.setattr(switch, "_replacement", fails_late)
    with pytest.raises(MemoryError):
        flambeau.install()
    assert differing(before) == set()
    assert not switch.is_installed()


def test_who_replaced_a_name_since_keeps_it():
    theirs = torch.compile
    flambeau.install()
    ours = torch.compile
    calls = []

    def wrapper(*args, **kwargs):
        calls.append(args)
        return ours(*args, **kwargs)

    torch.compile = wrapper
    try:
        flambeau.uninstall()
        assert torch.compile is wrapper
        compiled = torch.compile(fn, backend="eager")
        assert calls and not isinstance(compiled, stand_ins.compiled)
    finally:
        torch.compile = theirs


def test_a_function_that_was_compiled_before_goes_on():
    seen = []

    def backend(gm, example_inputs):
        seen.append(gm)
        return gm.forward

    before = torch.compile(fn, backend=backend, dynamic=False)
    before(torch.ones(3))
    flambeau.install()
    before(torch.ones(4))
    assert len(seen) == 2
    with torch.compiler.set_stance("force_eager"):
        before(torch.ones(5))
    assert len(seen) == 2
    torch.compiler.reset()
    before(torch.ones(3))
    assert len(seen) == 3
    again = torch.compile(before, backend="eager")  # anew, by Flambeau
    torch.testing.assert_close(again(torch.ones(3)), fn(torch.ones(3)))
    assert graphs(again) == 1
    assert len(seen) == 3


def test_what_was_compiled_goes_on_after_uninstalling(installed):
    compiled = torch.compile(fn, backend="eager")
    flambeau.uninstall()
    torch.testing.assert_close(compiled(torch.ones(3)), fn(torch.ones(3)))
    assert graphs(compiled) == 1


def scaled(x, by):
    return x * by


class Doubling:
    def times(self, x):
        return x * 2


def of_each_kind():
    """Callables, each of which is reached anew at each call, and alike."""
    module, owner, function = torch.nn.Linear(3, 3), Doubling(), lambda x: x + 1
    partial = functools.partial(scaled, by=2)
    return {
        "a function": lambda: function, "a module": lambda: module,
        "a method": lambda: owner.times, "a module's forward": lambda: module.forward,
        "a partial": lambda: partial,
    }  # fmt: skip


@pytest.mark.parametrize("kind", of_each_kind())
def test_compiling_again_the_same_way_keeps_the_entries(kind, installed):
    target, x = of_each_kind()[kind], torch.ones(3)
    first = torch.compile(target(), backend="eager")
    first(x)
    again = torch.compile(target(), backend="eager")
    torch.testing.assert_close(again(x), target()(x))
    assert graphs(again) == 1
    assert graphs(torch.compile(again, backend="eager")) == 1
    for other in ({"dynamic": True}, {"backend": "aot_eager"}, {"isolate_recompiles": True}):
        anew = torch.compile(target(), **({"backend": "eager"} | other))
        assert graphs(anew) == 0, other
        anew(x)
        assert graphs(anew) == 1, other


def test_a_function_compiled_where_it_is_called_is_captured_once(installed):
    calls = []

    def backend(gm, example_inputs):
        calls.append(gm)
        return gm.forward

    def function(x):
        return x.sin() + 1

    for _ in range(3):
        torch.compile(function, backend=backend)(torch.ones(3))
    assert len(calls) == 1
    alive = weakref.ref(function)
    del function
    gc.collect()
    assert alive() is None


def test_modules_that_share_entries_have_hooks_and_a_forward_of_their_own(installed):
    module, x = torch.nn.Linear(3, 3), torch.ones(3)
    first, again = (torch.compile(module, backend="eager") for _ in range(2))
    first.register_forward_hook(lambda module, given, found: found * 0)
    torch.testing.assert_close(first(x), module(x) * 0)
    torch.testing.assert_close(again(x), module(x))
    again.forward = lambda x: x * 100
    torch.testing.assert_close(torch.compile(module, backend="eager")(x), module(x))
    assert [graphs(each) for each in (first, again)] == [1, 1]
    assert graphs(torch.compile(module, backend="aot_eager")) == 0
    assert graphs(first) == 1


@pytest.mark.parametrize(
    "given",
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])), (1, True), (2, 2.0),
        ([1, {"a": 2}], [1, {"a": 3}]),
    ],
    ids=["tensors", "an integer and a truth value", "numbers", "within"],
)  # fmt: skip
def test_options_that_differ_are_not_the_same_way(given, installed):
    def backend(gm, inputs, options):
        seen.append(options["of"])
        return gm.forward

    seen, function = [], lambda x: x + 1
    for one in (given[0], given[0], given[1]):
        torch.compile(function, backend=backend, options={"of": one})(torch.ones(3))
    assert len(seen) == 2
    assert seen[0] is given[0] and seen[1] is given[1]


@pytest.mark.parametrize("isolated", [False, True])
def test_of_a_function_only_what_was_made_last_is_kept(isolated, installed):
    def function(x):
        return x + 1

    alive = []
    for _ in range(3):
        made = torch.compile(
            function, backend=lambda gm, _: gm.forward, isolate_recompiles=isolated
        )
        made(torch.ones(3))
        alive.append(weakref.ref(made))
    del made
    gc.collect()
    assert [each() is not None for each in alive] == [False, False, not isolated]


def test_what_is_kept_of_a_function_is_not_pickled_with_its_attributes(installed):
    def function(x):
        return x + 1

    torch.compile(function, backend="eager")(torch.ones(3))
    assert set(pickle.loads(pickle.dumps(vars(function))).values()) == {None}


def test_a_stance_that_was_set_before_holds():
    torch.compiler.set_stance("force_eager")
    flambeau.install()
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(3))
    assert graphs(compiled) == 0
    torch.compiler.set_stance("default")
    compiled(torch.ones(3))
    assert graphs(compiled) == 1


def test_torchs_own_code_goes_on_calling_torchs(installed):
    caller = {"__name__": "torch.somewhere", "torch": torch}
    exec("def made(fn): return torch.compile(fn, backend='eager')", caller)
    assert not isinstance(caller["made"](fn), stand_ins.compiled)


def test_threads_that_install_and_uninstall():
    before = names()
    gate = threading.Barrier(8)

    def work():
        gate.wait()
        for _ in range(50):
            flambeau.install()
            flambeau.uninstall()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    flambeau.uninstall()
    assert differing(before) == set()


FRESH = """
import sys
import torch, flambeau
flambeau.install()
assert "torch._dynamo" not in sys.modules
f = torch.compile(lambda x: x * 2, backend="eager")
assert f(torch.ones(2)).tolist() == [2, 2]
m = torch.compile(torch.nn.ReLU(), backend="eager")
torch.compiler.disable(lambda x: x)
torch.compiler.allow_in_graph(lambda x: x)
torch.compiler.assume_constant_result(lambda: 1)
torch.compiler.set_stance("default")
torch.compiler.reset()
torch.compiler.cudagraph_mark_step_begin()
torch.compiler.list_backends()
if hasattr(torch.compiler, "set_default_backend"):
    torch.compiler.set_default_backend("aot_eager")
    assert torch.compiler.get_default_backend() == "aot_eager"
    torch.compiler.set_default_backend(None)
loaded = [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]
assert not loaded, loaded
import torch._dynamo  # patched as it is loaded
assert torch._dynamo.reset.__wrapped__.__module__ == "torch._dynamo"
assert torch._dynamo.optimize("eager")(lambda x: x).__class__.__name__ in ("compiled", "function")
assert isinstance(m, torch._dynamo.OptimizedModule)
flambeau.uninstall()
assert not hasattr(torch._dynamo.reset, "__wrapped__")
assert not any(type(each).__module__.startswith("flambeau") for each in sys.meta_path)
"""


def test_nothing_of_torchs_compiler_is_loaded_unasked():
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_modes_and_dynamism(installed, mode, dynamic):
    compiled = torch.compile(fn, mode=mode, dynamic=dynamic)
    for size in (3, 4):
        torch.testing.assert_close(compiled(torch.ones(size)), fn(torch.ones(size)))
    assert graphs(compiled) == (1 if dynamic else 2)


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs", "lite"])
def test_every_mode_is_taken(installed, mode):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert callable(torch.compile(fn, mode=mode))
    assert len(said) == (mode == "lite")


def test_every_argument_of_torchs_is_taken_or_said(installed):
    values = {
        "model": fn, "fullgraph": True, "dynamic": False, "backend": "eager", "mode": None,
        "options": {}, "name": "region", "disable": False, "recompile_limit": 3,
        "isolate_recompiles": True, "shapes_spec": (), "dynamic_shapes": (),
    }  # fmt: skip
    parameters = inspect.signature(torch.compile).parameters
    given = {name: values[name] for name in parameters}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        compiled = torch.compile(**given)
        torch.compile(**given)
    texts = [str(each.message) for each in said]
    assert len(texts) == len(translation.ARGUMENTS.keys() & given.keys())
    assert all("no counterpart" in text for text in texts)
    assert {each.filename for each in said} == {__file__}
    assert graphs(compiled) == 0
    compiled(torch.ones(2))
    assert graphs(compiled) == 1


def test_what_nobody_knows_is_an_error(installed):
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'speed'"):
        torch.compile(fn, speed=2)
    with pytest.raises(flambeau.UnknownBackend, match=r"known: .*eager.*inductor"):
        torch.compile(fn, backend="indctor")
    with pytest.raises(flambeau.UnknownMode, match=r"known: .*max-autotune"):
        torch.compile(fn, mode="fastest")
    with pytest.raises(flambeau.UnknownOption, match=r"known: .*max_autotune"):
        torch.compile(fn, options={"max_autotunes": True})
    with pytest.raises(RuntimeError, match="mode= or options=, not both"):
        torch.compile(fn, mode="default", options={})


def test_options_have_counterparts_or_say_so_once(installed):
    def chosen(**options):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            context = torch.compile(options={k.replace("__", "."): v for k, v in options.items()})
        return context.recipe["options"], [str(each.message) for each in said]

    assert chosen(max_autotune=True) == ({"inductor.max_autotune": True}, [])
    assert chosen(triton__cudagraphs=True) == ({"inductor.cuda_graphs": True}, [])
    assert chosen(fallback_random=True) == ({"inductor.random": "eager"}, [])
    assert chosen(epilogue_fusion=True, shape_padding=True) == ({}, [])
    assert chosen(threads=2) == ({"inductor.threads": 2}, [])  # one of Flambeau's
    filtered, said = chosen(guard_filter_fn=lambda entries: entries)
    assert filtered == {} and "every guard stays" in said[0]
    others, said = chosen(comprehensive_padding=False)
    assert others == {} and "comprehensive_padding" in said[0]
    assert chosen(comprehensive_padding=False) == ({}, [])


def test_every_option_of_torchs_inductor_is_taken(installed):
    import torch._inductor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in torch._inductor.list_options():
            usual = translation.OPTIONS.get(name, translation.Counterpart()).usual
            translation.options_of({name: usual})


def test_configuration_is_followed(installed):
    import torch._inductor.config

    dynamo, inductor = torch._dynamo.config, torch._inductor.config

    def recipe(**given):
        return torch.compile(**given).recipe

    with (  # by its own `patch`: monkeypatch leaves torch's settings deleted
        dynamo.patch(recompile_limit=100),
        inductor.patch({"max_autotune": True, "triton.cudagraphs": True}),
    ):
        assert recipe()["options"] == {
            "capture.cache_size_limit": 64,
            "inductor.max_autotune": True,
            "inductor.cuda_graphs": True,
        }
        assert recipe(recompile_limit=3)["options"]["capture.cache_size_limit"] == 3
        assert recipe(backend="eager")["options"] == {"capture.cache_size_limit": 64}
    with dynamo.patch(assume_static_by_default=False):
        assert recipe()["dynamic"] is True and recipe(dynamic=False)["dynamic"] is False
        with dynamo.patch(automatic_dynamic_shapes=False):
            assert recipe()["dynamic"] is False
    with dynamo.patch(error_on_recompile=True):
        fails = torch.compile(fn, backend="eager")
    fails(torch.ones(2))
    with pytest.raises(RuntimeError):
        fails(torch.ones(3))
    with dynamo.patch(disable=True):
        assert torch.compile(fn) is fn


@pytest.mark.parametrize("name", translation.SWITCHES)
def test_a_variable_turns_compiling_off(installed, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    module = torch.nn.ReLU()
    assert torch.compile(fn) is fn and torch.compile(module) is module
    assert torch.compile(mode="default")(fn) is fn
    monkeypatch.setenv(name, "0")
    assert torch.compile(fn) is not fn
    assert torch.compile(fn, disable=True) is fn


def test_variables_are_followed_or_say_so(installed, monkeypatch):
    for name in filter(lambda each: each.startswith("TORCH"), [*os.environ]):
        monkeypatch.delenv(name)
    own = os.path.join(tempfile.gettempdir(), "torchinductor_me")  # torch's inductor sets it itself
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", own)
    assert translation.options_of_environment() == {}
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/somewhere")
    assert translation.options_of_environment() == {}  # FLAMBEAU_CACHE_DIR is set
    monkeypatch.delenv("FLAMBEAU_CACHE_DIR")
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    monkeypatch.setenv("TORCH_TRACE", "/elsewhere")
    monkeypatch.setenv("TORCHINDUCTOR_QUIESCE_ASYNC_COMPILE_POOL", "1")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = translation.options_of_environment()
        assert translation.options_of_environment() == found
    assert found == {
        "inductor.cache_dir": "/somewhere/flambeau", "inductor.disk_cache": False,
        "inductor.max_autotune": True,
    }  # fmt: skip
    assert sorted(str(each.message).split()[0] for each in said) == [
        "TORCHINDUCTOR_QUIESCE_ASYNC_COMPILE_POOL", "TORCH_TRACE",
    ]  # fmt: skip
    monkeypatch.setenv("TORCH_LOGS", "+dynamo,graph_breaks,-guards,output_code")
    assert translation.artifacts_of_environment() == ["frames", "breaks", "code"]


def test_a_class_is_compiled_as_torch_compiles_one(installed):
    @torch.compile(backend="eager")
    class Doubling(torch.nn.Module):
        def forward(self, x):
            return x * 2

    assert isinstance(Doubling, type)
    assert Doubling()(torch.ones(2)).tolist() == [2, 2]
    for compiled in (Doubling, Doubling(), Doubling.__call__):
        assert graphs(compiled) == 1


@pytest.mark.sweep(2)
@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("kind", ["function", "decorated", "twice", "module"])
def test_torchs_explanation_is_of_what_was_compiled(installed, kind, called):
    def two(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    class Module(torch.nn.Module):
        def forward(self, x):
            return two(x)

    compiled = {
        "function": lambda: torch.compile(two),
        "decorated": lambda: torch.compile(backend="eager")(two),
        "twice": lambda: torch.compile(torch.compile(two)),
        "module": lambda: torch.compile(Module()),
    }[kind]()
    x = torch.ones(2)
    if called:
        compiled(x)
    found = torch._dynamo.explain(compiled)(x)
    assert (found.graph_count, found.graph_break_count) == (2, 1)
    (broken,) = flambeau.explain(compiled, backend="eager")(x).breaks
    assert broken.id == "FB0006"  # the program has asked for it


def test_caches_travel_as_bytes(installed):
    compiled = torch.compile(fn)
    compiled(torch.ones(3))
    artifacts, info = torch.compiler.save_cache_artifacts()
    assert isinstance(artifacts, bytes) and not info.empty()
    flambeau.cache.clear()
    assert torch.compiler.load_cache_artifacts(artifacts).artifacts["flambeau"]
    assert flambeau.cache.keys()


def test_a_replacement_is_traced(installed):
    def original(x):
        raise NotImplementedError

    @torch.compiler.substitute_in_graph(original)
    def replacement(x):
        return x * 3

    compiled = torch.compile(lambda x: original(x), backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [3, 3]


def test_the_switch_of_the_environment(tmp_path):
    program = "import torch; print(torch.compile.__code__.co_filename)"
    folder = tmp_path / "flambeau-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: flambeau\nVersion: 0\n")
    (folder / "entry_points.txt").write_text(entry_points())

    def file_of(**variables):
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": path, **variables}
        command = [sys.executable, "-c", program]
        # a process of its own: torch asks for the variable while it is imported
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
            told = process.communicate()[0]
        assert process.returncode == 0
        return told.strip()

    assert file_of(FLAMBEAU_INSTALL="1") == switch.__file__
    assert file_of(FLAMBEAU_INSTALL="0") != switch.__file__
    assert file_of() != switch.__file__


def entry_points():
    """The entry points that the wheel declares, in the form that an installation has them in."""
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    parts = []
    for group, points in project["entry-points"].items():
        parts += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items()), ""]
    return "\n".join(parts)


@pytest.mark.parametrize("given", [("fast", {}), ("default", {"force_backnd": "eager"})])
def test_a_stance_that_is_refused_leaves_the_one_that_held(installed, given):
    held = torch._dynamo.eval_frame._stance
    with pytest.raises((ValueError, TypeError)):
        torch.compiler.set_stance(given[0], **given[1])
    assert torch._dynamo.eval_frame._stance == held and flambeau.get_stance() == "default"


def test_a_module_with_a_stance_is_a_module(installed):
    module = torch.nn.Linear(2, 2)
    made = torch.compiler.set_stance("force_eager")(module)
    assert isinstance(made, torch.nn.Linear) and made.weight is module.weight
    assert torch.equal(made(torch.ones(2)), module(torch.ones(2)))
    assert flambeau.get_stance() == "default"
