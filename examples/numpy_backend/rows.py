"""Rows: distances, bags, sequences aligned with labels; functions bear their primitives' names."""
# ruff: noqa: ANN001, ANN201, ANN202

import numpy as np
from flambeau_prims import PRIMS

from numpy_backend.arrays import wide


def cdist(a, b, p):
    size = np.abs(wide(a)[..., :, None, :] - wide(b)[..., None, :, :])
    if np.isinf(p):
        return size.max(-1, initial=0)
    return (size != 0).sum(-1) if p == 0 else (size**p).sum(-1) ** (1 / p)


def cdist_backward(grad, a, b, p, distance):
    difference = wide(a)[..., :, None, :] - wide(b)[..., None, :, :]
    d, size = wide(distance)[..., None], np.abs(difference)
    with np.errstate(all="ignore"):
        slope = size == d if np.isinf(p) else 0 * size if p == 0 else (size / d) ** (p - 1)
    slope = np.where((size == 0) | (d == 0), 0, np.sign(difference) * slope)
    return (wide(grad)[..., None] * slope).sum(-2)


def pdist(a, p):
    return cdist(a, a, p)[np.triu_indices(len(a), 1)]


def pdist_backward(grad, a, p, distance):
    full = np.zeros((2, len(a), len(a)))
    full[(slice(None), *np.triu_indices(len(a), 1))] = grad, distance
    whole, far = full + np.swapaxes(full, 1, 2)
    return cdist_backward(whole, a, a, p, far)


def embedding_bag(weight, indices, offsets, by_freq, mode, scales, last, padding):
    offsets, rows = offsets[:-1] if last else offsets, wide(weight)[indices]
    bag_of = np.searchsorted(offsets, np.arange(len(indices)), "right") - 1
    keep, bags = indices != padding, len(offsets)
    sizes, out = np.bincount(bag_of[keep], minlength=bags), np.zeros((bags, weight.shape[1]))
    if mode == 2:
        largest = np.zeros(out.shape, int)
        for b in np.flatnonzero(sizes):
            mine = np.flatnonzero(keep & (bag_of == b))
            best = rows[mine].argmax(0)
            out[b], largest[b] = rows[mine][best, np.arange(rows.shape[1])], indices[mine][best]
        return out, bag_of, sizes, largest
    np.add.at(out, bag_of[keep], (rows if scales is None else rows * scales[:, None])[keep])
    out = out / np.maximum(sizes, 1)[:, None] if mode == 1 else out
    return out, bag_of, sizes, np.zeros(bags, int)


def embedding_bag_backward(
    grad, indices, bag_of, sizes, largest, rows, by_freq, mode, scales, padding
):
    out, grad, keep = np.zeros((rows, grad.shape[1])), wide(grad), indices != padding
    if mode == 2:
        full = np.flatnonzero(sizes)
        np.add.at(out, (largest[full], np.arange(grad.shape[1])), grad[full])
        return out
    each = np.ones(len(indices)) if scales is None else wide(scales)
    each = each / np.maximum(sizes, 1)[bag_of] if mode == 1 else each
    each = each / np.bincount(indices, minlength=rows)[indices] if by_freq else each
    np.add.at(out, indices[keep], (grad[bag_of] * each[:, None])[keep])
    return out


def embedding_bag_weights_backward(grad, weight, indices, offsets, bag_of, mode, padding):
    products = (wide(weight)[indices] * wide(grad)[bag_of]).sum(-1)
    return np.where(indices == padding, 0, products)


def _forward(steps, skip):
    """Logarithms of the sums over prefixes that end at each place of the path."""
    alpha = np.full(steps.shape, -np.inf)
    alpha[:1, :2] = steps[:1, :2]
    for t in range(1, len(steps)):
        before = np.concatenate([[-np.inf, -np.inf], alpha[t - 1]])
        from_two = np.where(skip, before[:-2], -np.inf)
        alpha[t] = np.logaddexp(np.logaddexp(before[2:], before[1:-1]), from_two) + steps[t]
    return alpha


def _aligned(log_probs, targets, input_lengths, target_lengths, blank):
    """For each sequence: its path, log-probabilities along it, forward sums, and the loss."""
    for n, (length, labels) in enumerate(zip(input_lengths, target_lengths)):
        begin = sum(target_lengths[:n]) if targets.ndim == 1 else 0
        own = (targets if targets.ndim == 1 else targets[n])[begin : begin + labels]
        path = np.full(2 * labels + 1, blank)  # blanks between the labels
        path[1::2] = own
        skip = np.append([False, False], (path[2:] != blank) & (path[2:] != path[:-2]))[: len(path)]
        steps = wide(log_probs)[:length, n][:, path]
        alpha = _forward(steps, skip)
        ends = alpha[-1, -2:] if length else np.array([-np.inf if labels else 0.0])
        yield path, skip, steps, alpha, -np.logaddexp.reduce(ends)


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
    found = list(_aligned(log_probs, targets, input_lengths, target_lengths, blank))
    loss = np.array([one[-1] for one in found]).reshape(log_probs.shape[1])
    states = np.zeros((len(loss), len(log_probs), 2 * max(target_lengths, default=0) + 1))
    for state, (_, _, _, alpha, _) in zip(states, found):
        state[: alpha.shape[0], : alpha.shape[1]] = alpha
    return np.where(np.isinf(loss), 0, loss) if zero_infinity else loss, states


def ctc_loss_backward(grad, log_probs, targets, inputs, labels, loss, state, blank, zero_infinity):
    out, found = np.zeros(log_probs.shape), _aligned(log_probs, targets, inputs, labels, blank)
    for n, (path, skip, steps, alpha, nll) in enumerate(found):
        if zero_infinity and np.isinf(nll):
            continue
        back = np.append(skip[2:], [False, False])[: len(skip)]
        both = alpha + _forward(steps[::-1, ::-1], back[::-1])[::-1, ::-1]
        probability = np.full((len(steps), log_probs.shape[2]), -np.inf)
        np.logaddexp.at(probability, (slice(None), path), both)
        own = wide(log_probs)[: len(steps), n]
        out[: len(steps), n] = (np.exp(own) - np.exp(probability + nll - own)) * grad[n]
    return out


FUNCTIONS = {name: f for name, f in globals().items() if name in PRIMS}
