"""Jobs that no way led out of, on versitygw, where they were seen."""

from __future__ import annotations

import pytest

import magic_committer as mc
from magic_committer.commit import long_names, setup
from magic_committer.stores.base import objects, uploads
from magic_committer.stores.s3 import S3Store
from tests.real_servers import versitygw

LONG = "a" * 256

pytestmark = pytest.mark.only("versitygw")


def test_a_name_that_the_server_cannot_hold_is_refused_when_it_is_opened(
    url: str, bucket: str
) -> None:
    """Its parts would be taken, and its Complete answered with 500 for ever."""
    job = mc.start(f"s3://{bucket}/t", s3=versitygw.options(url))
    for name in (LONG, f"{LONG}/x.csv", "a" * 248):  # the last: its `.pending` is too long
        with pytest.raises(mc.PathError, match="cannot hold"):
            job.task("1").open(name, unique=False)
    job.abort()


def test_a_job_that_was_decided_with_such_a_name_can_be_undone(
    url: str, bucket: str, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older version did not ask. HEAD is called wrong there: a listing proves that nothing is
    left."""
    s3 = mc.S3Options(
        endpoint_url=url,
        region=versitygw.REGION,
        access_key=versitygw.ACCESS_KEY,
        secret_key=versitygw.SECRET_KEY,
        retry_attempts_max=2,
    )
    job = mc.start(f"s3://{bucket}/t", track="memory", s3=s3)
    with monkeypatch.context() as older:
        older.setattr(long_names, "ELEMENT_BYTES_MAX", 10_000)
        with job.task("1") as task:
            for name in ("short.csv", LONG):
                with task.open(name, unique=False) as f:
                    f.write(b"x")
        with pytest.raises(mc.CommitIncomplete):
            job.commit()
    assert mc.abort(f"s3://{bucket}/t", job.id, revert=True, s3=s3).outcome == "reverted"
    assert [one.key for one in objects(store, "")] == [f"t/__magic_job-{job.id}/job.json"]
    assert list(uploads(store, "")) == []


def test_a_job_whose_sets_have_lost_their_checksums_is_finished(
    url: str, bucket: str, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older version took ``etag_form="strings"`` with checksums, and the server wants each
    part's: they are taken from ListParts."""
    options = mc.Options(etag_form="strings")
    monkeypatch.setattr(setup, "refuse_lost_checksums", lambda *_: None)
    job = mc.start(f"s3://{bucket}/t", s3=versitygw.options(url), options=options)
    with job.task("1") as task, task.open("a.csv", unique=False) as f:
        f.write(b"x")
    job.commit()
    assert store.get("t/a.csv", max_bytes=10).body == b"x"
    assert list(uploads(store, "")) == []
