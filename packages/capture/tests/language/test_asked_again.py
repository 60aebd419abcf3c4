"""What programs ask of the process in one graph: the answer is eager's at every call, also once the
process has changed in between. Each question with what changes its answer."""

import functools
import io
import logging
import os

import pytest
import torch
from flambeau_capture import optimize

QUESTIONS = {
    "os.getcwd()": "os.chdir(folder)",
    "os.path.abspath('a')": "os.chdir(folder)",
    "os.path.exists(folder + '/a')": "open(folder + '/a', 'w').close()",
    "os.path.isfile(folder + '/a')": "open(folder + '/a', 'w').close()",
    "os.path.isdir(folder + '/a')": "os.mkdir(folder + '/a')",
    "os.path.realpath(folder + '/a')": "os.symlink(folder + '/b', folder + '/a')",
    "logging.getLevelName(31)": "logging.addLevelName(31, folder)",
    "os.getpid()": "pass",
    "os.cpu_count()": "pass",
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_after_a_change(question, tmp_path, monkeypatch):
    monkeypatch.chdir(os.getcwd())
    space = {"os": os, "logging": logging}
    exec(f"def f(t, folder):\n    return t + 1, {question}", space)
    compiled = optimize("eager", nopython=True)(space["f"])
    for change in ("pass", QUESTIONS[question], "pass"):
        exec(change, space, {"folder": str(tmp_path)})
        ours, theirs = (run(torch.ones(1), str(tmp_path)) for run in (compiled, space["f"]))
        assert ours[1] == theirs[1]


def test_what_raises_is_asked_by_python(capture, tmp_path):
    def f(t, path):
        try:
            return t + 1, os.path.getsize(path)
        except OSError as error:
            return t + 2, str(error)

    compiled, path = capture(f), str(tmp_path / "a")
    for size in (None, 3, 5, None):
        if size is None:
            (tmp_path / "a").unlink(missing_ok=True)
        else:
            (tmp_path / "a").write_text("a" * size)
        assert compiled(torch.ones(1), path)[1] == f(torch.ones(1), path)[1]


def test_messages_of_the_root_logger(capture):
    def f(t):
        logging.debug("not shown")
        logging.info("n %d", t.shape[0])
        logging.error("e")
        return t + 1

    found, root = [], logging.getLogger()
    before = root.handlers, root.level
    try:
        for make in (lambda f: f, capture, functools.partial(optimize("eager", nopython=True))):
            stream = io.StringIO()
            handler = logging.StreamHandler(stream)
            handler.setFormatter(
                logging.Formatter("%(levelname)s %(funcName)s %(lineno)d %(message)s")
            )
            root.handlers, root.level = [handler], logging.INFO
            run = make(f)
            run(torch.ones(2)), run(torch.ones(2))
            found.append(stream.getvalue())
    finally:
        root.handlers, root.level = before
    assert found[0] == found[1] == found[2] and found[0].count("INFO f") == 2
