"""Sequences: packed and padded batches, durations, alignments, signals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from integration_tests.by_data import Cases, chosen

case = CASES = Cases()

torch.manual_seed(0)
RECURRENT = {
    "lstm": nn.LSTM(4, 3, batch_first=True),
    "gru": nn.GRU(4, 3, batch_first=True, bidirectional=True),
    "rnn": nn.RNN(4, 3, num_layers=2),
}
CONVOLUTION = nn.Conv1d(4, 4, 3, padding=1)


def with_lengths(count: int) -> Sequence[Tensor]:
    return torch.randn(3, 8, 4), torch.tensor([max(count, 1), 3, 8 - count // 2])


def in_order(count: int) -> Sequence[Tensor]:
    return torch.randn(3, 8, 4), torch.tensor([8, max(count, 2), 2])


@case(with_lengths)
def packed_lstm(x: Tensor, lengths: Tensor) -> Any:
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    out, (h, c) = RECURRENT["lstm"](packed)
    out, lengths = pad_packed_sequence(out, batch_first=True)
    return out, h, c, lengths


@case(with_lengths)
def packed_gru_of_both_directions(x: Tensor, lengths: Tensor) -> Any:
    packed = pack_padded_sequence(x, lengths.tolist(), batch_first=True, enforce_sorted=False)
    out, h = RECURRENT["gru"](packed)
    return pad_packed_sequence(out, batch_first=True, total_length=8)[0], h


@case(in_order)
def packed_rnn_in_order(x: Tensor, lengths: Tensor) -> Any:
    packed = pack_padded_sequence(x.transpose(0, 1), lengths)
    out, h = RECURRENT["rnn"](packed)
    out, _ = pad_packed_sequence(out)
    return out[-1], h


@case(with_lengths)
def last_state_of_each(x: Tensor, lengths: Tensor) -> Tensor:
    out, _ = RECURRENT["lstm"](x)
    return out[torch.arange(3), lengths - 1]


@case(with_lengths)
def unpadded_and_padded(x: Tensor, lengths: Tensor) -> Tensor:
    parts = [row[:length] for row, length in zip(x, lengths, strict=True)]
    return pad_sequence(parts, batch_first=True) * 2


@case(with_lengths)
def tokens_joined_without_padding(x: Tensor, lengths: Tensor) -> Tensor:
    there = torch.arange(8)[None] < lengths[:, None]
    flat = x[there]
    made = flat @ flat.new_ones(4, 4)
    out = torch.zeros_like(x)
    out[there] = made
    return out


@case(with_lengths)
def convolved_where_there(x: Tensor, lengths: Tensor) -> Tensor:
    longest = int(lengths.max())
    mask = torch.arange(longest)[None] < lengths[:, None]
    x = x[:, :longest].masked_fill(~mask[..., None], 0)
    return CONVOLUTION(x.transpose(1, 2)) * mask[:, None]


@case(with_lengths, backends=["aot_eager"])  # the inductor does not place the rows' maxima yet
def attended_where_there(x: Tensor, lengths: Tensor) -> Tensor:
    longest = lengths.max().item()
    x = x[:, :longest]
    mask = (torch.arange(longest) < lengths[:, None])[:, None]
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


@case(with_lengths)
def sequences_of_varied_length_attend(x: Tensor, lengths: Tensor) -> Tensor:
    """One attention over all tokens, each within its own sequence."""
    there = torch.arange(8)[None] < lengths[:, None]
    flat = x[there]
    owner = torch.repeat_interleave(torch.arange(3), lengths)
    scores = (flat @ flat.T).masked_fill(owner[:, None] != owner[None], float("-inf"))
    return scores.softmax(-1) @ flat


@case(lambda count: (torch.randn(3, 6), torch.randint(0, count + 1, (6,))))
def expanded_by_durations(x: Tensor, durations: Tensor) -> Tensor:
    ends = durations.cumsum(0)
    frames = torch.arange(int(ends[-1]))
    path = (frames[:, None] < ends) & (frames[:, None] >= ends - durations)
    return x @ path.float().T


@case(lambda count: (torch.randn(20), torch.tensor(count)))
def signal_in_frames(x: Tensor, extra: Tensor) -> Tensor:
    x = F.pad(x, (0, extra.item()))
    return x.unfold(0, 4, 2).pow(2).sum(1)


@case(lambda count: (torch.randn(64), torch.tensor(count)))
def through_the_spectrum(x: Tensor, extra: Tensor) -> Tensor:
    window = torch.hann_window(16)
    n = extra.item()
    spectrum = torch.stft(F.pad(x, (0, 8 * n)), 16, 8, window=window, return_complex=True)
    return torch.istft(spectrum * 0.5, 16, 8, window=window, length=64)


@case(lambda count: (torch.randn(64), chosen(count)))
def voiced_frames(x: Tensor, voiced: Tensor) -> Tensor:
    frames = torch.cat([x.view(8, 8)[voiced], x.view(8, 8)[:1]])
    return torch.fft.rfft(frames).abs().pow(2).sum(1)


@case(lambda count: (torch.randn(3, 8), chosen(count)))
def tokens_replaced_by_spans(x: Tensor, begins: Tensor) -> Tensor:
    x, places = x.clone(), begins.nonzero().squeeze(1)
    x[:, torch.cat([places, (places + 1).clamp(max=7)])] = 0
    return x.cumsum(1)


@case(lambda count: (torch.randn(8, 4), torch.randint(0, 2, (8,)).bool()))
def merged_by_boundaries(x: Tensor, boundary: Tensor) -> Tensor:
    segment = boundary.cumsum(0)
    n = int(segment[-1]) + 1
    total = torch.zeros(n, 4).index_add(0, segment, x)
    return total / torch.bincount(segment, minlength=n).clamp(min=1)[:, None]
