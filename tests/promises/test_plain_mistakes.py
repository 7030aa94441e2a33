"""Plain mistakes get plain words, at once: no such bucket, nobody at the endpoint."""

from __future__ import annotations

import pytest

import magic_committer as mc
from magic_committer.errors import BucketNotFound, Unanswered
from magic_committer.options import Mode
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import DEST
from tests.servers import moto_options, moto_server


def refused(request: Request) -> None:
    """Nobody listens at the endpoint."""
    raise Unanswered("could not reach http://h: connection refused", sent=False, attempts=8)


def silent(request: Request) -> None:
    """The request was sent, and no answer came."""
    raise Unanswered("no answer", attempts=8)


@pytest.mark.parametrize("mode", ["append", "fail", "replace_partitions"])
def test_a_missing_bucket_is_told_at_once(s3: MemoryStore, mode: Mode) -> None:
    """NoSuchBucket ends ``start`` after one request, which says that nothing was started."""

    def absent(request: Request) -> None:
        raise BucketNotFound("there is no bucket 'bucket'", code="NoSuchBucket", status=404)

    s3.before = absent
    with pytest.raises(BucketNotFound, match=r"^job '.{32}' was not started: there is no bucket"):
        mc.start(DEST, mode=mode)
    assert sum(s3.requests.values()) == 1


def test_a_missing_bucket_is_never_an_absent_job(s3: MemoryStore) -> None:
    """Whoever asks for a job where there is no bucket is told of the bucket, not of the job."""
    mc.start(DEST, job_id="nightly")

    def absent(request: Request) -> None:
        raise BucketNotFound("there is no bucket 'bucket'", code="NoSuchBucket", status=404)

    s3.before = absent
    for ask in (
        lambda: mc.attach(DEST, "nightly"),
        lambda: mc.recover(DEST, "nightly"),
        lambda: mc.inspect(DEST),
    ):
        with pytest.raises(BucketNotFound):
            ask()


def test_a_first_request_that_was_never_sent_starts_nothing(s3: MemoryStore) -> None:
    """Connection refused at the first PUT: the store's own error, after the adapter's patience and
    no more, and not `OutcomeUnknown`."""
    s3.before = refused
    with pytest.raises(Unanswered, match=r"was not started: could not reach http://h") as caught:
        mc.start(DEST)
    assert not caught.value.sent
    assert dict(s3.requests) == {"put": 1}


def test_a_first_request_that_was_sent_is_looked_after(s3: MemoryStore) -> None:
    """No answer to a PUT that was sent: it may land, so the record is read back; and a later try
    that was never sent does not make it certain."""
    s3.before = lambda r: refused(r) if s3.requests["put"] > 1 or r.verb == "get" else silent(r)
    with pytest.raises(mc.OutcomeUnknown):
        mc.start(DEST)
    assert s3.requests["get"] >= 1


def test_the_same_on_a_real_way() -> None:
    """Over HTTP: a missing bucket, and nobody there, which is asked twice."""
    with moto_server() as url:
        way = moto_options(url)
        with pytest.raises(BucketNotFound, match=r"was not started.*aws s3 mb s3://nowhere"):
            mc.start("s3://nowhere/t", s3=way)
    with pytest.raises(Unanswered, match=rf"was not started.*could not reach {url}: ") as caught:
        mc.start("s3://nowhere/t", s3=way)
    assert (caught.value.sent, caught.value.attempts) == (False, 2)
