"""versitygw's 200 to Complete that is false: it is found out, and nobody is told "committed"."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.commit import probe, uploads
from magic_committer.commit.sets import ReadyUpload
from magic_committer.protocol.record import TaskCommit
from magic_committer.stores.base import CompleteUpload, objects
from magic_committer.stores.s3 import S3Store
from tests.real_servers.server import Server, options

pytestmark = pytest.mark.only("versitygw")


@pytest.fixture
def ready(url: str, bucket: str) -> tuple[mc.Job, TaskCommit]:
    """A job with one committed task of three files."""
    job = mc.start(f"s3://{bucket}/t", accept="results", track="memory", s3=options(url))
    with job.task("1") as task:
        for name in "abc":
            with task.open(f"{name}.csv") as f:
                f.write(name.encode())
    assert task.result is not None
    return job, task.result


class _Killed(BaseException):
    """The driver is gone, and the server with it."""


def test_a_file_that_a_killed_server_keeps_back_is_lost_until_it_is_repaired(
    server: Server, bucket: str, store: S3Store, ready: tuple[mc.Job, TaskCommit],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Driver and server die inside a Complete: the server gives the folder of the parts another
    name first, and makes the object then. Its own driver and a recovery name the file as lost, for
    ever; renamed back, as docs/stores.md says, it is committed."""
    job, result = ready
    real, folder = uploads.as_request, Path(server.folder, "objects", bucket)

    def dies(upload: ReadyUpload, if_none_match: bool) -> CompleteUpload:
        if upload.key != "t/b.csv":
            return real(upload, if_none_match)
        digests = b"".join(bytes.fromhex(part.etag.strip('"')) for part in upload.parts)
        (there,) = folder.glob(f".sgwtmp/multipart/*/{upload.upload_id}")
        etag = f"{hashlib.md5(digests).hexdigest()}-{len(upload.parts)}"
        there.rename(f"{there}.{etag}.inprogress")
        raise _Killed

    monkeypatch.setattr(uploads, "as_request", dies)
    with pytest.raises(_Killed):
        job.commit([result])
    monkeypatch.undo()
    with pytest.raises(mc.CommitIncomplete, match="1 file is lost"):
        job.commit([result])
    way = options(server.url)
    for _ in range(2):
        with pytest.raises(mc.CommitIncomplete, match="1 file is lost") as caught:
            mc.recover(f"s3://{bucket}/t", job.id, dead_after=0, s3=way)
        assert caught.value.unresolved == ("t/b.csv",)
    (left,) = folder.glob(".sgwtmp/multipart/*/*.inprogress")
    left.rename(left.with_name(left.name.partition(".")[0]))
    assert mc.recover(f"s3://{bucket}/t", job.id, s3=way).outcome == "committed"
    there = [one.key for one in objects(store, "t/") if "__magic" not in one.key]
    assert there == ["t/_SUCCESS", "t/a.csv", "t/b.csv", "t/c.csv"]


def test_a_driver_looks_after_each_file_there(
    store: S3Store, ready: tuple[mc.Job, TaskCommit], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload is aborted between the check and its Complete, and an older object is at its key:
    200, and the job is not called committed."""
    store.put("t/b.csv", b"older")
    job, result = ready
    assert probe.known(store.identity).true_complete is False
    real = uploads.as_request

    def aborted(upload: ReadyUpload, if_none_match: bool) -> CompleteUpload:
        if upload.key == "t/b.csv":
            store.abort_upload(upload.key, upload.upload_id)
        return real(upload, if_none_match)

    monkeypatch.setattr(uploads, "as_request", aborted)
    with pytest.raises(mc.CommitIncomplete, match="another object is there") as caught:
        job.commit([result])
    assert caught.value.unresolved == ("t/b.csv",)
