"""Random programs of several functions: breaks, exceptions, generators and contexts at any depth.

Captured and eager runs must print the same, raise the same, and leave results and arguments the
same. A longer run: `python tests/language/breaks/test_random_frames.py FIRST COUNT`.
"""

import contextlib
import io
import random
import sys
import textwrap

import pytest
import torch
from flambeau_capture import graph_break, optimize

LEAVES = """
t = t + 1
t = t * n
t = t.sin()
n += 1
log.append(n)
log.append(len(log))
print("at", n, len(log))
graph_break()
graph_break(); log.append("after")
k = t.sum().item(); log.append(round(k, 2))
log += [n, n]
d["k"] = n
d[n] = len(d)
d.pop("k", None)
t = up(t, log, n)
t, n = pair(t, log, n)
log.append(next(made, None))
log.append(made.send(None) if n < 2 else "no")
o.a = n
o.a += 1; log.append(o.a)
o.t = t
c = [helper(t, i) for i in range(2)]; t = c[1]
t = helper(t, n) if t.sum() > 2 else t - 1
local = lambda q: q + n; t = local(t)
log.append(sorted(d, key=str)[:1])
bump()
log.append(count)
""".strip().splitlines()

ENDS = """
return t
return t, log
raise ValueError(n)
raise KeyError("k")
[][n]
""".strip().splitlines()

BLOCKS = """
for i in range(2):
while n < 3:
if n % 2:
if t.sum() > 3:
with noted(log, "ctx"):
with torch.no_grad():
try:
with contextlib.suppress(KeyError):
""".strip().splitlines()

PREFACE = """
class Thing:
    def __init__(self):
        self.a = 0
        self.t = None

@contextlib.contextmanager
def noted(log, name):
    log.append("in " + name)
    try:
        yield name
    finally:
        log.append("out " + name)

def numbers(t, log):
    total = 0
    try:
        for i in range(4):
            got = yield total
            total += i if got is None else got
            if i == 1:
                graph_break()
    except ValueError:
        log.append("thrown")

def helper(t, n):
    if n == 1:
        graph_break()
    return t + n

def pair(t, log, n):
    log.append("pair")
    t = helper(t, n)
    return t * 2, n + 1
"""


class Program:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.depth = self.rng.randint(1, 3)

    def lines(self, level, nesting):
        found = []
        for _ in range(self.rng.randint(1, 3)):
            if nesting < 3 and self.rng.random() < 0.35:
                found += self.block(level, nesting)
            else:
                found.append(self.leaf(level))
        return found

    def leaf(self, level):
        while True:
            text = self.rng.choice(LEAVES)
            if "up(" in text and level == 0:
                continue
            return text.replace("up(", f"f{level - 1}(")

    def block(self, level, nesting):
        head = self.rng.choice(BLOCKS)
        body = self.lines(level, nesting + 1)
        if head.startswith("while"):
            body.append("n += 1")
        if head.startswith(("for", "while")) and self.rng.random() < 0.3:
            body.append(self.rng.choice(["continue", "break"]))
        if self.rng.random() < 0.15:
            body.append(self.rng.choice(ENDS[2:]))
        text = [head, *indented(body)]
        if head == "try:":
            kind = self.rng.choice(
                ["ValueError", "KeyError", "Exception", "(KeyError, IndexError)"]
            )
            handler = [*self.lines(level, nesting + 1), "log.append(repr(error))"]
            if self.rng.random() < 0.2:
                handler.append("raise")
            if self.rng.random() < 0.8:
                text += [f"except {kind} as error:", *indented(handler)]
                if self.rng.random() < 0.3:
                    text += ["else:", *indented(self.lines(level, nesting + 1))]
                if self.rng.random() < 0.4:
                    text += ["finally:", *indented(self.lines(level, nesting + 1))]
            else:
                text += ["finally:", *indented(self.lines(level, nesting + 1))]
        return text

    def source(self):
        parts = [textwrap.dedent(PREFACE)]
        for level in range(self.depth + 1):
            body = ["d, o, count = {}, Thing(), 0", "made = numbers(t, log)"]
            body += ["def bump():", "    nonlocal count", "    count += n"]
            body += self.lines(level, 0) + self.lines(level, 0)
            if self.rng.random() < 0.2:
                body.append(self.rng.choice(ENDS))
            body.append("return t" if level < self.depth else "return t, log, d, n, o.a, count")
            parts.append("\n".join([f"def f{level}(t, log, n):", *indented(body)]))
        return "\n\n".join(parts) + f"\n\nfn = f{self.depth}\n"


def indented(lines):
    return ["    " + line for line in lines]


def plain(value):
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), [round(float(v), 2) for v in value.flatten()]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(plain, value)]
    if isinstance(value, dict):
        return [(key, plain(item)) for key, item in value.items()]
    return value


def outcome(fn, n):
    log = []
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = plain(fn(torch.arange(3.0) / 4, log, n))
        except Exception as error:
            result = [type(error).__name__, str(error)]
    grad = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    return result, plain(log), printed.getvalue(), grad


def agree(seed):
    source = Program(seed).source()
    namespace = {"torch": torch, "graph_break": graph_break, "contextlib": contextlib}
    exec(compile(source, f"<frames {seed}>", "exec"), namespace)
    fn = namespace["fn"]
    compiled = optimize("eager", raise_internal_errors=True)(fn)
    for n in (0, 1, 0):
        assert outcome(compiled, n) == outcome(fn, n), f"program {seed}, n = {n}:\n{source}"


@pytest.mark.sweep(2)
@pytest.mark.filterwarnings("error:guards of .* do not hold:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*was compiled")
@pytest.mark.parametrize("first", range(0, 40, 8))
def test_random_frames(first):
    for seed in range(first, first + 8):
        agree(seed)


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    first, count = int(sys.argv[1]), int(sys.argv[2])
    failed = []
    for seed in range(first, first + count):
        try:
            agree(seed)
        except Exception as error:
            failed.append(seed)
            sys.stdout.write(f"{seed}: {type(error).__name__}: {str(error)[:200]}\n")
    sys.stdout.write(f"{count} programs, {len(failed)} disagree\n")
    sys.exit(bool(failed))
