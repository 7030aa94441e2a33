"""What only SFTP has: one connection for many threads, which may be lost; and a server that says no
more than "Failure"."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import magic_committer as mc
from magic_committer.errors import NotSupported, PermissionDenied, StoreError
from magic_committer.stores.trees.base import FileTree
from magic_committer.stores.trees.dialects import tree_for
from magic_committer.stores.trees.through_fsspec import FsspecTree
from tests.real_trees import openssh
from tests.real_trees.looking import data
from tests.real_trees.test_jobs import FIRST
from tests.unit.test_file_trees import read

pytestmark = pytest.mark.on("sftp")
THREADS = 16
END_SECONDS_MAX = 300


def fs_of(tree: FileTree) -> Any:
    """The driver's file system."""
    assert isinstance(tree, FsspecTree)
    return tree._fs


def use_by_threads(tree: FileTree) -> list[BaseException]:
    """Threads that make, list, rename and read at once; what they raised."""
    raised: list[BaseException] = []

    def use(number: int) -> None:
        try:
            for turn in range(4):
                name, data = f"{number}-{turn}", bytes([number]) * 50_000
                with tree.open(f"{name}.tmp") as file:
                    file.write(data)
                tree.rename(f"{name}.tmp", name, replace=False)
                assert f"{name}" in {entry.name for entry in tree.list("")}
                assert read(tree, name) == data
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=use, args=(n,), daemon=True) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(END_SECONDS_MAX)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    return raised


def test_many_threads_share_one_connection(tree: FileTree) -> None:
    """More threads than the server allows sessions: each gets its own answers."""
    assert use_by_threads(tree) == []
    assert len([*tree.list("")]) == THREADS * 4


def test_a_server_that_allows_one_session_serves_all_threads(served: str, tmp_path: Path) -> None:
    """Where sessions are refused, threads wait for each other."""
    with openssh.running(tmp_path, sessions=1) as url:
        tree = tree_for(f"{url}/t")
        tree.make_root()
        assert use_by_threads(tree) == []


def test_a_connection_that_was_lost_is_made_again(tree: FileTree, url: str) -> None:
    """By the next call, for the tree that is held and for a new one; what was open has failed."""
    tree.make("a", None, b"1")
    file = tree.open("half")
    file.write(b"1")
    fs_of(tree).client.get_transport().close()
    with pytest.raises(StoreError):
        file.write(b"2" * 300_000)
        file.close()
    assert read(tree, "a") == b"1"
    fs_of(tree).client.get_transport().close()
    assert read(tree_for(url), "a") == b"1"
    assert use_by_threads(tree) == []


def test_a_job_goes_on_after_a_lost_connection(url: str) -> None:
    """Between its tasks and its commit: nothing of it is lost."""
    with mc.start(url, accept="listing") as job:
        with job.task("1") as task:
            for name, content in FIRST.items():
                with task.open(name) as file:
                    file.write(content)
        fs_of(tree_for(url)).client.get_transport().close()
        job.commit(expect=1)
    assert data(url) == FIRST


def test_a_reader_of_a_replaced_file_sees_the_old_one_whole(tree: FileTree) -> None:
    """posix-rename replaces in one step; an open file stays what it was."""
    tree.make("a", None, b"old")
    tree.make("b", None, b"new")
    with tree.reader("a") as reader:
        tree.rename("b", "a")
        assert reader.read() == b"old"
    assert read(tree, "a") == b"new"


def test_times_are_whole_seconds_and_nothing_tells_files_apart(tree: FileTree) -> None:
    """No inode, no nanoseconds: so there are no etags, and modes that replace are refused."""
    tree.make("a", None, b"1")
    entry = tree.stat("a")
    assert entry is not None
    assert entry.modified == int(entry.modified) > 0
    assert not tree.promises.tells_apart


def test_a_missing_right_is_told(served: str) -> None:
    """The server's word for it becomes PermissionDenied, and is not tried again."""
    tree = tree_for(f"sftp://{urlsplit(served).netloc}/sys/table")
    with pytest.raises(PermissionDenied):
        tree.make_root()


def test_a_server_without_hard_links_is_refused(served: str, tmp_path: Path) -> None:
    """There nothing makes a create exclusive: the job is refused before it has written anything."""
    with openssh.running(tmp_path, denied="hardlink") as url:
        with pytest.raises(NotSupported, match="no hard links"):
            mc.start(f"{url}/t")
        assert [*(tmp_path / "data" / "t").iterdir()] == []
