"""`python -m flambeau`: each command says what it does, and does it."""

import pytest
import torch

import flambeau
from flambeau.__main__ import COMMANDS, main


def test_without_a_command_they_are_listed(capsys):
    assert main([]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in COMMANDS)
    assert main(["dance"]) == 2


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_has_help(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert COMMANDS[name].__doc__.split()[0] in capsys.readouterr().out


def scaled(x, factor):
    return x * factor


def test_a_frame_that_capture_failed_on_is_replayed(falls_back, tmp_path, monkeypatch, capsys):
    from flambeau_capture.frame import conversion

    def planted(*given, **named):
        raise ZeroDivisionError("planted")

    options = {"record_failures": str(tmp_path)}
    with monkeypatch.context() as patch:
        patch.setattr(conversion, "plan_return", planted)
        with pytest.warns(UserWarning, match="planted"):
            result = flambeau.compile(scaled, backend="eager", options=options)(torch.ones(2), 3)
        assert result.tolist() == [3.0, 3.0]
        (record,) = tmp_path.glob("*.frame")
        assert main(["replay", str(record)]) == 1
        assert "planted" in capsys.readouterr().err
    assert main(["replay", str(record)]) == 0
    assert "tensor([3., 3.])" in capsys.readouterr().out
    assert main(["replay", str(tmp_path / "nothing")]) == 2


def test_minify_says_when_nothing_fails(tmp_path, capsys):
    from flambeau.repro import GraphFailure, write_script

    gm = torch.fx.symbolic_trace(torch.nn.ReLU())
    path = tmp_path / "whole.py"
    write_script(path, gm, [torch.ones(2)], GraphFailure("wrong", "once"), "eager")
    assert main(["minify", str(path)]) == 1
    assert "does not fail" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["minify", "replay", "report"])
def test_a_file_that_is_not_there_is_one_sentence(name, tmp_path, capsys):
    assert main([name, str(tmp_path / "absent")]) in (1, 2)
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "absent" in told


def test_an_unknown_command_is_named(capsys):
    assert main(["dance"]) == 2
    assert "unknown command 'dance'" in capsys.readouterr().err


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"flambeau {flambeau.__version__}\n"
