"""A function as one graph: in memory, as text, in a file."""

import copy
import functools
import inspect
import pickle
import zipfile

import pytest
import torch
from flambeau_capture import TensorForm

import flambeau
from flambeau import CannotPackage, Refused

linear = torch.nn.Linear(4, 4)


def nested(d, k=2, *, flag=True):
    z = torch.nn.functional.silu(linear(d["x"]))[:, 1:] + d["y"].reshape(-1, 3) * k
    return {"a": z, "b": (d["x"].mean(dim=(0, 1)), 7), "c": [d["y"], None]}


@pytest.fixture
def inputs():
    return {"x": torch.randn(2, 4), "y": torch.randn(6)}


def test_saved_and_loaded(inputs, tmp_path):
    exported = flambeau.export(nested, inputs, flag=True)
    loaded = flambeau.load_export(exported.save(tmp_path / "graph.flambeau"))
    for each in (exported, loaded):
        result, expected = each(inputs, flag=True), nested(inputs)
        torch.testing.assert_close(result["a"], expected["a"])
        torch.testing.assert_close(result["b"], expected["b"])
        assert result["c"][0] is inputs["y"] and result["c"][1] is None
    assert loaded.examples == exported.examples and loaded.in_spec == exported.in_spec


def test_what_it_is_called_with_is_checked(inputs, tmp_path):
    path = flambeau.export(nested, inputs).save(tmp_path / "graph.flambeau")
    loaded = flambeau.load_export(path)
    with pytest.raises(ValueError, match=r"1 \(d_y\): dimension 0 is 3, exported for 6"):
        loaded({**inputs, "y": torch.randn(3)})
    with pytest.raises(TypeError, match="structure: d is a single value, exported for a dict"):
        loaded(inputs["x"])


def test_the_text_names_every_operation_and_shape(inputs, tmp_path):
    exported = flambeau.export(nested, inputs)
    text = str(exported)
    for part in ("linear", "silu", "float32[2, 4]", "# argument 0", "return"):
        assert part in text
    path = exported.save(tmp_path / "graph.flambeau")
    with zipfile.ZipFile(path) as packed:
        assert packed.read("graph.txt").decode() == text


def test_gradients_reach_the_weights(inputs, tmp_path):
    loaded = flambeau.load_export(flambeau.export(nested, inputs).save(tmp_path / "g.flambeau"))
    loaded(inputs)["a"].sum().backward()
    found = {name: p.grad for name, p in loaded.graph_module.named_parameters()}
    linear.zero_grad()
    nested(inputs)["a"].sum().backward()
    assert any(torch.allclose(g, linear.weight.grad) for g in found.values() if g.dim() == 2)


def test_a_loaded_graph_is_compiled_like_any_module(inputs, tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    loaded = flambeau.load_export(flambeau.export(nested, inputs).save(tmp_path / "g.flambeau"))
    compiled = flambeau.compile(loaded.graph_module)
    (first, *_) = compiled(inputs["x"], inputs["y"])
    torch.testing.assert_close(first, nested(inputs)["a"])


def test_bodies_of_branches_are_kept(tmp_path):
    def fn(x):
        return torch.utils.checkpoint.checkpoint(lambda y: torch.sin(y) * 2, x, use_reentrant=False)

    x = torch.randn(3, requires_grad=True)
    loaded = flambeau.load_export(flambeau.export(fn, x).save(tmp_path / "g.flambeau"))
    torch.testing.assert_close(loaded(x), fn(x))


@torch.library.custom_op("flambeau_test_export::odd", mutates_args=())
def odd(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@odd.register_fake
def _(x):
    return torch.empty_like(x)


def test_what_has_no_form_in_a_file_is_named(tmp_path):
    exported = flambeau.export(lambda x: odd(x) + 1, torch.ones(2))
    with pytest.raises(CannotPackage, match="flambeau_test_export"):
        exported.save(tmp_path / "g.flambeau")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "subprocess.run", "torch.nothing"])
def test_a_name_that_no_graph_calls_is_refused(inputs, tmp_path, name):
    """Digests are right: somebody wrote this file."""
    from flambeau.packaging import archive

    path = flambeau.export(lambda x: torch.sin(x), torch.ones(2)).save(tmp_path / "g.flambeau")
    with zipfile.ZipFile(path) as packed:
        files = {n: packed.read(n) for n in packed.namelist() if n != "manifest.json"}
    assert b'"torch.sin"' in files["graph.json"]
    files["graph.json"] = files["graph.json"].replace(b'"torch.sin"', f'"{name}"'.encode())
    archive.write(path, "graph", {}, files)
    with pytest.raises(Refused):
        flambeau.load_export(path)


def test_attributes_of_tensors_are_read_out_of_a_file(tmp_path):
    def parts(x):
        return x.T + 1, x.mT * 2, (x + 1j).imag, x.H.data

    x, path = torch.randn(2, 3), tmp_path / "g.flambeau"
    loaded = flambeau.load_export(flambeau.export(parts, x).save(path))
    torch.testing.assert_close(loaded(x), parts(x), rtol=0, atol=0)
    with zipfile.ZipFile(path) as packed:
        files = {n: packed.read(n) for n in packed.namelist() if n != "manifest.json"}
    files["graph.json"] = files["graph.json"].replace(b'"mT"', b'"__class__"')
    from flambeau.packaging import archive

    archive.write(path, "graph", {}, files)
    with pytest.raises(Refused, match="__class__"):
        flambeau.load_export(path)


def test_a_size_among_the_results(tmp_path):
    exported = flambeau.export(
        lambda x: (x + 1, x.shape[0]), torch.ones(4), dynamic_shapes=({0: "rows"},)
    )
    loaded = flambeau.load_export(exported.save(tmp_path / "g.flambeau"))
    for each in (exported, loaded, exported.module(), flambeau.compile(loaded.module())):
        assert each(torch.ones(9))[1] == 9
    x = torch.ones(4)
    flambeau.mark_dynamic(x, 0)
    with pytest.raises(CannotPackage, match="symbolic size"):
        flambeau.package(lambda x: (x + 1, x.shape[0]), x, path=tmp_path / "p.flambeau")


def test_the_form_of_a_tensor_argument():
    exported = flambeau.export(lambda x: x + 1, torch.ones(2, 3))
    assert exported.examples == (TensorForm((2, 3), torch.float32, torch.device("cpu"), (0, 1)),)


def folded(x, w):
    return (x.reshape(x.shape[0] // 2, -1) @ w).tanh() * x.shape[0]


def test_open_sizes_are_kept_with_their_conditions(tmp_path):
    x, w = torch.randn(8, 6), torch.randn(12, 5)
    flambeau.mark_dynamic(x, 0, min=4, max=64)
    exported = flambeau.export(folded, x, w)
    loaded = flambeau.load_export(exported.save(tmp_path / "folded.graph"))
    again = flambeau.load_export(loaded.save(tmp_path / "again.graph"))
    assert "s0 <= 64" in str(exported) and "shape [s0, 6]" in str(exported)
    for call in (exported, loaded, again):
        assert call.signature() == exported.signature()
        for rows in (4, 30, 64):
            x = torch.randn(rows, 6)
            torch.testing.assert_close(call(x, w), folded(x, w))
        for rows, said in ((66, "s0 <= 64"), (2, "s0 >= 4")):
            with pytest.raises(ValueError, match=said):
                call(torch.randn(rows, 6), w)
        with pytest.raises(ValueError, match="exported for"):
            call(torch.randn(8, 7), w)


def test_a_branch_on_a_size_is_a_condition(tmp_path):
    def fn(x):
        return x.relu() if x.shape[0] > 10 else x.tanh()

    x = torch.randn(5, 2)
    flambeau.mark_dynamic(x, 0)
    loaded = flambeau.load_export(flambeau.export(fn, x).save(tmp_path / "fn.graph"))
    y = torch.randn(9, 2)
    torch.testing.assert_close(loaded(y), y.tanh())
    with pytest.raises(ValueError, match="s0"):
        loaded(torch.randn(11, 2))


def total(x, y):
    return x + y


def test_sizes_of_two_arguments_that_have_to_be_equal(tmp_path):
    x, y = torch.randn(5, 2), torch.randn(5, 2)
    flambeau.mark_dynamic(x, 0)
    flambeau.mark_dynamic(y, 0)
    loaded = flambeau.load_export(flambeau.export(total, x, y).save(tmp_path / "add.graph"))
    torch.testing.assert_close(loaded(x, y), x + y)
    x, y = torch.randn(7, 2), torch.randn(7, 2)
    torch.testing.assert_close(loaded(x, y), x + y)
    with pytest.raises(ValueError, match="dimension 0"):
        loaded(torch.randn(7, 2), torch.randn(9, 2))


def test_one_tensor_twice(tmp_path):
    x = torch.randn(5, 2)
    flambeau.mark_dynamic(x, 0)
    loaded = flambeau.load_export(flambeau.export(total, x, x).save(tmp_path / "twice.graph"))
    y = torch.randn(8, 2)
    torch.testing.assert_close(loaded(y, y), 2 * y)


@pytest.mark.parametrize("harm", ["truncated", "changed", "another kind"])
def test_a_file_that_was_changed_is_refused(inputs, tmp_path, harm):
    path = tmp_path / "fn.graph"
    flambeau.export(lambda x: x.sin(), torch.randn(3)).save(path)
    if harm == "truncated":
        path.write_bytes(path.read_bytes()[:-60])
    elif harm == "changed":
        content = path.read_bytes()
        path.write_bytes(content.replace(b"sin", b"cos"))
    else:
        flambeau.package(lambda x: x.sin(), torch.randn(3), path=path)
    with pytest.raises(flambeau.Refused):
        flambeau.load_export(path)


def test_declared_sizes_keep_their_names_in_the_file(tmp_path):
    def fn(x, y):
        return (x @ torch.ones(6, 2)).sum(1) * y

    shapes = {"x": {0: flambeau.Dim("rows", 3, 64), 1: torch.export.Dim.AUTO}, "y": ("rows",)}
    exported = flambeau.export(fn, torch.randn(4, 6), torch.randn(4), dynamic_shapes=shapes)
    loaded = flambeau.load_export(exported.save(tmp_path / "g.flambeau"))
    for each in (exported, loaded):
        assert each.signature() == [
            "argument 0 (x): torch.float32 of shape [rows, 6] on cpu",
            "argument 1 (y): torch.float32 of shape [rows] on cpu",
            "rows <= 64",
            "rows >= 3",
        ]
        x, y = torch.randn(9, 6), torch.randn(9)
        torch.testing.assert_close(each(x, y), fn(x, y))
        with pytest.raises(ValueError, match="rows = 2 "):
            each(torch.randn(2, 6), torch.randn(2))
        with pytest.raises(ValueError, match=r"1 \(y\): dimension 0 is 8, made for rows; rows = 9"):
            each(x, torch.randn(8))


@pytest.mark.parametrize("call", ["export", "module", "compiled module", "loaded module"])
def test_an_argument_that_does_not_fit_is_named(call, tmp_path):
    def fn(x, y, factor, *, z):
        return x.reshape(x.shape[0] // 2, -1).sum(1) * factor, y["a"] + z

    x, y, z = torch.randn(4, 6), {"a": torch.randn(3)}, torch.randn(3)
    open_ = {"x": {0: flambeau.Dim("rows", max=64)}, "y": {"a": {0: "n"}}, "z": {0: "n"}}
    shapes = {**open_, "factor": None}
    exported = flambeau.export(fn, x, y, 3, z=z, dynamic_shapes=shapes)
    if call == "loaded module":
        exported = flambeau.load_export(exported.save(tmp_path / "fn.graph"))
    made = exported if call == "export" else exported.module()
    made = flambeau.compile(made, backend="eager") if call == "compiled module" else made
    more = {"x": torch.randn(6, 6), "y": {"a": z}, "factor": 3, "z": z}
    refused = [
        ({"x": torch.randn(6, 7)}, r"0 \(x\): dimension 1 is 7, exported for 6"),
        ({"x": torch.randn(6)}, r"0 \(x\): 1 dimensions, exported for 2"),
        ({"x": torch.randn(6, 6).double()}, r"0 \(x\): torch.float64, exported for torch.float32"),
        ({"x": torch.randn(6, 6).t()}, r"0 \(x\): strides \(1, 6\), exported for elements"),
        (
            {"x": torch.randn(5, 6)},
            r"rows = 5 \(dimension 0 of .* 0 \(x\)\): made for sizes with .*rows",
        ),
        ({"x": torch.randn(66, 6)}, r"rows = 66 \(dimension 0 .* \(x\)\): .* with rows <= 64"),
        ({"z": torch.randn(5)}, r"3 \(z\): dimension 0 is 5, made for n; n = 3 \(.*1 \(y_a\)"),
        ({"factor": 4}, r"2 \(factor\): 4, exported for 3"),
        (
            {"z": 2.0},
            r"3 \(z\): of type float, exported for a tensor, torch.float32 of shape \[n\]",
        ),
    ]

    def of(given):
        return made(given["x"], given["y"], given["factor"], z=given["z"])

    torch.testing.assert_close(of(more), fn(**more))
    for change, told in refused:
        with pytest.raises((TypeError, ValueError), match=told):
            of({**more, **change})
    torch.testing.assert_close(of(more), fn(**more))


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x, factor=2.0, *, mask=None):
        out = self.inner(x) * factor + self.shift
        return {"out": out if mask is None else out * mask}


def test_an_export_is_a_module_for_whatever_takes_modules(tmp_path):
    model, x, mask = Scaled().eval(), torch.randn(3, 4), torch.rand(4)
    size = torch.export.Dim("size")
    exported = flambeau.export(model, x, mask=mask, dynamic_shapes={"x": {0: size}})
    exported.save(tmp_path / "scaled.graph")
    for found in (exported, flambeau.load_export(tmp_path / "scaled.graph")):
        module = found.module()
        assert str(inspect.signature(module.forward)) == "(x, *, mask)"
        again = copy.deepcopy(module)
        assert torch.equal(again(x=x, mask=mask)["out"], model(x, mask=mask)["out"])
        assert len(list(module.parameters())) == 2 and len(list(module.buffers())) == 1
        with pytest.raises(TypeError, match="mask"):
            module(x)
        shapes = {"x": {0: size}, "mask": None}
        program = torch.export.export(module, (x,), {"mask": mask}, dynamic_shapes=shapes)
        program = program.run_decompositions()
        assert program.graph_signature.user_inputs == ("x", "mask")
        more = torch.randn(7, 4)
        wanted = model(more, mask=mask)["out"]
        torch.testing.assert_close(program.module()(more, mask=mask)["out"], wanted)


class Named(torch.nn.Module):
    """Tied and shared, unused and unsaved, constants, and a parametrization."""

    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.ones(4), persistent=False)
        self.head = torch.nn.Linear(4, 6, bias=False)
        self.table = torch.nn.Embedding(6, 4)
        self.head.weight = self.table.weight
        self.rows = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)])
        self.rows.append(self.rows[0])
        self.unused = torch.nn.Linear(2, 2)
        self.own = torch.nn.Parameter(torch.ones(()))
        self.normed = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 4))
        self.constant = torch.full((4,), 0.5)
        self.kept = [torch.full((4,), 0.25)]

    def forward(self, places, weights=None, *more):
        x = self.table(places) * self.own + self.shift + self.constant + self.kept[0]
        for row in self.rows:
            x = row(x)
        out = self.head(torch.utils.checkpoint.checkpoint(self.normed, x, use_reentrant=False))
        return out if weights is None else sum(more, out * weights["a.b"])


def test_an_export_has_the_names_of_its_module(tmp_path):
    model = Named().eval()
    places, weights, last = torch.tensor([1, 0, 5]), torch.rand(6), torch.rand(6)
    call = (places, {"a.b": weights}, last)
    exported = flambeau.export(model, *call)
    assert [line.partition(":")[0] for line in exported.signature()] == [
        "argument 0 (places)", "argument 1 (weights_a_b)", "argument 2 (more_0)",
    ]  # fmt: skip
    inputs = exported.graph_module.graph.find_nodes(op="placeholder")
    assert [node.name for node in inputs] == ["places", "weights_a_b", "more_0"]
    loaded = flambeau.load_export(exported.save(tmp_path / "named.graph"))
    modules = [exported.module(), exported.graph_module, loaded.module(), loaded.graph_module]
    modules.append(copy.deepcopy(exported.module()))
    for module in modules:
        assert list(module.state_dict()) == list(model.state_dict())
        assert dict(module.named_parameters()).keys() == dict(model.named_parameters()).keys()
        assert module.head.weight is module.table.weight
        module.load_state_dict(model.state_dict())
        buffers = dict(module.named_buffers()).keys() - dict(model.named_buffers()).keys()
        assert "constant" in buffers and len(buffers) == 2
    program = torch.export.export(exported.module(), call)
    assert program.state_dict.keys() == model.state_dict().keys()
    for module in (*modules[::2], program.module()):
        for changed in (model, module):
            with torch.no_grad():
                changed.get_parameter("own").fill_(3.0)
            changed.zero_grad()
            changed(*call).sum().backward()
        expected = {name: p.grad for name, p in model.named_parameters()}
        found = {name: p.grad for name, p in module.named_parameters()}
        torch.testing.assert_close(found, expected)


def test_an_export_of_a_method_has_the_names_of_its_module():
    model = Named().eval()
    exported = flambeau.export(model.rows[0].forward, torch.ones(2, 4))
    assert list(exported.module().state_dict()) == ["weight", "bias"]


def test_a_program_of_torch_is_taken_where_modules_are(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2)).eval()
    x, more = torch.randn(3, 4), torch.randn(7, 4)
    program = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    decomposed = program.run_decompositions()
    for each in (program, decomposed):
        torch.testing.assert_close(flambeau.compile(each, fullgraph=True)(more), net(more))
        torch.testing.assert_close(flambeau.export(each, x)(x), net(x))
        with torch.no_grad():
            path = flambeau.package(each, x, path=tmp_path / "program.flambeau")
        torch.testing.assert_close(flambeau.load(path)(x), net(x))
        assert len(flambeau.plan(each, x).graphs) == 1


def test_an_export_is_copied_with_its_tensors_and_not_pickled():
    model, x = Scaled().eval(), torch.randn(3, 4)
    exported = flambeau.export(model, x, dynamic_shapes=({0: "rows"},))
    own, alias = copy.deepcopy(exported), copy.copy(exported)
    with torch.no_grad():
        model.inner.weight.zero_()
    for each in (exported, alias):
        torch.testing.assert_close(each(x)["out"], model(x)["out"])
    assert not torch.equal(own(x)["out"], model(x)["out"])
    assert own.signature() == alias.signature() == exported.signature()
    module = exported.module()
    for each in (module, copy.deepcopy(module), copy.copy(module)):
        torch.testing.assert_close(each(x)["out"], model(x)["out"])
    assert copy.deepcopy(module).get_parameter("inner.weight") is not model.inner.weight
    for each in (exported, module):
        with pytest.raises(TypeError, match=r"save\(path\)"):
            pickle.dumps(each)


@pytest.mark.parametrize("given", [((X := torch.ones(3),),), ([X],), ((X,), {})])
def test_a_tuple_of_all_arguments_is_told_how_they_are_given(given, tmp_path):
    for called in (flambeau.export, functools.partial(flambeau.package, path=tmp_path / "made")):
        with pytest.raises(TypeError) as told:
            called(torch.nn.Linear(3, 2), *given)
        assert any("given as they are" in note for note in told.value.__notes__)


@pytest.mark.parametrize("table", [3, {torch.ops.aten.relu.default: 3}])
def test_a_table_of_decompositions_has_functions(table):
    with pytest.raises(TypeError, match="decomp_table has"):
        flambeau.export(lambda x: x.relu(), torch.ones(2)).run_decompositions(table)


def test_an_export_becomes_an_onnx_file(tmp_path):
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime", reason="no onnxruntime to run the file")
    net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.GELU(), torch.nn.Linear(6, 2)).eval()
    x, more = torch.randn(3, 4), torch.randn(7, 4)
    rows = flambeau.Dim("rows", 2, 64)
    module = flambeau.export(net, x, dynamic_shapes=({0: rows},)).module()
    made = torch.onnx.export(
        module, (x,), dynamic_shapes=({0: "rows"},), dynamo=True, verbose=False
    )
    made.save(tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (given,) = session.get_inputs()
    assert given.shape == ["rows", 4]
    for each in (x, more):
        (found,) = session.run(None, {given.name: each.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), net(each))
