"""A rename looks before it believes an error, so that anybody may call it again."""

from __future__ import annotations

import pytest

from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    Unanswered,
)
from magic_committer.file_trees.base import TreeEntry
from magic_committer.file_trees.memory import MemoryTree
from magic_committer.file_trees.renaming import SourceLost, is_file, rename_once
from tests.faulty_tree import Fault, FaultyTree, at, on

DATA = b"123"


@pytest.fixture
def tree() -> MemoryTree:
    """A tree with the file ``a``, of three bytes."""
    made = MemoryTree(now=lambda: 1.0)
    made.create("a", DATA)
    return made


def etag_of(tree: MemoryTree, path: str) -> str:
    """The etag of a file that is there."""
    entry = tree.stat(path)
    assert entry is not None
    return entry.etag


def test_the_second_call_finds_it_done(tree: MemoryTree) -> None:
    """The first call renames; the second sees that it was done, and changes nothing."""
    etag = etag_of(tree, "a")
    assert rename_once(tree, "a", "b", 3, etag) == "renamed"
    assert rename_once(tree, "a", "b", 3, etag) == "was_done"
    assert [entry.path for entry in tree.list("")] == ["b"]


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.RETRIED])
def test_a_rename_that_took_effect_and_failed_is_done(
    tree: MemoryTree, fault: Fault, replace: bool
) -> None:
    """Neither a lost answer nor a NotFound after the client's own retry hides the success."""
    etag = etag_of(tree, "a")
    faulty = FaultyTree(tree, on("rename", fault))
    assert rename_once(faulty, "a", "b", 3, etag, replace=replace) == "was_done"
    assert tree.read("b", 9) == DATA


def test_a_rename_that_took_no_effect_is_told_and_repeated(tree: MemoryTree) -> None:
    """Unanswered stays Unanswered while the source is there, and the next call renames."""
    etag = etag_of(tree, "a")
    faulty = FaultyTree(tree, on("rename", Fault.REQUEST_LOST))
    with pytest.raises(Unanswered):
        rename_once(faulty, "a", "b", 3, etag)
    assert rename_once(faulty, "a", "b", 3, etag) == "renamed"


def test_a_rename_that_takes_effect_late_does_no_harm(tree: MemoryTree) -> None:
    """It comes while the next call looks, after it, or never: the file is at its place once."""
    etag = etag_of(tree, "a")
    faulty = FaultyTree(tree, on("rename", Fault.LATE))
    with pytest.raises(Unanswered):
        rename_once(faulty, "a", "b", 3, etag)
    assert rename_once(faulty, "a", "b", 3, etag) == "renamed"
    tree.create("a", b"a later file of the same name")
    tree.rename("a", "c")
    faulty.weather.settle()
    assert tree.read("b", 9) == DATA


@pytest.mark.parametrize("look", [1, 2])
def test_another_process_that_renames_between_two_looks_is_no_loss(
    tree: MemoryTree, look: int
) -> None:
    """Whenever the other one comes, nobody sees a file that is neither here nor there."""
    etag = etag_of(tree, "a")
    looks = 0

    def other(verb: str, path: str) -> None:
        nonlocal looks
        looks += verb == "stat"
        if looks == look:
            tree.before = lambda verb, path: None
            tree.rename("a", "b")

    tree.before = other
    faulty = FaultyTree(tree, on("rename", Fault.REQUEST_LOST))
    if look == 1:
        assert rename_once(faulty, "a", "b", 3, etag) == "was_done"
    else:
        with pytest.raises(Unanswered):
            rename_once(faulty, "a", "b", 3, etag)


def test_another_file_at_the_target_is_a_loss(tree: MemoryTree) -> None:
    """A file of the same size and another etag is not ours; nor is one of another size."""
    etag = etag_of(tree, "a")
    tree.remove("a")
    with pytest.raises(SourceLost, match="is gone"):
        rename_once(tree, "a", "b", 3, etag)
    tree.create("b", b"456")
    with pytest.raises(SourceLost):
        rename_once(tree, "a", "b", 3, etag)
    with pytest.raises(SourceLost):
        rename_once(tree, "a", "b", 4)
    assert rename_once(tree, "a", "b", 3) == "was_done", "without an etag the size must do"


def test_a_file_that_may_not_be_replaced_stays(tree: MemoryTree) -> None:
    """In mode fail another file at the target is told, and both files are as they were."""
    tree.create("b", b"456")
    with pytest.raises(PreconditionFailed):
        rename_once(tree, "a", "b", 3, etag_of(tree, "a"), replace=False)
    assert (tree.read("a", 9), tree.read("b", 9)) == (DATA, b"456")


def test_a_missing_directory_is_no_loss(tree: MemoryTree) -> None:
    """The source is there still: NotFound, which a caller answers by making the directory."""
    with pytest.raises(NotFound) as raised:
        rename_once(tree, "a", "d/b", 3)
    assert not isinstance(raised.value, SourceLost)


@pytest.mark.parametrize("number", [2, 3])
def test_a_look_that_fails_is_not_a_loss(tree: MemoryTree, number: int) -> None:
    """Who could not look does not know: Unanswered, and the next call finds it done."""
    etag = etag_of(tree, "a")
    faulty = FaultyTree(tree, at({1: Fault.RETRIED, number: Fault.REQUEST_LOST}))
    with pytest.raises(Unanswered):
        rename_once(faulty, "a", "b", 3, etag)
    assert rename_once(faulty, "a", "b", 3, etag) == "was_done"


def test_a_final_error_is_believed(tree: MemoryTree) -> None:
    """A missing right, or a directory in the way, took no effect: nobody looks."""
    faulty = FaultyTree(tree, on("rename", Fault.DENIED))
    with pytest.raises(PermissionDenied):
        rename_once(faulty, "a", "b", 3)
    assert [verb for verb, _ in faulty.asked] == ["rename"]
    tree.make_directory("d")
    with pytest.raises(InvalidRequest):
        rename_once(tree, "a", "d", 3)


@pytest.mark.parametrize(
    ("entry", "same"),
    [
        (None, False),
        (TreeEntry("b", "directory", 3, 1.0, "e"), False),
        (TreeEntry("b", "other", 3, 1.0, "e"), False),
        (TreeEntry("b", "file", 2, 1.0, "e"), False),
        (TreeEntry("b", "file", 3, 1.0, "f"), False),
        (TreeEntry("b", "file", 3, 1.0, "e"), True),
        (TreeEntry("b", "file", 3, 1.0, ""), True),
    ],
)
def test_a_file_is_known_by_size_and_etag(entry: TreeEntry | None, same: bool) -> None:
    """Only a file of the size and the etag; the size alone where the tree has no etags."""
    assert is_file(entry, 3, "e") is same
