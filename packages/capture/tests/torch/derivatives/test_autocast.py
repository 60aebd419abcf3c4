"""Autocast objects that outlive a call, decorators made of them, and the older spellings."""

import warnings

import pytest
import torch
from torch import nn

layer = nn.Linear(3, 3)


@torch.autocast("cpu", dtype=torch.bfloat16)
def decorated(x):
    return layer(x)


@pytest.fixture
def given():
    return torch.randn(2, 3)


def test_a_decorator(capture, backend, same, given):
    def fn(x):
        return decorated(x), layer(x).dtype, decorated(x * 2)

    same(capture(fn)(given), fn(given))
    assert len(backend) == 1


def test_an_object_made_once(capture, backend, same, given):
    context = torch.autocast("cpu", dtype=torch.float16)

    def fn(x):
        with context:
            first = layer(x)
        with context:
            return first, layer(x), torch.is_autocast_enabled("cpu")

    compiled = capture(fn)
    for _ in range(2):
        same(compiled(given), fn(given))
    assert len(backend) == 1 and not torch.is_autocast_enabled("cpu")


def test_its_settings_are_guarded(capture, backend, same, given):
    class Trainer:
        context = None

        def __call__(self, x):
            with self.context:
                return layer(x)

    trainer = Trainer()
    compiled = capture(trainer)
    for dtype, enabled in ((torch.bfloat16, True), (torch.float16, True), (torch.float16, False)):
        trainer.context = torch.autocast("cpu", dtype=dtype, enabled=enabled)
        same(compiled(given), trainer(given))
    assert len(backend) == 3
    trainer.context = torch.autocast("cpu", dtype=torch.bfloat16)
    same(compiled(given), trainer(given))
    assert len(backend) == 3
    trainer.context._enabled = False
    same(compiled(given), trainer(given))


def test_a_break_inside(capture, backend, same, given):
    context = torch.autocast("cpu", dtype=torch.bfloat16)

    def fn(x):
        with context:
            first = layer(x)
            if first.sum() > 0:
                first = first + 1
            second = layer(x)
        return first, second, layer(x).dtype, torch.is_autocast_enabled("cpu")

    compiled = capture(fn)
    for sign in (1, -1, 1):
        same(compiled(sign * given), fn(sign * given))
    assert 2 <= len(backend) <= 4 and not torch.is_autocast_enabled("cpu")


def test_entered_twice_at_once_is_left_to_torch(capture, same, given):
    context = torch.autocast("cpu", dtype=torch.bfloat16)

    def fn(x):
        with context, context:
            return layer(x)

    for run in (capture(fn), fn):
        assert run(given).dtype is torch.bfloat16
        torch.set_autocast_enabled("cpu", False)  # torch's own object forgets what was before


@pytest.mark.parametrize("spelling", [torch.cpu.amp.autocast, torch.cuda.amp.autocast])
def test_older_spellings_and_their_warning(capture, backend, same, given, spelling):
    def fn(x):
        with spelling(enabled=spelling is torch.cpu.amp.autocast):
            return layer(x)

    compiled = capture(fn)
    for _ in range(2):
        with warnings.catch_warnings(record=True) as ours:
            warnings.simplefilter("always")
            found = compiled(given)
        with warnings.catch_warnings(record=True) as theirs:
            warnings.simplefilter("always")
            same(found, fn(given))
        told = [(str(w.message), w.category, w.filename, w.lineno) for w in ours]
        assert [one for one in told if "deprecated" in one[0]] == [
            (str(w.message), w.category, w.filename, w.lineno)
            for w in theirs
            if "deprecated" in str(w.message)
        ]
    assert len(backend) == 1
