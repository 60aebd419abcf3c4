"""Circles of imports: none in the packages, and each kind is found."""

import itertools

import pytest

from tools import circles


def test_the_packages_have_none():
    assert circles.circle(circles.imports(circles.modules())) == []


SPELLINGS = {
    "at the top": "import pack.{}",
    "of a name": "from pack.{} import name",
    "of a module": "from pack import {}",
    "inside a function": "def f():\n    from pack.{} import name",
    "inside a method": "class C:\n    def f(self):\n        import pack.{}",
    "where it is tried": "try:\n    import pack.{}\nexcept ImportError:\n    pass",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("length", [2, 3])
def test_a_circle_is_found(spelling, length, tmp_path):
    folder = tmp_path / "packages" / "pack" / "src" / "pack"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    names = [f"m{number}" for number in range(length)]
    for one, other in zip(names, [*names[1:], names[0]]):
        (folder / f"{one}.py").write_text(SPELLINGS[spelling].format(other))
    made = circles.imports(circles.modules(tmp_path))
    found = circles.circle(made)
    assert {*found} == {f"pack.{name}" for name in names} and found[0] == found[-1]
    assert all(other in made[one] for one, other in itertools.pairwise(found))


def test_an_import_for_types_makes_none(tmp_path):
    folder = tmp_path / "packages" / "pack" / "src" / "pack"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack import other\n"
    )
    (folder / "other.py").write_text("import pack.one\n")
    assert circles.circle(circles.imports(circles.modules(tmp_path))) == []
