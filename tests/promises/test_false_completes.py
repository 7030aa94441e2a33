"""I2, I10 where a 200 to Complete may be false (versitygw), or cost the parts (MinIO)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.commit import probe
from magic_committer.errors import InvalidRequest, NotFound, Unanswered
from magic_committer.protocol.record import TaskCommit
from magic_committer.runtime.wiring import register_store, unregister_store
from magic_committer.stores.base import Part, Written
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import PatientClock
from tests.promises.hands import DEST, At, Crash, committed_task, raises, refusing, visible

FILES = {"a.csv": b"1", "b.csv": b"2"}
LOST = r"1 file is lost .*: t/b\.csv"


class Gateway(MemoryStore):
    """A server that was killed inside Complete.

    Attributes:
        renamed: uploads that it left under another name: Complete of them is answered with 200, and
            nothing else knows of them.
        emptied: uploads that it left without their parts.
        believes: a Complete of any upload that is not open is answered with 200 if there is an
            object at its key.
        attempts: what the answer to Complete says of how often it was sent.
    """

    def __init__(self, clock: PatientClock) -> None:
        super().__init__(clock=clock.now)
        self.renamed: set[str] = set()
        self.emptied: set[str] = set()
        self.believes = False
        self.attempts = 1

    def complete_upload(
        self, key: str, upload_id: str, parts: Sequence[Part], **terms: Any
    ) -> Written:
        if upload_id in self.emptied:
            raise InvalidRequest("complete_upload: InvalidPart", status=400, code="InvalidPart")
        is_open = any(one.upload_id == upload_id for one in self.open_uploads(key))
        if upload_id in self.renamed or (self.believes and not is_open and key in self.keys()):
            return Written('"as-if-1"', attempts=self.attempts)
        return super().complete_upload(key, upload_id, parts, **terms)

    def list_parts(self, key: str, upload_id: str) -> Sequence[Part]:
        if upload_id in self.renamed:
            raise NotFound("list_parts: NoSuchUpload", status=404, code="NoSuchUpload")
        return () if upload_id in self.emptied else super().list_parts(key, upload_id)

    def of(self, key: str) -> str:
        (upload,) = self.open_uploads(key)
        return upload.upload_id


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    clock = PatientClock()
    store = Gateway(clock)
    register_store(store, clock)
    yield store
    unregister_store(store)


def ready(**terms: Any) -> tuple[mc.Job, TaskCommit]:
    """A job with one committed task of two files."""
    job = mc.start(DEST, accept="results", track="memory", **terms)
    return job, committed_task(job, "1", FILES)


def killed_in_complete(store: Gateway) -> mc.Job:
    """A job whose driver and server were killed in the Complete of ``b.csv``."""
    job, result = ready()

    def dies() -> None:
        store.renamed.add(store.of("t/b.csv"))
        raise Crash

    store.before = lambda request: dies() if request.verb == "complete_upload" else None
    raises(Crash, job.commit, [result])
    store.before = None
    return job


def test_a_recovery_does_not_believe_a_200(gateway: Gateway) -> None:
    """A stuck upload is named as lost, until the operator has renamed it back."""
    job = killed_in_complete(gateway)
    for _ in range(2):
        caught = raises(mc.CommitIncomplete, mc.recover, DEST, job.id, match=LOST)
        assert caught.unresolved == ("t/b.csv",)
        assert "t/_SUCCESS" not in gateway.keys()
    assert mc.recover(DEST, job.id, dry_run=True).unresolved == ()  # the listing shows it open
    shows, gateway.list_uploads = gateway.list_uploads, lambda prefix: iter(())  # type: ignore[method-assign]
    assert mc.recover(DEST, job.id, dry_run=True).unresolved == ("t/b.csv",)
    gateway.list_uploads = shows  # type: ignore[method-assign]
    gateway.renamed.clear()
    assert mc.recover(DEST, job.id).outcome == "committed"
    assert visible(gateway) == {"t/a.csv": b"1", "t/b.csv": b"2"}


def test_an_upload_that_is_open_behind_a_200_is_unfinished(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts are there: it is not lost."""
    job = killed_in_complete(gateway)
    monkeypatch.setattr(Gateway, "list_parts", MemoryStore.list_parts)
    raised = raises(mc.CommitIncomplete, mc.recover, DEST, job.id)
    assert (raised.unfinished, raised.unresolved) == (("t/b.csv",), ())


def test_a_second_commit_does_not_believe_a_200(gateway: Gateway) -> None:
    """The server may have been killed in between."""
    job, result = ready()
    refused = InvalidRequest("complete_upload: no", status=400, code="Slow")
    with refusing(gateway, "complete_upload t/b.csv", refused), pytest.raises(mc.CommitIncomplete):
        job.commit([result])
    gateway.renamed.add(gateway.of("t/b.csv"))
    raises(mc.CommitIncomplete, job.commit, [result], match=LOST)
    gateway.renamed.clear()
    assert job.commit([result]).outcome == "committed"


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_complete_that_was_sent_twice_is_not_believed(gateway: Gateway, attempts: int) -> None:
    """The server may have been killed in the first sending; one that was sent once is believed."""
    job, result = ready()
    gateway.attempts = attempts
    gateway.after = lambda request, reply: (
        gateway.renamed.add(gateway.of("t/b.csv")) if request.verb == "list_uploads" else None
    )
    if attempts == 1:
        assert job.commit([result]).outcome == "committed"
        assert "t/b.csv" not in visible(gateway)
        return
    raises(mc.CommitIncomplete, job.commit, [result], match=LOST)


@pytest.mark.parametrize("learnt", [True, False])
def test_where_dead_uploads_are_believed_all_are_looked_at(gateway: Gateway, learnt: bool) -> None:
    """I2: a 200 for an aborted upload at an older object's key: it is unresolved."""
    gateway.believes = True
    gateway.put_object("t/b.csv", b"older")
    job, result = ready()
    if not learnt:
        probe._known.clear()

    At(gateway, "put */_plan-*", lambda: gateway.drop_upload(gateway.of("t/b.csv")))
    raises(mc.CommitIncomplete, job.commit, [result], match=r"unresolved .*: t/b\.csv")
    assert probe.known(gateway.identity).true_complete is False
    assert visible(gateway)["t/b.csv"] == b"older"


def test_what_cannot_be_asked_before_the_decision_decides_nothing(gateway: Gateway) -> None:
    """The question fails: the job runs on, and the next commit asks again."""
    job, result = ready()
    probe._known.clear()
    with refusing(gateway, "create_upload", Unanswered), pytest.raises(Unanswered):
        job.commit([result])
    assert job.state == "running"
    assert job.commit([result]).outcome == "committed"
    assert visible(gateway) == {"t/a.csv": b"1", "t/b.csv": b"2"}


@pytest.mark.parametrize("way", ["accept", "revert"])
def test_an_upload_without_parts_is_lost_until_it_is_said(gateway: Gateway, way: str) -> None:
    """Nobody can complete it: the rest is published on the operator's word, or nothing stays."""
    job = killed_in_complete(gateway)
    gateway.emptied, gateway.renamed = gateway.renamed, set()  # the Complete cost its parts
    gateway.list_uploads = lambda prefix: iter(())  # type: ignore[method-assign]
    assert mc.recover(DEST, job.id, dry_run=True).unresolved == ("t/b.csv",)
    raises(mc.CommitIncomplete, mc.recover, DEST, job.id, match=LOST)
    if way == "accept":
        assert mc.recover(DEST, job.id, accept=["t/b.csv"]).outcome == "committed"
        assert visible(gateway) == {"t/a.csv": b"1"}
    else:
        gateway.emptied.clear()  # only their parts are gone; an abort finds them gone, too
        assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
        assert visible(gateway) == {}
    assert gateway.open_uploads() == ()
