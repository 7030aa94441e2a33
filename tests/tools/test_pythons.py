"""`tools.pythons` and `tools.apart`: which Pythons are found, and what is installed for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.nightly import library
from tools import apart, lifeline, pythons


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
