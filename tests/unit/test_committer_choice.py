"""Which committer a new job gets: by the call, the scheme, another package."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from magic_committer.committers import registry
from magic_committer.committers.registry import committer_for
from magic_committer.committers.staging import DirectoryCommitter
from magic_committer.errors import OptionError, WrongType

DEST = "s3://bucket/t"


def chosen(dest: str = DEST, said: str | None = None) -> str:
    """The name of the committer that a job gets."""
    return committer_for(dest, said).name


def classed(said: str | None) -> object:
    """The class that a job gets."""
    return committer_for(DEST, said)


def test_who_names_none_gets_the_committer_of_the_scheme() -> None:
    """Magic on S3, also as s3a; manifest on a disk. What the call says wins."""
    assert chosen() == chosen("s3a://bucket/t") == "magic"
    assert chosen("file:///t") == "manifest"
    assert chosen(said="Directory") == "directory"


# Other packages -----------------------------------------------------------------------------------


class Other(DirectoryCommitter):
    """A committer of another package."""

    name = "other"


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package whose entry points are one committer; one that cannot be loaded; one with another
    name; and one with a name of ours."""
    module = ModuleType("other_package")
    module.Other = Other  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "other_package", module)
    names = {
        "other": "other_package:Other",
        "broken": "other_package:Missing",
        "alias": "other_package:Other",
        "magic": "other_package:Other",
    }
    found = [EntryPoint(n, value, registry.ENTRY_POINTS) for n, value in names.items()]
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda *, group: found if group == registry.ENTRY_POINTS else [],
    )


def test_a_package_brings_a_committer(package: None) -> None:
    """By its name, which is among the names that a mistake lists."""
    assert classed("other") is Other
    assert "other" in registry.known_names()
    with pytest.raises(OptionError, match="Did you mean 'other'"):
        chosen(said="othr")


def test_no_package_takes_a_name_of_ours(package: None) -> None:
    """A job's record that says magic is this library's."""
    assert chosen(said="magic") == "magic"
    assert classed("magic") is not Other


@pytest.mark.parametrize(
    ("name", "told"), [("broken", "cannot be loaded"), ("alias", "is named 'other'")]
)
def test_a_package_that_is_broken_is_told(package: None, name: str, told: str) -> None:
    """The message names the entry point, and the committers that there are."""
    with pytest.raises(OptionError, match=told) as refused:
        chosen(said=name)
    assert "other_package" in str(refused.value)
    assert "directory" in str(refused.value)


def test_what_is_no_name_is_refused() -> None:
    """A class, say."""
    with pytest.raises(WrongType):
        committer_for(DEST, DirectoryCommitter)  # type: ignore[arg-type]  # what is tried
