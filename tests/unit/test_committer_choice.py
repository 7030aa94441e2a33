"""Which committer a new job gets: by the call, the environment, a file, another package."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from magic_committer.committers import registry
from magic_committer.committers.choice import FILE_BYTES_MAX, VARIABLE, committer_for
from magic_committer.committers.staging import DirectoryCommitter
from magic_committer.errors import OptionError, WrongType

DEST = "s3://bucket/t"
INI = "magic-committer.ini"
TOML = "pyproject.toml"


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The working directory: two below an empty one. No variable."""
    monkeypatch.delenv(VARIABLE, raising=False)
    place = tmp_path / "project" / "below"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    return place


def chosen(dest: str = DEST, said: str | None = None) -> str:
    """The name of the committer that a job gets."""
    return committer_for(dest, said).name


def classed(said: str | None) -> object:
    """The class that a job gets."""
    return committer_for(DEST, said)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (INI, "[magic-committer]\ncommitter = partitioned\n"),
        (INI, "[other]\nx = 1\n[magic-committer]\ncommitter = s3 = partitioned , file = magic\n"),
        (TOML, '[tool.magic-committer]\ncommitter = "partitioned"\n'),
        (TOML, '[tool.other]\nx = 1\n[tool.magic-committer.committer]\ns3 = "partitioned"\n'),
    ],
)
@pytest.mark.parametrize("above", [False, True])
def test_a_file_names_the_committer(place: Path, file: str, text: str, above: bool) -> None:
    """The ini file or the table of pyproject.toml, for all schemes or for one, in the working
    directory or above; s3a is s3. What the call says wins."""
    (place.parent if above else place).joinpath(file).write_text(text)
    assert chosen() == chosen("s3a://bucket/t") == "partitioned"
    assert chosen(said="directory") == "directory"


def test_the_nearest_file_wins_and_the_variable_wins_over_files(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that says nothing of committers is passed over; of one directory the ini file is
    read."""
    (place.parent.parent / INI).write_text("[magic-committer]\ncommitter = magic\n")
    (place.parent / TOML).write_text('[tool.magic-committer]\ncommitter = "partitioned"\n')
    (place / TOML).write_text("[tool.other]\nx = 1\n")
    assert chosen() == "partitioned"
    (place.parent / INI).write_text("[magic-committer]\ncommitter = directory\n")
    assert chosen() == "directory"
    monkeypatch.setenv(VARIABLE, "file=magic, s3=partitioned")
    assert chosen() == "partitioned"
    monkeypatch.setenv(VARIABLE, "MAGIC")
    assert chosen() == "magic"


def test_a_scheme_that_no_setting_names_has_its_own_committer(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting for another scheme leaves S3 with magic; so does none at all."""
    assert chosen() == "magic"
    monkeypatch.setenv(VARIABLE, "file=directory")
    assert chosen() == "magic"


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        (INI, "committer = magic\n", "no ini file"),
        (INI, "[magic-committer]\ncomitter = magic\n", "comitter: no setting"),
        (INI, "[magic-committer]\ncommitter = s3=\n", "does not name a committer"),
        (TOML, "[tool", "no TOML"),
        (TOML, "[tool]\nmagic-committer = 1\n", "no table"),
        (TOML, "[tool.magic-committer]\ncommitter = 1\n", "a name, or a table"),
        (TOML, "[tool.magic-committer.committer]\ns3 = 1\n", "a name, or a table"),
        (TOML, '[tool.magic-committer]\ncommitter = "directori"\n', "'directori' is unknown"),
        (TOML, '[tool.magic-committer]\ntrack = "s3"\n', "track: no setting"),
        (TOML, "#" * FILE_BYTES_MAX + "\n", "more than"),
    ],
)
def test_a_setting_that_cannot_be_understood_is_an_error(
    place: Path, file: str, text: str, told: str
) -> None:
    """A committer that is misspelt is no choice: the message names the file."""
    path = place / file
    path.write_text(text)
    with pytest.raises(OptionError, match=told) as refused:
        chosen()
    assert str(path) in str(refused.value)
    assert chosen(said="magic") == "magic"


def test_a_file_that_is_no_text_is_an_error(place: Path) -> None:
    """Bytes that are not UTF-8 are no setting, and not passed over."""
    (place / INI).write_bytes(b"[magic-committer]\ncommitter = \xff\n")
    with pytest.raises(OptionError, match="not UTF-8"):
        chosen()


@pytest.mark.parametrize("text", ["s3=", "=magic", "s3=magic,,", "s3=magic,partitioned"])
def test_a_variable_that_cannot_be_understood_is_an_error(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """The message names the variable."""
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(OptionError, match=VARIABLE):
        chosen()


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


def test_a_package_brings_a_committer(package: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, in the call as in the environment; it is among the names that a mistake
    lists."""
    assert classed("other") is Other
    monkeypatch.setenv(VARIABLE, "other")
    assert classed(None) is Other
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
