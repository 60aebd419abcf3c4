"""Tensors that the frame itself makes longer: caches, whose lengths are open from the first on."""

import types

import pytest
import torch


class Layer:
    keys = None

    def put(self, new, dim):
        self.keys = new if self.keys is None else torch.cat([self.keys, new], dim)
        return self.keys


class Buffered(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.keys = None

    put = Layer.put


class Items(dict):
    def put(self, new, dim):
        self["keys"] = torch.cat([self["keys"], new], dim) if "keys" in self else new
        return self["keys"]


def in_a_list():
    return types.SimpleNamespace(layers=[Layer()])


def decode(cache, x, dim):
    return torch.softmax(cache.put(x * 2, dim), dim).sum(1) + cache.put(x, dim).mean()


def lists(cache, x, dim):
    layer = cache.layers[0]
    return layer.put(x, dim).sin().sum(dim)


def served(fn, plain, make, prompts, dim, steps=4):
    """Each prompt into a cache of its own, then a slice at a time."""
    for prompt in prompts:
        ours, theirs = make(), make()
        for length in (prompt, *[1] * steps):
            x = torch.randn(*(length if place == dim else 3 for place in range(3)))
            got, wanted = fn(ours, x, dim), plain(theirs, x, dim)
            torch.testing.assert_close(got, wanted)
            assert got.stride() == wanted.stride()


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize(("plain", "make"), [(decode, Layer), (decode, Items), (lists, in_a_list)])
def test_a_cache_is_one_graph_whatever_length_it_has(capture, backend, plain, make, dim):
    fn = capture(plain)
    served(fn, plain, make, [5, 4, 1, 9, 1], dim)
    # two of a prompt, one of a prompt of one, and one of all that is added to a cache
    assert len(backend) == 4


def test_a_module_keeps_one(capture, backend):
    fn = capture(decode)
    served(fn, decode, Buffered, [5, 1, 4], 1)
    assert len(backend) <= 5  # a module's attribute that is a tensor is another kind of place


def test_what_the_program_decides_at_one_is_a_graph_of_its_own(capture, backend):
    def step(cache, x, dim):
        known = cache.keys
        scale = 2 if known is not None and known.shape[dim] == 1 else 3
        return cache.put(x, dim) * scale

    fn = capture(step)
    served(fn, step, Layer, [5, 1, 4, 1], 0)
    assert len(backend) == 5


def test_what_an_operator_decides_at_one_is_a_graph_of_its_own(capture, backend):
    def step(cache, x, dim):
        known = cache.keys
        wide = x if known is None else known + torch.ones(known.shape[0], 1, 1)
        return cache.put(x, dim), wide.transpose(0, 1).reshape(-1)

    fn = capture(step)
    for length in (5, 4, 1, 3):
        ours, theirs = Layer(), Layer()
        for rows in (length, 1, 1):
            x = torch.randn(rows, 2, 3)
            got, wanted = fn(ours, x, 0), step(theirs, x, 0)
            assert [r.stride() for r in got] == [r.stride() for r in wanted]
            torch.testing.assert_close(got, wanted)


def test_a_tensor_that_keeps_its_sizes_is_no_cache(capture, backend):
    def step(cache, x):
        cache.keys = cache.keys + x
        return cache.keys * 2

    fn, cache = capture(step), Layer()
    cache.keys = torch.zeros(3)
    for _ in range(3):
        fn(cache, torch.ones(3))
    assert len(backend) == 1
    given = [n.meta["val"] for n in backend.graphs[0].graph.nodes if n.op == "placeholder"]
    assert [tuple(value.shape) for value in given] == [(3,), (3,)]


def counted(cache, x):
    begin = cache.seen
    cache.seen += x.shape[1]
    cache.keys[:, begin : cache.seen] = x
    return (cache.keys + x.sum(1, keepdim=True)).sin() * cache.scale


def filled():
    return types.SimpleNamespace(keys=torch.zeros(1, 16, 3), seen=0, scale=torch.ones(5, 1, 1))


def test_what_a_cache_is_given_is_open_as_its_length_is(capture, backend):
    fn = capture(counted)
    for prompt in (5, 4, 9, 2, 5):
        ours, theirs = filled(), filled()
        for length in (prompt, 1, 1, 3):
            x = torch.randn(1, length, 3)
            torch.testing.assert_close(fn(ours, x), counted(theirs, x))
            assert (ours.seen, ours.keys.tolist()) == (theirs.seen, theirs.keys.tolist())
    assert len(backend) <= 2  # of several, and of one
    given = [n.meta["val"] for n in backend.graphs[0].graph.nodes if n.op == "placeholder"]
    tensors = [tuple(value.shape) for value in given if isinstance(value, torch.Tensor)]
    assert (1, 16, 3) in tensors and (5, 1, 1) in tensors  # which nothing has made longer
    assert len([shape for shape in tensors if type(shape[1]) is not int]) == 1


def test_a_step_is_no_length(capture, backend):
    def step(state, x):
        state.steps += 1
        return x * state.steps

    fn, state = capture(step), types.SimpleNamespace(steps=3)
    for steps in (4, 5, 6):
        torch.testing.assert_close(fn(state, torch.ones(4, 1)), torch.full((4, 1), float(steps)))
    assert len(backend) == 1
    given = [n.meta["val"] for n in backend.graphs[0].graph.nodes if n.op == "placeholder"]
    assert (4, 1) in [tuple(v.shape) for v in given if isinstance(v, torch.Tensor)]


def test_static_sizes_stay_so(capture, backend):
    fn = capture(decode, dynamic=False)
    served(fn, decode, Layer, [2], 0, steps=2)
    assert len(backend) == 3
