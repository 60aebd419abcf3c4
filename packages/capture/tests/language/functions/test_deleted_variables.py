"""`del` of a variable that functions share: whoever reads it next raises eager's NameError.

Generated: where the variable is, who deletes it, what comes between and who reads it.
"""

import itertools

import pytest
import torch

DELETED = {
    "here": "del y",
    "by a call": "drop()",
    "twice": "drop(); drop()",
    "and set": "del y; y = 7",
    "by a call, and set": "drop(); y = t * 3",
    "on a condition": "if t.shape[0] == 2: drop()",
}
BETWEEN = {"nothing": "pass", "a break": "torch.seed()"}
READ = {
    "here": "y",
    "by a call": "read()",
    "by a class": "[K for K in (type('K', (), {'v': read()}),)][0].v",
    "the cell": "read.__closure__[0].cell_contents",
    "a generator, after a break": "[*later()]",
}
WHERE = ("own", "argument", "free")
PROGRAM = """
def made(told):
    {outer}
    def fn(t{argument}):
        {scope}
        def read(): return y
        def drop():
            nonlocal y
            del y
        def later():
            torch.seed()
            yield y
        rows = []
        try:
            rows.append(read())
            {deleted}
        except NameError as error:
            rows.append((type(error), str(error), error.name))
        {between}
        try:
            rows.append({read})
        except (NameError, ValueError) as error:
            rows.append((type(error), str(error), getattr(error, "name", None)))
        try:
            rows.append(y)
        except NameError as error:
            rows.append((type(error), str(error), error.name))
        return t * 2, rows, read
    return fn, {left}
"""


def program(where, deleted, between, read):
    free = where == "free"
    scope = {"own": "y = t + told", "argument": "pass", "free": "nonlocal y"}
    text = PROGRAM.format(
        outer="y = told" if free else "pass", scope=scope[where],
        argument=", y=4" if where == "argument" else "",
        left="lambda: y" if free else "None", deleted=deleted, between=between, read=read,
    )  # fmt: skip
    names = {"torch": torch}
    exec(text, names)
    return names["made"]


def told(read):
    try:
        return read()
    except NameError as error:
        return type(error), str(error), error.name


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("deleted", DELETED)
def test_what_is_read_after_del(where, deleted, capture, backend, same):
    for (between, what), (reader, read) in itertools.product(BETWEEN.items(), READ.items()):
        made, found = program(where, DELETED[deleted], what, read), []
        for wrap in (lambda fn: fn, capture):
            fn, left = made(4)
            backend.clear()
            run, rows = wrap(fn), []
            for _ in range(2):
                *results, reads = run(torch.ones(2))
                rows.append((*results, told(reads), left and told(left)))
            found.append(rows)
        same(found[1], found[0])
        assert "a break" in between + reader or backend.graphs
