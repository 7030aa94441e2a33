"""`tools.pythons` and `tools.apart`: which Pythons are found, and what is installed for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.nightly import library
from tools import apart, lifeline, pythons


def fake_python(folder: Path, name: str, says: str) -> None:
    """A program of that name that says it is another version."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\necho {says}\n")
    program.chmod(0o755)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without pyenv, debootstrap or a cache; its PATH is the folder."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setattr(pythons, "CACHE", tmp_path / "cache")
    return path


def test_a_python_on_the_path_is_taken_if_it_runs(bare: Path, tmp_path: Path) -> None:
    """The one that is what its name says. pyenv puts a program on PATH for each version, and runs
    the chosen one only: its own folder has the others. A Debian is taken if it is complete."""
    fake_python(bare, "python3.12", "3.12")
    assert pythons.find("3.12") == pythons.Place("3.12", str(bare / "python3.12"))
    fake_python(bare, "python3.13", "nothing")
    real = tmp_path / "pyenv" / "versions" / "3.13.0" / "bin"
    fake_python(real, "python3.13", "3.13")
    assert pythons.find("3.13") == pythons.Place("3.13", str(real / "python3.13"))
    world = tmp_path / "cache" / "debian-forky"
    world.mkdir(parents=True)
    assert isinstance(pythons.find("3.14"), str)
    (world / "complete").touch()
    assert pythons.find("3.14") == pythons.Place("3.14", "/usr/bin/python3.14", world)


@pytest.mark.usefixtures("bare")
def test_a_python_that_is_nowhere_is_skipped_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The reason says what would help; the last lines name it, and nothing has failed."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert "apt-get install debootstrap" in str(pythons.find("3.14"))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "as root" in str(pythons.find("3.14"))
    assert "no later Debian has it" in str(pythons.find("3.11"))
    monkeypatch.setattr(pythons, "find", lambda version: "no such")
    monkeypatch.setattr(sys, "argv", ["pythons", "3.14"])
    assert not pythons.main()
    assert capfd.readouterr().out.rstrip().endswith("3.14    SKIPPED: no such")


def test_the_lowest_are_those_that_the_project_declares() -> None:
    """Each dependency of the library at the version behind its ``>=``; the tests' own packages are
    not bound."""
    usual, lowest = pythons.requirements(), pythons.requirements(lowest=True)
    assert "boto3>=1.36" in usual
    assert "boto3==1.36" in lowest
    bound = {one.partition("==")[0] for one in lowest if "==" in one}
    declared = "boto3 httptools msgspec botocore s3transfer orjson tenacity click rich jinja2"
    assert bound == set(declared.split())
    engines = {"ray[data]==2.54", "dask[dataframe]==2025.1", "fsspec==2025.7"}
    assert engines < set(apart.APART["low-engines"][0])
    assert any(one.startswith("pytest>=") for one in lowest)


def test_what_cannot_be_installed_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its environment no test is run; and in it none is skipped without its library.
    Spark's lowest is what the project declares."""
    assert '"pyspark>=3.5"' in (pythons.ROOT / "pyproject.toml").read_text()
    assert "pyspark==3.5.0" in next(iter(apart.APART.values()))[0]
    ran: list[str] = []

    def run(command: Sequence[str], **_: object) -> int:
        ran.extend(command)
        return 1 if "pip" in command else 0

    monkeypatch.setattr(lifeline, "run", run)
    monkeypatch.setattr(apart, "CACHE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["apart", "spark-3.5"])
    assert apart.main() == 1
    assert "There is no environment spark-3.5" in capsys.readouterr().out
    assert not [one for one in ran if one.startswith("tests/")]
    with pytest.raises(pytest.skip.Exception, match="no no_such: make apart ONLY=recipes"):
        library("no_such.part")
    monkeypatch.setenv("MAGIC_COMMITTER_TEST_APART", "recipes")
    with pytest.raises(ModuleNotFoundError):
        library("no_such.part")
