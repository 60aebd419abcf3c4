"""`Options.watch` is told of everything that the records hold, as it comes about."""

import torch
from flambeau_capture import compile


def test_every_kind_is_told_in_order():
    told = []

    def toy(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    compiled = compile(toy, watch=lambda kind, record: told.append((kind, record)))
    compiled(torch.ones(3), torch.ones(3))
    kinds = [kind for kind, _ in told]
    assert kinds == ["graph", "break", "entry", "frame", "graph", "entry", "frame"]
    first, second = (record for kind, record in told if kind == "entry")
    assert first.function == second.function == "toy"
    assert first.graphs == (told[0][1].name,)
    assert first.original is toy.__code__ and first.code is not toy.__code__
    assert str(first.guards)


def test_a_recompile_is_told_with_both_values():
    told = []
    compiled = compile(
        lambda x, word: x * len(word), watch=lambda kind, record: told.append((kind, record))
    )
    compiled(torch.ones(3), "a")
    compiled(torch.ones(3), "bb")
    failures = [record.failures[0] for kind, record in told if kind == "recompile"]
    assert [(f.expected, f.got) for f in failures] == [("'a'", "'bb'")]
