"""An exported program in ATen operators does what the program does, and says what it writes."""

import copy

import flambeau_prims
import pytest
import torch

import flambeau


class Net(torch.nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
        self.unused = torch.nn.Parameter(torch.ones(2))
        self.own = torch.nn.Parameter(torch.ones(()))
        self.register_buffer("calls", torch.zeros(()))
        self.plain = torch.ones(4)
        self.program = forward

    def forward(self, x):
        return self.program(self, x)


def counting(net, x):
    net.calls.add_(1)
    return net.norm(torch.nn.functional.gelu(net.linear(x))) + net.plain + net.calls


def writing(net, x):
    x[: x.shape[0] // 2].mul_(2)
    return x.sum(), x


def viewing(net, x):
    half = x.reshape(-1, 2, x.shape[1])
    return {"x": half.transpose(0, 1), "own": (x + 1).view(-1), "weight": net.linear.weight.t()[1]}


def cutting(net, x):
    first, second = x[: x.shape[0] // 2].split([1, 3], 1)
    return second, first.sin(), 3, None


def branching(net, x):
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


def looping(net, x):
    return torch.while_loop(lambda n, y: n < 3, lambda n, y: (n + 1, y * 2), (torch.tensor(0), x))


def without_gradient(net, x):
    with torch.no_grad():
        net.linear.bias.mul_(0.5)
        mean = x.mean(0)
    return net.linear(x) - mean


def drawing(net, x):
    return torch.nn.functional.dropout(net.linear(x), 0.5), torch.rand_like(x)


def constant(net, x):
    return x + torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.arange(x.shape[0])[:, None]


def normalising(net, x):
    y = torch.nn.functional.layer_norm(x, (4,), net.linear.bias)
    return torch.nn.functional.scaled_dot_product_attention(y[None], y[None], y[None]), y.std()


def penalising(net, x):
    y = net.linear(x.detach().requires_grad_()).tanh() * net.own
    (derivative,) = torch.autograd.grad(y.sum(), net.own, create_graph=True)
    return torch.autograd.grad(y.sum() + derivative**2, net.linear.weight)[0], derivative


def differentiating(net, x):
    def one(row):
        return net.linear(row).sin().sum()

    return torch.func.vmap(torch.func.grad(one))(x)


PROGRAMS = [
    branching, constant, counting, cutting, differentiating, drawing, looping, normalising,
    penalising, viewing, without_gradient, writing,
]  # fmt: skip
WRITTEN = {counting: ("calls", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked")}
TABLES = {
    "aten": lambda: None,
    "primitives": flambeau_prims.decompositions,
    "of torch": lambda: torch.export.default_decompositions(),
}


def run(call, x):
    torch.manual_seed(3)
    x = x.clone()
    return call(x), x


def places_of_results(result, x, net):
    """Which results share the memory of the argument or of a weight, and how they look at it."""
    owners = {each.untyped_storage().data_ptr(): n for n, each in net.state_dict().items()}
    owners[x.untyped_storage().data_ptr()] = "x"
    return [
        (owners.get(each.untyped_storage().data_ptr()), each.stride(), each.storage_offset())
        for each in torch.utils._pytree.tree_leaves(result)
        if isinstance(each, torch.Tensor)
    ]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_decomposed_program_does_what_the_program_does(program, table, tmp_path):
    net = Net(program)
    x, more = torch.randn(4, 4), torch.randn(6, 4)
    exported = flambeau.export(net, x, dynamic_shapes=({0: flambeau.Dim("rows", 4, 64)},))
    found = exported.run_decompositions(TABLES[table]())
    calls = [(found, net), (found.module(), net)]
    if table == "aten":  # files have no primitives
        loaded = flambeau.load_export(found.save(tmp_path / "net.graph"))
        calls.append((loaded, copy.deepcopy(net)))
    for call, own in calls:
        wanted = copy.deepcopy(own)
        for each in (more, x):
            reference, result = run(wanted, each), run(call, each)
            torch.testing.assert_close(result, reference)
        if own is net:
            torch.testing.assert_close(net.state_dict(), wanted.state_dict())
            assert places_of_results(*result, net) == places_of_results(*reference, wanted)
    functions = [n.target for n in found.graph.nodes if n.op == "call_function"]
    writes = {str(f) for f in functions if getattr(f, "_schema", None) and f._schema.is_mutable}
    signature = found.graph_signature
    assert writes <= {"aten.copy_.default"}
    assert signature.buffers_to_mutate == WRITTEN.get(program, ())
    assert signature.user_inputs_to_mutate == (("x",) if program is writing else ())
    found.validate()


def test_a_loop_by_values_has_no_form_in_a_file(tmp_path):
    def doubling(x):
        return torch.while_loop(lambda y: y.sum() < 9, lambda y: (y * 2,), (x,))[0]

    x = torch.ones(3)
    found = flambeau.export(doubling, x).run_decompositions()
    for each in (x, x * 5):
        torch.testing.assert_close(found(each), doubling(each))
    with pytest.raises(flambeau.CannotPackage, match="which no version of ours"):
        found.save(tmp_path / "net.graph")


def test_modes_in_force_are_no_part_of_the_program():
    def half(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
        return y, x @ x

    x = torch.randn(3, 3)
    exported = flambeau.export(half, x)
    with torch.autocast("cpu", torch.bfloat16):
        found = exported.run_decompositions()
    torch.testing.assert_close(found(x), half(x))


def test_names_of_the_module_stay():
    net = Net(lambda net, x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]) + net._constant0 + net.plain)
    net._constant0, net._constant1 = torch.nn.Parameter(torch.ones(4)), torch.ones(4)
    net._constant2, net._constant3 = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    x = torch.randn(3, 4)
    found = flambeau.export(net, x).run_decompositions().run_decompositions()
    assert list(found.state_dict) == list(net.state_dict())
    torch.testing.assert_close(found(x), net(x).detach())


def test_a_module_of_it_is_exported_by_torch_and_copied():
    x = torch.randn(3, 4)
    made = flambeau.export(Net(counting), x).run_decompositions().module()
    own, expected = copy.deepcopy(made), copy.deepcopy(made)
    found = torch.export.export(made, (x,)).module()
    torch.testing.assert_close(found(x), expected(x))
    theirs, own.calls = torch.zeros(3, 4), x[0, 0]
    own(theirs)
    with pytest.raises(ValueError, match="calls is written to and shares memory with x"):
        own(x)


def test_a_recurrent_layer_is_decomposed_in_a_process_that_goes_on():
    net, x = torch.nn.LSTM(4, 5, batch_first=True), torch.randn(2, 3, 4)
    found = flambeau.export(net, x).run_decompositions(flambeau_prims.decompositions())
    torch.testing.assert_close(found(x), net(x))


def test_the_names_of_an_exported_program_are_those_of_its_module():
    net = Net(counting)
    exported = flambeau.export(net, torch.randn(3, 4))
    for each in (exported, exported.run_decompositions()):
        assert list(each.state_dict) == list(net.state_dict())
        assert [n for n, _ in each.named_parameters()] == [n for n, _ in net.named_parameters()]
        assert list(map(id, each.parameters())) == list(map(id, net.parameters()))
        names = [n for n, _ in net.named_buffers()]
        assert [n for n, _ in each.named_buffers() if n != "plain"] == names
        assert len(list(each.buffers())) == len(names) + 1
        assert each.call_spec == (each.in_spec, each.out_spec)
        signature = each.graph_signature
        assert signature.parameters == tuple(n for n, _ in net.named_parameters())
        assert "plain" in signature.non_persistent_buffers
        assert signature.user_inputs == ("x",) and len(signature.user_outputs) == 1


def test_a_decomposed_program_is_for_inference(tmp_path):
    found = flambeau.export(Net(constant), torch.randn(3, 4)).run_decompositions()
    x = torch.randn(3, 4, requires_grad=True)
    for each in (found, flambeau.load_export(found.save(tmp_path / "net.graph"))):
        with pytest.raises(ValueError, match="decomposed program is for inference"):
            each(x)
        with torch.no_grad():
            assert not each(x).requires_grad
    assert not found.run_decompositions()(x.detach()).requires_grad


def test_a_written_argument_that_shares_memory_is_refused():
    net, x = Net(lambda net, x: x.add_(1) + net.plain), torch.randn(3, 4)
    pair = flambeau.export(lambda x, y: (x.add_(1), y * 2), x, x[0].clone()).run_decompositions()
    with pytest.raises(ValueError, match="x is written to and shares memory"):
        pair(x, x[0])
    pair(x.clone(), x[0])
    parts = torch.randn(4, 4)
    pair(parts[:3], parts[3])  # parts of one batch
    found = flambeau.export(net, x).run_decompositions()
    net.plain.set_(x[0])
    with pytest.raises(ValueError, match="shares memory"):
        found(x)


def test_what_a_graph_without_writes_cannot_say_is_an_error():
    x = torch.randn(3, 4)
    exported = flambeau.export(lambda x, y: (x.add_(1), y * 2), x, x)
    with pytest.raises(flambeau.ExportError, match="arguments that share memory"):
        exported.run_decompositions()


def harm_an_input(graph):
    graph.erase_node(graph.find_nodes(op="placeholder")[1])


def harm_the_result(graph):
    graph.output_node().args = ((),)


@pytest.mark.parametrize("harm", [harm_an_input, harm_the_result])
def test_an_edited_graph_is_validated(harm):
    exported = flambeau.export(lambda x, y: x.sin(), torch.randn(3), torch.randn(3))
    exported.validate()
    harm(exported.graph)
    with pytest.raises(flambeau.ExportError, match="the call has"):
        exported.validate()
