"""A local directory as a store, beyond S3's rules: what it copies, syncs, follows and refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

import magic_committer as mc
from magic_committer.errors import InvalidRequest, NotSupported, PreconditionFailed, Unanswered
from magic_committer.hadoop.paths import waiting_id
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores import tree
from magic_committer.stores.base import Attributes, FileSlice, Part, objects, uploads
from magic_committer.stores.tree import UPLOADS, TreeStore
from magic_committer.stores.trees import disk
from magic_committer.stores.trees.dialects import HdfsTree
from tests import tree_stand_ins as stand_ins
from tests.promises.hands import raises

PLAIN = Attributes()
RECORD = "t/__magic_job-1/_job.json"


@pytest.fixture
def store(tmp_path: Path) -> TreeStore:
    return TreeStore(tmp_path / "root", "bucket")


def _pending(store: TreeStore, key: str, *bodies: bytes) -> tuple[str, list[Part]]:
    upload = store.create_upload(key, attributes=PLAIN).upload_id
    return upload, [
        store.put_part(key, upload, number, memoryview(body))
        for number, body in enumerate(bodies, 1)
    ]


def _waiting(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "root" / UPLOADS).glob("*"))


def _body(store: TreeStore, key: str) -> bytes:
    return store.get(key, max_bytes=2**20).body


def _other(tmp_path: Path) -> TreeStore:
    """The same directory, of another process."""
    return TreeStore(tmp_path / "root", "bucket")


def _refused(*verbs: Callable[[], object], match: str = ".") -> InvalidRequest:
    """What the last of some verbs is refused with, as each is."""
    for verb in verbs:
        caught = raises(InvalidRequest, verb, match=match)
    return caught


def _writes(store: TreeStore, key: str) -> tuple[Callable[[], object], ...]:
    """The verbs that would make a file."""
    return (lambda: store.put(key, b"x"), lambda: store.create_upload(key, attributes=PLAIN))


def _dying_move(monkeypatch: pytest.MonkeyPatch, dies: Callable[[str], bool]) -> None:
    """A rename to such a target is the end of a process, if ``dies`` says so."""
    move = disk.move

    def moved(source: str, target: str, *, exclusive: bool) -> None:
        if dies(target):
            raise OSError(errno.EIO, "dies")
        move(source, target, exclusive=exclusive)

    monkeypatch.setattr(disk, "move", moved)


# Parts --------------------------------------------------------------------------------------------


def test_parts_that_many_threads_send_are_not_copied(store: TreeStore, tmp_path: Path) -> None:
    """One that comes a moment early waits for its turn."""
    upload, _ = _pending(store, "t/k")
    inode = _waiting(tmp_path)[0].stat().st_ino
    pool = ThreadPool(8)
    try:
        sent = pool.each(
            lambda n: store.put_part("t/k", upload, n, memoryview(b"%03d" % n * 5000)),
            range(1, 41),
            in_flight=8,
        )
        parts = sorted((one.unwrap() for one in sent), key=lambda part: part.number)
    finally:
        pool.close()
    store.complete_upload("t/k", upload, parts)
    assert _body(store, "t/k") == b"".join(b"%03d" % n * 5000 for n in range(1, 41))
    assert (tmp_path / "root/t/k").stat().st_ino == inode


def _out_of_order(store: TreeStore, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[Part]]:
    """An upload whose parts must be joined: ``122333``."""
    monkeypatch.setattr(tree, "TURN_SECONDS", 0.0)
    upload, _ = _pending(store, "t/k")
    sent = [store.put_part("t/k", upload, n, memoryview(b"%d" % n * n)) for n in (3, 1, 2)]
    return upload, sorted(sent, key=lambda part: part.number)


@pytest.mark.parametrize("other_dies", [True, False])
def test_two_processes_that_join_parts_publish_the_same_bytes(
    store: TreeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_dies: bool
) -> None:
    """The other has joined them, and completed or died, while this one was reading the parts."""
    upload, parts = _out_of_order(store, monkeypatch)
    named, acted = tree._named, list[str]()

    def dies(target: str) -> bool:
        once = other_dies and acted == ["began"]
        acted.extend(["died"] * once)
        return once

    def read(*given: Any) -> Any:
        if not acted:
            acted.append("began")
            with suppress(Unanswered):
                _other(tmp_path).complete_upload("t/k", upload, parts)
        return named(*given)

    monkeypatch.setattr(tree, "_named", read)
    _dying_move(monkeypatch, dies)
    with nullcontext() if other_dies else pytest.raises(mc.NotFound):
        store.complete_upload("t/k", upload, parts)
    assert _body(store, "t/k") == b"122333"


def test_a_part_whose_bytes_are_gone_is_not_stored(store: TreeStore, tmp_path: Path) -> None:
    """After a power cut a file may be shorter than its mark says: the part is lost, and told so."""
    upload, parts = _pending(store, "t/k", b"bytes")
    os.truncate(_waiting(tmp_path)[0], 0)
    assert store.list_parts("t/k", upload) == ()
    raises(InvalidRequest, store.complete_upload, "t/k", upload, parts)


# Versions -----------------------------------------------------------------------------------------


def _used_again(other: TreeStore, etag: str) -> None:
    other.delete_one(RECORD, if_match=etag)
    other.put(RECORD, b"other", if_none_match=True)


ACTS: dict[str, Callable[[TreeStore, str], object]] = {
    "swapped": lambda other, etag: other.put(RECORD, b"other", if_match=etag),
    "deleted": lambda other, etag: other.delete_one(RECORD, if_match=etag),
    "used again": _used_again,
    "replaced": lambda other, etag: other.put(RECORD, b"other"),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("verb", ["put", "delete"])
def test_a_paused_swap_wins_nothing(
    store: TreeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str, verb: str
) -> None:
    """What another process did between the look and the swap stays, and the swap is refused."""
    etag = store.put(RECORD, b"first", if_none_match=True).etag
    other, move, acted = _other(tmp_path), disk.move, list[bool]()

    def paused(source: str, target: str, *, exclusive: bool) -> None:
        if ".~" in target and not acted:
            acted.append(True)
            ACTS[act](other, etag)
        move(source, target, exclusive=exclusive)

    with monkeypatch.context() as patched, pytest.raises((mc.NotFound, PreconditionFailed)):
        patched.setattr(disk, "move", paused)
        if verb == "put":
            store.put(RECORD, b"mine", if_match=etag)
        else:
            store.delete_one(RECORD, if_match=etag)
    found = [(one.size, _body(other, RECORD)) for one in objects(other, "")]
    assert found == ([] if act == "deleted" else [(5, b"other")])


def test_a_record_that_is_being_deleted_is_gone(
    store: TreeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who deletes it has died after its first step: the next one who looks goes on."""
    etag = store.put(RECORD, b"first", if_none_match=True).etag
    monkeypatch.delattr(TreeStore, "_remove")
    raises(AttributeError, store.delete_one, RECORD, if_match=etag)
    monkeypatch.undo()
    other = _other(tmp_path)
    raises(mc.NotFound, other.head, RECORD)
    other.put(RECORD, b"other", if_none_match=True)
    assert _body(other, RECORD) == b"other"


def test_a_delete_takes_no_record_that_came_after_it(
    store: TreeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has finished the deletion, and made a new record of that name."""
    etag = store.put(RECORD, b"first", if_none_match=True).etag
    other, visible = _other(tmp_path), store._visible

    def paused(path: str) -> None:
        visible(path)
        other.put(RECORD, b"other", if_none_match=True)

    monkeypatch.setattr(store, "_visible", paused)
    store.delete_one(RECORD, if_match=etag)
    assert _body(other, RECORD) == b"other"


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EOPNOTSUPP, errno.EIO, 0])
def test_a_part_is_copied_where_the_kernel_does_not(
    store: TreeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Between file systems, and on systems without the call (0), also from the middle on; a disk
    that fails is an error."""
    (tmp_path / "whole").write_bytes(b"0123456789")
    copy = os.copy_file_range

    def half(source: int, target: int, count: int, *at: int) -> int:
        monkeypatch.setattr(os, "copy_file_range", refused)
        return copy(source, target, 3, *at)

    def refused(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    if code:
        monkeypatch.setattr(os, "copy_file_range", half)
    else:
        monkeypatch.delattr(os, "copy_file_range")
    upload = store.create_upload("t/k", attributes=PLAIN).upload_id
    put = partial(store.put_part, "t/k", upload, 1, FileSlice(str(tmp_path / "whole"), 1, 8))
    if code == errno.EIO:
        raises(Unanswered, put)
        return
    store.complete_upload("t/k", upload, [put()])
    assert _body(store, "t/k") == b"12345678"


# What lasts ---------------------------------------------------------------------------------------


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced, in order, and what is renamed: ``> target``."""
    told: list[str] = []
    rename = disk.rename_by

    def sync(path: str, *, whole: bool = False) -> None:
        told.append("all" if whole else path)

    def renamed(flag: int, source: str, target: str) -> bool:
        told.append(f"> {target}")
        return rename(flag, source, target)

    monkeypatch.setattr(disk, "sync", sync)
    monkeypatch.setattr(disk, "rename_by", renamed)
    return told


def test_parts_last_before_the_set_that_names_them_is_there(
    store: TreeStore, tmp_path: Path, synced: list[str]
) -> None:
    """So do the names in their directory. The put's own name lasts when it answers."""
    _pending(store, "t/k", b"one", b"two")
    assert synced == [str(tmp_path)]  # where the root was made
    store.put("t/__magic_job-1/_a.pendingset", b"set", if_none_match=True)
    (made,) = [at for at, what in enumerate(synced) if what.startswith(">")]
    files = [str(path) for path in _waiting(tmp_path)]
    assert len(files) == 2
    assert {*files, str(tmp_path / "root" / UPLOADS)} <= set(synced[:made])
    assert str(tmp_path / "root/t/__magic_job-1") in synced[made:]


@pytest.mark.parametrize(("release", "whole"), [("6.1.0-9", True), ("5.7.19", False)])
def test_many_files_are_synced_by_one_call_that_tells_errors(
    store: TreeStore, synced: list[str], monkeypatch: pytest.MonkeyPatch, release: str, whole: bool
) -> None:
    """``syncfs`` tells none before Linux 5.8: there each file is synced."""
    system = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*system[:2], release, *system[3:])))
    for number in range(40):
        _pending(store, f"t/{number}", b"x")
    store.put(RECORD, b"", if_none_match=True)
    assert ("all" in synced) == whole
    assert (len(synced) < 10) == whole


def _failing_sync(monkeypatch: pytest.MonkeyPatch, end: str, error: OSError) -> None:
    """Let no file be synced whose path ends so."""
    sync = disk.sync

    def fails(path: str, **how: Any) -> None:
        if path.endswith(end):
            raise error
        sync(path, **how)

    monkeypatch.setattr(disk, "sync", fails)


def test_what_could_not_be_synced_is_lost_for_good(
    store: TreeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second sync would succeed without the bytes: each put fails until the upload is aborted."""
    upload, _ = _pending(store, "t/k", b"one")
    with monkeypatch.context() as broken:
        _failing_sync(broken, upload, OSError(errno.EIO, "the disk is broken"))
        raises(Unanswered, store.put, RECORD, b"", if_none_match=True)
    raises(Unanswered, store.put, RECORD, b"", if_none_match=True, match="broken")
    assert list(objects(store, "")) == []
    store.abort_upload("t/k", upload)
    store.put(RECORD, b"", if_none_match=True)


def test_a_name_that_may_not_last_is_no_refusal(
    store: TreeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The put is visible already: the answer is Unanswered, whatever the system said."""
    _failing_sync(monkeypatch, "__magic_job-1", PermissionError(errno.EACCES, "no"))
    raises(Unanswered, store.put, RECORD, b"x", if_none_match=True)
    assert _body(store, RECORD) == b"x"


# What is refused ----------------------------------------------------------------------------------


def _linked(tmp_path: Path, at: str, to: str = "outside") -> Path:
    """Make a path of the root a link; gives the directory behind it."""
    (tmp_path / "outside").mkdir(exist_ok=True)
    (tmp_path / "root" / at).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "root" / at).symlink_to(tmp_path / to)
    return tmp_path / "outside"


def test_a_link_is_never_followed(store: TreeStore, tmp_path: Path) -> None:
    """Neither a directory on the way nor the file itself; listings do not show what is behind."""
    outside = _linked(tmp_path, "t/link")
    (outside / "k").write_bytes(b"theirs")
    _linked(tmp_path, "t/k", "outside/k")
    _refused(*_writes(store, "t/link/new"), lambda: _body(store, "t/k"), match="is a link")
    raises(mc.NotFound, store.head, "t/link/k")
    store.delete_one("t/link/k")
    assert [*objects(store, ""), *objects(store, "t/link/")] == []
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"k": b"theirs"}


def test_what_waits_lies_in_the_root(store: TreeStore, tmp_path: Path) -> None:
    """It is refused where its directory is a link, which could lead to another file system."""
    outside = _linked(tmp_path, UPLOADS)
    _refused(lambda: store.put("t/k", b"x"), match="elsewhere")
    assert os.listdir(outside) == []


def test_what_is_mounted_below_is_refused_before_bytes_are_sent(
    store: TreeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bind mount too, which has the device of what it shows."""
    (tmp_path / "root/t/bind").mkdir(parents=True)
    of = disk.mount_of
    monkeypatch.setattr(disk, "mount_of", lambda path: f"{of(path)}{path.endswith('bind')}")
    refusal = _refused(
        lambda: store.create_upload("t/bind/p=1/k", attributes=PLAIN), match="mounted"
    )
    assert refusal.code == "EXDEV"
    store.create_upload("t/other/k", attributes=PLAIN)


@pytest.mark.parametrize("missing", [True, False])
def test_a_file_system_without_attributes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: bool
) -> None:
    """At the start of a job, by what to do; and nothing is left. On a system other than Linux
    Python has no such calls, nor others that a disk needs."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    if missing:
        for name in ("setxattr", "getxattr", "pwrite", "copy_file_range"):
            monkeypatch.delattr(os, name)
    else:
        monkeypatch.setattr(os, "setxattr", refuse)
    told = raises(NotSupported, mc.start, (tmp_path / "t").as_uri())
    assert ("memory_store()" if missing else "ext4") in told.hint
    assert list(tmp_path.rglob("_*.json*")) == []


@pytest.mark.parametrize(("there", "wanted"), [("t/a", "t/a/b"), ("t/a/b", "t/a")])
def test_a_file_and_a_directory_of_one_name(store: TreeStore, there: str, wanted: str) -> None:
    """By Create; by Complete, if the other came between: the upload stays open."""
    upload, parts = _pending(store, wanted, b"x")
    store.put(there, b"there")
    assert _refused(lambda: store.complete_upload(wanted, upload, parts)).code == "KeyIsNoPath"
    _refused(*_writes(store, wanted))
    assert [one.upload_id for one in uploads(store, "")] == [upload]
    assert _body(store, there) == b"there"


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "a/./b", "../a", "a\0b", "x" * 256, "é" * 128, f"a/{UPLOADS}/b"]
)
def test_a_key_that_no_tree_can_hold_is_refused(store: TreeStore, key: str) -> None:
    """By every verb that would make it; to delete it is fine, as it is not there."""
    assert _refused(*_writes(store, key), lambda: _body(store, key)).status == 400
    store.delete_one(key)


def test_keys_that_cannot_be_held_together_are_told(store: TreeStore, tmp_path: Path) -> None:
    """Before anything is visible: a file below a file, what is there, and what no path has."""
    (tmp_path / "root/there").mkdir(parents=True)
    (tmp_path / "root/file").write_bytes(b"")
    keys = ["a", "a/b", "c//d", "e/../f", "g" * 256, "there", "file/x", "fine/1", "fine/2"]
    told = {line.partition(":")[0] for line in store.not_held(lambda: keys)}
    assert told == {"a", "c//d", "e/../f", "g" * 256, "there", "file/x"}


def test_names_that_differ_by_case_alone_are_told_where_they_are_one(
    store: TreeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that folds cases is known by the name of the store's own directory."""
    keys = ["t/A", "t/b", "t/a"]
    assert list(store.not_held(lambda: keys)) == []
    (tmp_path / "root" / UPLOADS.swapcase()).mkdir(parents=True, exist_ok=True)
    (told,) = store.not_held(lambda: keys)
    assert told.startswith("t/a: another file has this name")


@pytest.mark.parametrize(
    ("options", "refused"),
    [("rw,vers=4.2", True), ("rw,lookupcache=none", False), ("rw,lookupcache=pos", False)],
)
def test_modes_that_look_are_refused_on_a_mount_that_remembers_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, refused: bool
) -> None:
    """NFS, unless it is mounted so that each look asks the server; `append` looks at nothing."""
    monkeypatch.setattr(disk, "mount_options", lambda path: ("nfs4", set(options.split(","))))
    store = TreeStore(tmp_path, "bucket")
    assert store.refusal("manifest", "append") == ""
    assert ("lookupcache" in store.refusal("manifest", "replace")) == refused


def test_what_a_file_system_lacks_is_refused(store: TreeStore) -> None:
    """`magic` without attributes, at the start; of a local file all attributes but metadata."""
    with pytest.raises(mc.OptionError, match="no attributes"):
        mc.start("memory://bucket/table", committer="magic")
    of_type = Attributes(content_type="text/csv")
    _refused(lambda: store.create_upload("t/k", attributes=of_type), match="no such attributes")


def test_a_name_that_is_no_text_is_refused(store: TreeStore, tmp_path: Path) -> None:
    """A listing that left it out would say that there is no data; that of the jobs beside it is
    whole."""
    (tmp_path / "root/t").mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(tmp_path / "root/t") + b"/\xff.csv")).write_bytes(b"x")
    _refused(lambda: list(objects(store, "t/")), match="UTF-8")
    store.put("t/__magic_job-1/_job.json", b"1")
    assert [info.key for info in objects(store, "t/__magic_job-")] == ["t/__magic_job-1/_job.json"]


# What dead processes leave ------------------------------------------------------------------------


def test_what_a_dead_process_left_goes_after_a_day(store: TreeStore, tmp_path: Path) -> None:
    """What waits without an upload, and later versions of what was deleted; not open uploads."""
    upload, _ = _pending(store, "t/k", b"one", b"two")
    store.put(RECORD, b"first", if_none_match=True)
    waiting = tmp_path / "root" / UPLOADS
    old = [waiting / name for name in ("_new-1", f"_{'0' * 32}", f"_{'1' * 32}.parts")]
    old.append(tmp_path / "root/t/__magic_job-1/_gone.json.~1-2-3.2")
    for path in old:
        path.write_bytes(b"left")
    for day in (0, 1):
        if day:
            for path in (*old, *_waiting(tmp_path)):
                os.utime(path, (0, 0))
        assert {one.upload_id for one in uploads(store, "")} == {upload}
        assert [one.key for one in objects(store, "t/__magic")] == [RECORD]
        assert {path.exists() for path in old} == {not day}
    assert len(store.list_parts("t/k", upload)) == 2


@pytest.mark.parametrize("look", ["list", "complete", "abort"])
def test_a_visible_upload_has_ended(store: TreeStore, tmp_path: Path, look: str) -> None:
    """Death between link and unlink leaves two names: whoever looks ends it, the object stays."""
    upload, parts = _pending(store, "t/k", b"one")
    (tmp_path / "root/t").mkdir()
    os.link(_waiting(tmp_path)[0], tmp_path / "root/t/k")
    if look == "list":
        assert list(uploads(store, "")) == []
    elif look == "abort":
        store.abort_upload("t/k", upload)
    else:
        with pytest.raises(mc.NotFound) as caught:
            store.complete_upload("t/k", upload, parts, if_none_match=True)
        assert caught.value.code == "NoSuchUpload"
    assert _waiting(tmp_path) == []
    assert _body(store, "t/k") == b"one"


def test_marks_of_others_are_not_believed(store: TreeStore, tmp_path: Path) -> None:
    """What nobody of us has written is no part, no metadata and no upload."""
    upload, _ = _pending(store, "t/k", b"one")
    path = _waiting(tmp_path)[0]
    for row in ("x", [1, 2], [1, "e", -3, None, 0], [1, "e", 3, "x", 0]):
        os.setxattr(path, "user.magic-committer", orjson.dumps({"k": "t/k", "p": row}))
        assert store.list_parts("t/k", upload) == ()
    forged = {"k": "t/k", "t": "x", "m": {"a": 5, "b": "1"}}
    os.setxattr(path, "user.magic-committer", orjson.dumps(forged))
    (shown,) = uploads(store, "t/")
    assert (shown.initiated, shown.metadata) == (None, {"b": "1"})
    (tmp_path / "root/other").write_bytes(b"x")
    for mark in (b"no JSON", b"[]", b'{"m": 1}', b'{"m": {"a": 1}}'):
        os.setxattr(tmp_path / "root/other", "user.magic-committer", mark)
        assert store.head("other").metadata == {}


def test_a_directory_that_a_delete_leaves_empty_goes(store: TreeStore, tmp_path: Path) -> None:
    """With those above it, and what waited; the root stays, and so does what is not empty."""
    for key in ("t/p=1/q=1/a", "t/p=1/b", RECORD):
        store.put(key, b"x")
    store.delete(["t/p=1/q=1/a", RECORD])
    assert sorted(os.listdir(tmp_path / "root/t")) == ["p=1"]
    assert sorted(os.listdir(tmp_path / "root/t/p=1")) == ["b"]
    store.delete_one("t/p=1/b")
    assert os.listdir(tmp_path / "root") == []


# Files that wait in a job's directory -------------------------------------------------------------

TASK = f"_temporary/manifest_{'a' * 32}/00/tasks/a0"


def _file(root: Path, name: str, body: bytes = b"1") -> tuple[str, list[Part], Path]:
    """A file that waits: the id of its upload, its parts, and where it is."""
    path = root / TASK / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    (part,) = TreeStore(root, "bucket").list_parts(name, waiting_id(f"{TASK}/{name}"))
    return waiting_id(f"{TASK}/{name}", part.etag.strip('"')), [part], path


def test_a_file_that_was_changed_is_another_upload(tmp_path: Path) -> None:
    """Its old id completes and aborts nothing."""
    store = TreeStore(tmp_path, "bucket")
    upload, parts, path = _file(tmp_path, "a")
    path.write_bytes(b"2")
    raises(mc.NotFound, store.complete_upload, "a", upload, parts)
    store.abort_upload("a", upload)
    assert path.read_bytes() == b"2"
    (one,) = uploads(store, "")
    store.abort_upload("a", one.upload_id)
    assert not path.exists()


def test_a_file_whose_etag_nobody_told_is_known_by_its_size(tmp_path: Path) -> None:
    """Hadoop's manifests of a local disk name none."""
    store = TreeStore(tmp_path, "bucket")
    _file(tmp_path, "a")
    upload = waiting_id(f"{TASK}/a")
    raises(mc.NotFound, store.complete_upload, "a", upload, [Part(1, "", 2)])
    store.complete_upload("a", upload, [Part(1, "", 1)])
    assert (tmp_path / "a").read_bytes() == b"1"


@pytest.mark.parametrize(
    "path",
    ["secret", "_temporary/secret", f"{TASK}/../../secret", "__magic_job-x/secret",
     f"{TASK}/b/secret"],
)  # fmt: skip
def test_an_id_names_a_file_of_a_task_and_its_key_only(tmp_path: Path, path: str) -> None:
    """A forged set moves no other file."""
    store = TreeStore(tmp_path, "bucket")
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_bytes(b"secret")
    for key in ("k", "secret"):
        raises(mc.NotFound, store.complete_upload, key, waiting_id(path), [Part(1, "", 6)])
    assert (tmp_path / path).read_bytes() == b"secret"


@pytest.mark.parametrize("link", ["_temporary", TASK])
def test_a_waiting_file_behind_a_link_is_none(tmp_path: Path, link: str) -> None:
    """Nor is it listed or cleared."""
    root = tmp_path / "root"
    store = TreeStore(root, "bucket")
    upload, parts, path = _file(root, "a")
    (root / link).rename(tmp_path / "elsewhere")
    (root / link).symlink_to(tmp_path / "elsewhere")
    assert list(uploads(store, "")) == []
    raises(mc.NotFound, store.complete_upload, "a", upload, parts)
    with suppress(InvalidRequest):
        store.clear(f"{TASK}/")
    assert (tmp_path / "elsewhere").joinpath(*path.relative_to(root / link).parts).exists()


def test_a_job_s_directory_is_cleared_whole(tmp_path: Path) -> None:
    """Links, pipes and empty directories, not what links lead to; and no other directory."""
    store = TreeStore(tmp_path, "bucket")
    _, _, path = _file(tmp_path, "a")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x").write_bytes(b"1")
    (path.parent / "link").symlink_to(tmp_path / "data")
    os.mkfifo(path.parent / "fifo")
    (path.parent / "empty").mkdir()
    _refused(*(partial(store.clear, other) for other in ("data/", "", "_temporary/")))
    assert store.clear(f"{TASK}/") == 3
    assert not (tmp_path / "_temporary").exists()
    assert (tmp_path / "data/x").exists()


def test_what_waits_finds_its_directory_without_attributes(tmp_path: Path) -> None:
    """Every end removes the empty directory of what waits, also for another process."""
    here, there = (
        TreeStore(HdfsTree(stand_ins.Hdfs(), str(tmp_path), url), url)
        for url in ("hdfs://nn/t/",) * 2
    )
    here.abort_upload("a", _pending(here, "a")[0])
    mine, theirs = _pending(here, "b")[0], _pending(there, "c")[0]
    here.abort_upload("b", mine)
    there.abort_upload("c", theirs)
    assert _pending(here, "d")[0]
