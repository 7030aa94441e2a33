"""What a disk cannot do is said before anything is decided: hard links, and the length of paths."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.committers.manifest.names import (
    LONGEST_BYTES,
    TRASHED_BYTES,
    TreeJobPaths,
    check_path_fits,
)
from magic_committer.committers.manifest.plan import PlannedFile
from magic_committer.committers.manifest.publish import aside_of
from magic_committer.errors import NotSupported
from magic_committer.file_trees.local import PATH_BYTES_MAX, LocalTree


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def test_a_disk_without_hard_links_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The error says what is missing and what to do; no file is left."""

    def no_links(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("magic_committer.file_trees.local.os.link", no_links)
    with pytest.raises(NotSupported, match="a disk without hard links") as raised:
        mc.start((tmp_path / "t").as_uri())
    assert "FAT" in raised.value.advice
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_directory_that_takes_no_files_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal before the link is no lack of links."""
    (tmp_path / "t").mkdir()

    def refused(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("magic_committer.file_trees.local.os.open", refused)
    with pytest.raises(mc.PermissionDenied, match="Permission denied"):
        LocalTree(tmp_path / "t").create("a", b"1")


def long_name(bytes_long: int) -> str:
    """A name of so many bytes, whose elements fit."""
    elements = ["d" * 199] * ((bytes_long - 1) // 200)
    return "/".join([*elements, "f" * (bytes_long - 200 * len(elements))])


def fits(root: Path, attempt: str) -> int:
    """How long a name may be."""
    tree, low, high = LocalTree(root), 1, PATH_BYTES_MAX
    while low < high:
        middle = (low + high + 1) // 2
        try:
            check_path_fits("x" * middle, tree.promises.path_bytes_max, attempt)
            low = middle
        except mc.PathError:
            high = middle - 1
    return low


def test_the_longest_name_can_be_published_taken_back_and_swept(tmp_path: Path) -> None:
    """In each directory that a job has for it the path is one that the system takes."""
    longest, uuid, id_ = fits(tmp_path, "a" * 32), "0" * 32, "1" * 32
    name, paths = long_name(longest), TreeJobPaths(uuid)
    away = aside_of(f"{paths.trash}/{id_}", PlannedFile("", name, 1, "e"))
    below = away.removeprefix(f"{paths.directory}/00/")
    swept = f"{paths.ended(id_)}/swept-{id_}/{below}"
    assert len(f"{tmp_path}/{swept}") == PATH_BYTES_MAX
    assert len(swept) - len(name) == LONGEST_BYTES + TRASHED_BYTES
    with mc.write(tmp_path.as_uri()) as job, job.open(name) as file:
        file.write(b"1")
    with mc.write(tmp_path.as_uri(), mode="replace") as job, job.open("new") as file:
        file.write(b"2")
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("how", ["open", "local_file", "directory"])
def test_a_name_that_could_not_be_taken_back_is_refused(tmp_path: Path, how: str) -> None:
    """One byte more: at once, or at the task's commit."""
    job = mc.start((tmp_path / "t").as_uri())
    task = job.task("1")
    name = long_name(fits(tmp_path / "t", task.attempt_id) + 1)
    with pytest.raises(mc.PathError, match="1 too many"), task:
        if how == "directory":
            path = task.directory() / name
            path.parent.mkdir(parents=True)
            path.touch()
        else:
            getattr(task, how)(name)
    job.abort()


def test_a_file_that_could_not_be_moved_away_is_not_replaced(tmp_path: Path) -> None:
    """Found while the job is planned: else it would be decided, and could never end."""
    table = tmp_path / "t"
    old = table / long_name(fits(table, "") + 1)
    old.parent.mkdir(parents=True)
    old.touch()
    replaced = mc.write(table.as_uri(), mode="replace")
    with pytest.raises(mc.PathError, match="1 too many"), replaced as job, job.open("new") as file:
        file.write(b"2")
    assert old.exists()
    assert not (table / "new").exists()
