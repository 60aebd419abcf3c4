"""Rows: distances between them, bags of them, and sequences aligned with labels."""

# ruff: noqa: ANN001, ANN202
import numpy as np

from numpy_backend.arrays import wide


def _norms(difference, p):
    size = np.abs(difference)
    if p == 0:
        return (size != 0).sum(-1)
    if np.isinf(p):
        return size.max(-1, initial=0)
    return (size**p).sum(-1) ** (1 / p)


def _cdist(a, b, p):
    return _norms(wide(a)[..., :, None, :] - wide(b)[..., None, :, :], p)


def _cdist_backward(grad, a, b, p, distance):
    difference = wide(a)[..., :, None, :] - wide(b)[..., None, :, :]
    d = wide(distance)[..., None]
    size, safe = np.abs(difference), np.where(d == 0, 1, d)
    if p == 0:
        slope = np.zeros_like(size)
    elif np.isinf(p):
        slope = (size == d) * 1.0
    else:
        slope = np.where(size == 0, 0, (np.where(size == 0, 1, size) / safe) ** (p - 1))
    return (wide(grad)[..., None] * np.where(d == 0, 0, np.sign(difference) * slope)).sum(-2)


def _pairs(n):
    return np.triu_indices(n, 1)


def _pdist_backward(grad, a, p, distance):
    full = np.zeros((2, len(a), len(a)))
    for whole, part in zip(full, (grad, distance)):
        whole[_pairs(len(a))] = part
    return _cdist_backward(full[0] + full[0].T, a, a, p, full[1] + full[1].T)


def _bags(indices, offsets):
    return np.searchsorted(offsets, np.arange(len(indices)), "right") - 1


def _embedding_bag(weight, indices, offsets, by_freq, mode, scales, last, padding):
    bag_of, bags = _bags(indices, offsets[:-1] if last else offsets), len(offsets) - bool(last)
    keep = indices != padding
    sizes = np.bincount(bag_of[keep], minlength=bags)
    rows = wide(weight)[indices]
    if mode == 2:
        out, largest = np.zeros((bags, weight.shape[1])), np.zeros((bags, weight.shape[1]), int)
        for b in np.unique(bag_of[keep]):
            mine = np.flatnonzero(keep & (bag_of == b))
            best = rows[mine].argmax(0)
            out[b] = rows[mine][best, np.arange(rows.shape[1])]
            largest[b] = indices[mine][best]
        return out, bag_of, sizes, largest
    out = np.zeros((bags, weight.shape[1]))
    scales = np.ones(len(indices)) if scales is None else wide(scales)
    np.add.at(out, bag_of[keep], rows[keep] * scales[keep, None])
    out = out / np.maximum(sizes, 1)[:, None] if mode == 1 else out
    return out, bag_of, sizes, np.zeros(bags, int)


def _embedding_bag_backward(
    grad, indices, bag_of, sizes, largest, rows, by_freq, mode, scales, padding
):
    out, grad = np.zeros((rows, grad.shape[1])), wide(grad)
    if mode == 2:
        full = np.flatnonzero(sizes)
        np.add.at(out, (largest[full], np.arange(grad.shape[1])), grad[full])
        return out
    each = np.ones(len(indices)) if scales is None else wide(scales)
    if mode == 1:
        each = each / np.maximum(sizes, 1)[bag_of]
    if by_freq:
        each = each / np.bincount(indices, minlength=rows)[indices]
    keep = indices != padding
    np.add.at(out, indices[keep], (grad[bag_of] * each[:, None])[keep])
    return out


def _embedding_bag_weights(grad, weight, indices, offsets, bag_of, mode, padding):
    products = (wide(weight)[indices] * wide(grad)[bag_of]).sum(-1)
    return np.where(indices == padding, 0, products)


def _labels(targets, lengths, n, blank):
    """A sequence's labels with blanks between, and which may be reached from two before."""
    if targets.ndim == 2:
        own = targets[n, : lengths[n]]
    else:
        own = targets[sum(lengths[:n]) : sum(lengths[: n + 1])]
    path = np.full(2 * len(own) + 1, blank)
    path[1::2] = own
    skip = np.zeros(len(path), bool)
    skip[2:] = (path[2:] != blank) & (path[2:] != path[:-2])
    return path, skip


def _forward(steps, skip):
    """Logarithms of the sums over prefixes that end at each place of the path."""
    alpha = np.full(steps.shape, -np.inf)
    for t, row in enumerate(steps):
        if t == 0:
            alpha[0, :2] = row[:2]
            continue
        before = np.concatenate([[-np.inf, -np.inf], alpha[t - 1]])
        from_two = np.where(skip, before[:-2], -np.inf)
        alpha[t] = np.logaddexp(np.logaddexp(before[2:], before[1:-1]), from_two) + row
    return alpha


def _ctc(log_probs, targets, input_lengths, target_lengths, blank):
    """For each sequence: its path, log-probabilities along it, forward sums, and the loss."""
    for n, length in enumerate(input_lengths):
        path, skip = _labels(targets, target_lengths, n, blank)
        steps = wide(log_probs)[:length, n][:, path]
        alpha = _forward(steps, skip)
        ends = alpha[-1, -2:] if length else np.array([0.0 if len(path) == 1 else -np.inf])
        yield path, skip, steps, alpha, -np.logaddexp.reduce(ends)


def _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
    found = list(_ctc(log_probs, targets, input_lengths, target_lengths, blank))
    loss = np.array([one[-1] for one in found]).reshape(log_probs.shape[1])
    states = np.zeros((len(loss), len(log_probs), 2 * max(target_lengths, default=0) + 1))
    for state, (_, _, _, alpha, _) in zip(states, found):
        state[: alpha.shape[0], : alpha.shape[1]] = alpha
    return np.where(np.isinf(loss), 0, loss) if zero_infinity else loss, states


def _ctc_backward(
    grad, log_probs, targets, input_lengths, target_lengths, loss, state, blank, zero_infinity
):
    out = np.zeros(log_probs.shape)
    found = _ctc(log_probs, targets, input_lengths, target_lengths, blank)
    for n, (path, skip, steps, alpha, nll) in enumerate(found):
        if zero_infinity and np.isinf(nll):
            continue
        back = np.zeros(len(skip), bool)
        back[:-2] = skip[2:]
        beta = _forward(steps[::-1, ::-1], back[::-1])[::-1, ::-1]
        probability = np.full((len(steps), log_probs.shape[2]), -np.inf)
        for s, label in enumerate(path):
            probability[:, label] = np.logaddexp(probability[:, label], (alpha + beta)[:, s])
        own = wide(log_probs)[: len(steps), n]
        out[: len(steps), n] = (np.exp(own) - np.exp(probability + nll - own)) * grad[n]
    return out


FUNCTIONS = {
    "cdist": _cdist,
    "cdist_backward": _cdist_backward,
    "pdist": lambda a, p: _cdist(a, a, p)[_pairs(len(a))],
    "pdist_backward": _pdist_backward,
    "embedding_bag": _embedding_bag,
    "embedding_bag_backward": _embedding_bag_backward,
    "embedding_bag_weights_backward": _embedding_bag_weights,
    "ctc_loss": _ctc_loss,
    "ctc_loss_backward": _ctc_backward,
}
