"""What a frame reads of a container is guarded, and a write reads nothing: a container that a
program only fills, at computed keys and around breaks, keeps one entry, and holds what eager's
does."""

from collections import Counter, OrderedDict, defaultdict, deque

import pytest
import torch
from flambeau_capture import optimize

CALLS = 12


class Box:
    def __init__(self):
        self.items = []
        self.bounded = deque(maxlen=4)
        self.queue = deque()
        self.table = {}
        self.members = set()
        self.counts = Counter()
        self.lists = defaultdict(list)
        self.ordered = OrderedDict()


class Numbered(Box, torch.nn.Module):
    def __init__(self):
        torch.nn.Module.__init__(self)
        Box.__init__(self)


#: what is written, and how many compilations it may take
WRITES = {
    "b.items.append(x.sum())": 1,
    "b.items.extend([x, n])": 1,
    "b.items += [n]": 1,
    "b.items.insert(len(b.items), n)": 3,
    "b.items.insert(0, n)": 1,
    "b.items.append(n); b.items.insert(-1, 'a'); b.items.append(2)": 1,
    "b.items.append(x.sum().item())": 2,
    "b.bounded.append(n); b.bounded.appendleft(x)": 1,
    "b.queue.extend([n, 1, 2]); b.queue.extendleft('ab')": 1,
    "b.members.add(n); b.members.add('a'); b.members.discard(n - 1)": 2,
    "b.table[n] = x": 1,
    "b.table[n, 'a'] = x; b.table['last', n] = n": 1,
    "b.table[f'step{n}'] = x; b.table[f'{n:03d}/{n}'] = n": 2,
    "b.table['k' + str(n)] = x": 2,
    "b.table['a'] = n; b.table['a'] = b.table['a'] + 1": 2,
    "b.table.update(a=n); b.table[n] = 1; del b.table['a']": 3,
    "b.table[f'step{n}'] = x; b.table['total'] = b.table.get('total', 0) + 1": 3,
    "b.counts['calls'] += 1; b.counts[n] = 1": 3,
    "b.counts.update(['a', 'b', 'a'])": 3,
    "b.lists['a'].append(n); b.lists[f'{n}'] = [n]": 2,
    "b.ordered[n] = x; b.ordered['a'] = n": 1,
    "b.table.setdefault('a', []).append(n); b.table[n] = 1": 2,
    "b.table[n] = x; y = b.table.pop('z', 1)": 2,
    "b.items.append(n); x = x * len(b.items)": 3,
    "m = len(b.items); b.items.append(n); x = x + m + len(b.items)": 3,
    "b.items.append(n); x = x * b.items[-1]": 2,
    "y = b.items[-1] if b.items else 0; b.items.append(n * 2); x = x * y": 4,
    "s = 'a' in b.members; b.members.update('a'); b.members.add(n); x = x * s": 3,
    "b.queue.append(n)\n    while len(b.queue) > 2: b.queue.popleft()": 4,
    "b.items.append(n); b.table[n] = 1; print(end=''); b.table[n + .5] = 1; b.items.append(n)": 3,
    "b.queue.append(x.sum().item()); b.members.add(x.sum().item()); b.table[n] = b.items": 3,
}


def fill(box, write, wrap):
    names = {"b": box}
    exec(f"def f(x, n, b):\n    {write}\n    return x * 2\n", names)
    call = wrap(names["f"])
    results = [call(torch.ones(2) * turn, turn + 3, box).tolist() for turn in range(CALLS)]
    return results, {name: held for name, held in vars(box).items() if not name.startswith("_")}


@pytest.mark.parametrize("kind", [Box, Numbered])
@pytest.mark.parametrize("write", WRITES)
def test_what_is_only_written_is_not_guarded(write, kind):
    compiled = []

    def backend(module, inputs):
        compiled.append(module)
        return module.forward

    found = fill(kind(), write, lambda f: optimize(backend)(f))
    assert repr(found) == repr(fill(kind(), write, lambda f: f))
    breaks = 2 if "print" in write or "item()" in write else 1
    assert len(compiled) <= WRITES[write] * breaks


@pytest.mark.parametrize("size", [3, 300])
def test_what_is_read_is_guarded_whatever_the_size(size, backend):
    table, members = dict.fromkeys(range(size)), set(range(size))

    def f(x):
        members.add("new")
        if "seen" in table or "seen" in members:
            return x * 2
        table["written"] = 1
        return x + table.get("factor", 1)

    compiled = optimize(backend)(f)
    for change in ("", "table['factor'] = 5", "members.add('seen')", "members.remove('seen')",
                   "table['other'] = 1", "table['seen'] = 1"):  # fmt: skip
        exec(change)
        assert compiled(torch.ones(2)).tolist() == f(torch.ones(2)).tolist(), change


def test_a_list_of_numbers_is_stacked_with_open_sizes(backend):
    def f(x, kept):
        kept.append(x.sum().item())
        return torch.tensor([kept, kept]) + x.shape[0]

    results = []
    for call in (f, optimize(backend)(f)):
        kept = []
        results.append([call(torch.ones(size), kept).tolist() for size in (2, 3, 4, 5)])
    assert results[0] == results[1]
