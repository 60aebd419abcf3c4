"""Inputs in a recording's own memory: taken when it is made, given up as they are read."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
from flambeau_inductor._torch_compat import storage_handle, storage_users
from flambeau_inductor.runtime.gpu.cuda_graphs import WARM_UP, Recorded, Rules
from flambeau_inductor.runtime.gpu.stream_capture import OwnInputs

from tests.recorder import SPOILT, Recorder


def _bytes(address: int, size: int) -> torch.Tensor:
    memory = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(memory, dtype=torch.uint8)


def test_only_the_call_holds_them() -> None:
    users: list[int] = []
    alone = torch.ones(1)
    once = storage_users(storage_handle(alone))

    def call(args: list[Any]) -> tuple[Any, ...]:
        x, w = args
        args.clear()
        users.append(storage_users(storage_handle(x)))
        return x * 2 + w, w

    x, w = torch.randn(3, 4).t(), torch.ones(4, 3)
    own = OwnInputs(call, {0: x})
    args = [x, w]
    outputs = own(args)
    assert not args and users == [once]
    assert outputs[1] is w and outputs[0].shape == x.shape
    assert own.returned == frozenset()  # the other input is not one of them


def test_what_is_returned_of_them_is_known() -> None:
    own = OwnInputs(lambda args: (args[1][1:], args[0] + 1, args[1], 3), {1: torch.ones(5)})
    outputs = own([torch.ones(2), torch.ones(5)])
    assert own.returned == {0, 2}
    (buffer,) = own.buffers(_bytes)
    buffer.fill_(7.0)
    assert outputs[2].tolist() == [7.0] * 5 and outputs[0].tolist() == [7.0] * 4


@pytest.mark.parametrize("stride", [(3, 1), (1, 2), (4, 1)])
def test_buffers_have_the_layout_of_the_inputs(stride: tuple[int, int]) -> None:
    value = torch.empty_strided((2, 3), stride, dtype=torch.float64)[:, :]
    held: list[torch.Tensor] = []
    own = OwnInputs(lambda args: (held.append(args[0]),), {0: value})  # type: ignore[func-returns-value]
    own([value])
    (buffer,) = own.buffers(_bytes)
    assert buffer.stride() == stride and buffer.dtype == torch.float64
    assert buffer.data_ptr() == held[0].data_ptr() != value.data_ptr()


def test_a_replay_may_write_over_them_once_they_are_read() -> None:
    recorder = Recorder()
    recorded = Recorded(lambda args: (args[0].sin(), args[0] * args[1]), Rules((1,)), recorder)
    w = torch.randn(6)
    for _ in range(WARM_UP + 3):
        x = torch.randn(6)
        got = recorded([x, w])
        torch.testing.assert_close(got, (x.sin(), x * w))
        del got
    assert recorded.replays == 3 and recorded._recording is not None
    assert recorded._recording.made.buffers[0].tolist() == [SPOILT] * 6


def test_an_input_that_comes_back_is_handed_out_as_a_copy() -> None:
    recorded = Recorded(lambda args: (args[0], args[0] + 1), Rules(), Recorder())
    for _ in range(WARM_UP + 2):
        x = torch.randn(6)
        got = recorded([x])
        torch.testing.assert_close(got, (x, x + 1))
        del got
    assert recorded.replays == 2 and recorded._copied_out == {0}
