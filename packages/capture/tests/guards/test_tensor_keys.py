"""Dicts whose keys are tensors, as an optimizer's state: each is known by itself."""

import pytest

torch = pytest.importorskip("torch")

import flambeau_capture as fc  # noqa: E402
from flambeau_capture.source import KnownKey, Local  # noqa: E402


def counted(graphs):
    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    return backend


def total(table, x):
    for key, value in table.items():
        x = x + key * value
    return x


def tables(count):
    return {torch.full((1,), 1.0): k + 1 for k in range(count)}


def test_other_tensors_of_the_same_values_are_read():
    graphs = []
    compiled = fc.compile(total, backend=counted(graphs))
    x = torch.zeros(1)
    first = tables(3)
    for table in (first, first, tables(3), dict(reversed(first.items()))):
        torch.testing.assert_close(compiled(table, x), total(table, x))
    other = {torch.full((1,), 2.0): value for value in first.values()}
    torch.testing.assert_close(compiled(other, x), total(other, x))


@pytest.mark.parametrize(
    "change",
    [
        lambda key: key.data.resize_(2).fill_(3),
        lambda key: key.requires_grad_(),
        lambda key: setattr(key, "data", torch.ones(1, dtype=torch.float64)),
        lambda key: key.data.add_(1),
    ],
)
def test_a_key_that_changed_is_noticed(change):
    compiled = fc.compile(total, backend=counted([]))
    x, table = torch.zeros(1), tables(3)
    compiled(table, x)
    change(list(table)[1])
    got, want = compiled(table, x), total(table, x)
    torch.testing.assert_close(got, want)
    assert got.requires_grad == want.requires_grad


def test_what_is_taken_out_and_put_in_again_is_found():
    compiled = fc.compile(total, backend=counted([]))
    x, table = torch.zeros(1), tables(3)
    compiled(table, x)
    key = list(table)[0]
    value = table.pop(key)
    torch.testing.assert_close(compiled(table, x), total(table, x))
    table[key] = value  # the last now
    torch.testing.assert_close(compiled(table, x), total(table, x))


def test_a_source_is_that_of_one_tensor():
    one, other = torch.ones(1), torch.ones(1)
    source = KnownKey(Local("x"), one, 0)
    assert source == KnownKey(Local("x"), one, 0) != KnownKey(Local("x"), other, 0)
    assert hash(source) == hash(KnownKey(Local("x"), one, 0))
    assert source.name() == "list(L['x'])[0]" and source.read(None, {one: 1}) is one
    for wrong in ({other: 1}, [one], {}):
        with pytest.raises(LookupError):
            source.read(None, wrong)
