"""Arguments, options and keys that were called something else before: taken, and told of."""

from __future__ import annotations

from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.cli.cleanup_config import read_config
from magic_committer.errors import OptionError
from magic_committer.testing import memory_store

DEST = "s3://bucket/t"


@pytest.mark.parametrize(
    ("call", "old", "new"),
    [
        (lambda **age: mc.inspect(DEST, **age), "older_than", "dead_after"),
        (lambda **age: mc.recover(DEST, "j", **age), "older_than", "dead_after"),
        (lambda **age: mc.cleanup(DEST, **age), "older_than", "dead_after"),
        (lambda **age: mc.cleanup(DEST, **age), "leftover_older_than", "leftover_after"),
        (lambda **age: mc.cleanup(DEST, **age), "closed_older_than", "forget_after"),
    ],
)
def test_an_old_name_is_taken_with_a_warning(call, old: str, new: str) -> None:  # type: ignore[no-untyped-def]
    """The warning says today's name, and points to the caller."""
    with memory_store("bucket"):
        with pytest.warns(DeprecationWarning, match=f"{old}=.* is called {new}= now") as told:
            call(**{old: 60})
        assert told[0].filename == __file__
        call(**{new: 60})


def test_an_old_name_beside_the_new_one_is_refused() -> None:
    """Nobody can tell which of the two is meant."""
    with memory_store("bucket"), pytest.raises(mc.WrongType, match=r"twice.*older_than"):
        mc.recover(DEST, "j", dead_after=0, older_than=5)  # type: ignore[call-arg]


def test_an_old_name_means_what_the_new_one_means() -> None:
    """A running job of this moment is aborted by ``older_than=0``."""
    with memory_store("bucket"):
        job = mc.start(DEST)
        with pytest.warns(DeprecationWarning, match="dead_after"):
            assert mc.recover(DEST, job.id, older_than=0).outcome == "aborted"  # type: ignore[call-arg]


def test_an_old_key_of_the_configuration_is_read(tmp_path: Path) -> None:
    """``keep_closed`` is ``forget_after``; both at once are refused."""
    file = tmp_path / "c.toml"
    file.write_text('[[destinations]]\npath = "s3://b/t"\nkeep_closed = "7d"\n')
    (target,) = read_config(str(file), {})
    assert target.limits.forget_after == 7 * 86400
    file.write_text(file.read_text() + 'forget_after = "1d"\n')
    with pytest.raises(OptionError, match="twice"):
        read_config(str(file), {})
