"""versitygw's 200 to Complete that is false: it is found out, and nobody is told "committed"."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.commit import complete, probe
from magic_committer.commit.ready import ReadyUpload
from magic_committer.errors import NotFound
from magic_committer.protocol.record import TaskCommit
from magic_committer.stores.base import Attributes, CompleteUpload, objects
from magic_committer.stores.s3 import S3Store
from tests.real_servers import versitygw

READY_SECONDS_MAX = 30.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the server of these tests keeps its objects; one directory is a bucket."""
    bucket = tmp_path / "objects" / "bucket"
    bucket.mkdir(parents=True)
    return bucket


@pytest.fixture
def store(folder: Path) -> Iterator[S3Store]:
    """A server of our own, whose files we may touch."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    keys = {
        "ROOT_ACCESS_KEY_ID": versitygw.ACCESS_KEY,
        "ROOT_SECRET_ACCESS_KEY": versitygw.SECRET_KEY,
    }
    server = subprocess.Popen(
        [versitygw.binary(), "--port", f"127.0.0.1:{port}", "--quiet", "--health", "/_health",
         "posix", folder.parent],
        env={**os.environ, **keys},
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            try:
                urllib.request.urlopen(f"{url}/_health", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield S3Store("bucket", versitygw.options(url))
    finally:
        server.kill()
        server.wait()


def ready(store: S3Store) -> tuple[mc.Job, TaskCommit]:
    """A job with one committed task of three files."""
    url = store.identity.removesuffix("/bucket")
    options = versitygw.options(url)
    job = mc.start("s3://bucket/t", accept="results", track="memory", s3=options)
    with job.task("1") as task:
        for name in "abc":
            with task.open(f"{name}.csv") as f:
                f.write(name.encode())
    assert task.result is not None
    return job, task.result


def files(store: S3Store) -> list[str]:
    """What a reader sees."""
    return [one.key for one in objects(store, "t/") if "__magic" not in one.key]


class _Killed(BaseException):
    """The driver is gone, and the server with it."""


def test_the_server_believes_a_dead_upload(store: S3Store) -> None:
    """What the rule rests on: 200 for an aborted upload over an object, and 404 without one. When
    it is mended, the looks can go."""
    made = store.create_upload("k", attributes=Attributes())
    part = store.put_part("k", made.upload_id, 1, memoryview(b"1"))
    store.abort_upload("k", made.upload_id)
    with pytest.raises(NotFound):
        store.complete_upload("k", made.upload_id, [part])
    store.put("k", b"older")
    store.complete_upload("k", made.upload_id, [part])
    assert store.get("k", max_bytes=10).body == b"older"


def test_a_file_that_a_killed_server_keeps_back_is_lost_until_it_is_repaired(
    store: S3Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Driver and server die inside a Complete: the upload is left under its other name. Recovery
    names it as lost, twice; renamed back, as docs/stores.md says, it is committed."""
    job, result = ready(store)
    real = complete.as_request

    def dies(upload: ReadyUpload, if_none_match: bool) -> CompleteUpload:
        if upload.key != "t/b.csv":
            return real(upload, if_none_match)
        digests = b"".join(bytes.fromhex(part.etag.strip('"')) for part in upload.parts)
        (there,) = folder.glob(f".sgwtmp/multipart/*/{upload.upload_id}")
        etag = f"{hashlib.md5(digests).hexdigest()}-{len(upload.parts)}"
        there.rename(f"{there}.{etag}.inprogress")
        raise _Killed

    monkeypatch.setattr(complete, "as_request", dies)
    with pytest.raises(_Killed):
        job.commit([result])
    monkeypatch.undo()
    way = versitygw.options(store.identity.removesuffix("/bucket"))
    for _ in range(2):
        with pytest.raises(mc.CommitIncomplete, match="1 file is lost") as caught:
            mc.recover("s3://bucket/t", job.id, s3=way)
        assert caught.value.unresolved == ("t/b.csv",)
    (left,) = folder.glob(".sgwtmp/multipart/*/*.inprogress")
    left.rename(left.with_name(left.name.partition(".")[0]))
    assert mc.recover("s3://bucket/t", job.id, s3=way).outcome == "committed"
    assert files(store) == ["t/_SUCCESS", "t/a.csv", "t/b.csv", "t/c.csv"]


def test_a_driver_looks_after_each_file_there(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload is aborted between the check and its Complete, and an older object is at its key:
    200, and the job is not called committed."""
    store.put("t/b.csv", b"older")
    job, result = ready(store)
    assert probe.known(store.identity).true_complete is False
    real = complete.as_request

    def aborted(upload: ReadyUpload, if_none_match: bool) -> CompleteUpload:
        if upload.key == "t/b.csv":
            store.abort_upload(upload.key, upload.upload_id)
        return real(upload, if_none_match)

    monkeypatch.setattr(complete, "as_request", aborted)
    with pytest.raises(mc.CommitIncomplete, match="another object is there") as caught:
        job.commit([result])
    assert caught.value.unresolved == ("t/b.csv",)
