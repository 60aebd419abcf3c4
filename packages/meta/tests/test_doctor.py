import os
import subprocess
import sys

import pytest

from flambeau import doctor


def test_every_finding_that_is_not_ok_says_what_to_do():
    for finding in doctor.examine():
        assert finding.level == "ok" or finding.advice, finding


def test_as_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "flambeau.doctor"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for subject in ("python", "torch", "packages", "capture", "compiler", "cache", "gpu"):
        assert subject in done.stdout


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = doctor.compiler()
    assert found.level == "warn"
    assert "install g++" in found.advice


def test_cxx_that_is_not_there(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    (found,) = doctor.compiler()
    assert "no-such-compiler" in found.text


def test_a_compiler_that_does_not_run(monkeypatch, tmp_path):
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    (found,) = doctor.compiler()
    assert found.level == "warn"
    assert str(broken) in found.text


def test_a_compiler_without_openmp(monkeypatch, tmp_path):
    wrapper = tmp_path / "g++"
    wrapper.write_text(
        '#!/bin/sh\ncase "$*" in *-dM*) exec g++ "$@";; esac\necho no omp.h >&2\nexit 1\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("CXX", str(wrapper))
    (found,) = doctor.compiler()
    assert found.level == "warn"
    assert "no omp.h" in found.advice


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")
def test_a_cache_that_others_may_write_to(monkeypatch, tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(folder))
    (found,) = doctor.caches()
    assert found.level == "warn"
    assert "FLAMBEAU_CACHE_DIR" in found.advice


def test_a_check_that_fails_is_a_finding(monkeypatch):
    def broken():
        raise OSError("no")

    monkeypatch.setattr(doctor, "CHECKS", (broken,))
    (found,) = doctor.examine()
    assert found.level == "error"
    assert "OSError: no" in found.text
