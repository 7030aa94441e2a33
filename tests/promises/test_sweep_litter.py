"""I4, I6: what the sweep reads from leftovers: whose they are, what they name, and in which order
they go."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from msgspec.structs import replace

import magic_committer as mc
from magic_committer.commit import sweep
from magic_committer.errors import NotFound, PermissionDenied, StoreError, Unanswered
from magic_committer.hadoop.formats import decode_pendingset, encode_pendingset
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.stores.memory import MemoryStore, Request
from tests.costly import costly_store
from tests.promises.hands import (
    DEST,
    committed_task,
    control,
    job_of,
    killed,
    raising,
    refusing,
    visible,
)
from tests.promises.machine import matching


def leave_set(
    s3: MemoryStore, job: mc.Job, result: mc.TaskCommit, uuid: str, **changes: Any
) -> None:
    """Put a changed copy of a pendingset beside it."""
    pendingset = decode_pendingset(s3.body(result.key), result.key)
    changed = replace(pendingset, commits=(replace(pendingset.commits[0], **changes),))
    key = result.key.replace(".pendingset", "-copy.pendingset")
    s3.put(key, encode_pendingset(changed, "objects", source=key), metadata={JOB_METADATA: uuid})


def open_ids(s3: MemoryStore) -> list[str]:
    return [upload.upload_id for upload in s3.open_uploads()]


def test_a_leftover_that_names_a_key_outside_names_nothing(s3: MemoryStore) -> None:
    """I6: a set of ours names an upload outside the destination: that stays, and is told."""
    job = mc.start(DEST)
    result = committed_task(job, "1", {"a.csv": b"1"})
    outside = s3.start_upload("elsewhere/b.csv")
    leave_set(s3, job, result, job.uuid, destination_key="elsewhere/b.csv", upload_id=outside)
    report = job.abort()
    assert open_ids(s3) == [outside]
    assert "lies outside the destination" in report.warnings[0]


def test_a_leftover_of_another_run_names_nothing(s3: MemoryStore) -> None:
    """I6: what another run of a given id left is not ours: the uploads that it names stay."""
    job = mc.start(DEST, job_id="given")
    result = committed_task(job, "1", {"a.csv": b"1"})
    theirs = s3.start_upload("t/b.csv")
    leave_set(s3, job, result, "f" * 32, destination_key="t/b.csv", upload_id=theirs)
    job.abort()
    assert open_ids(s3) == [theirs]


def test_a_leftover_pending_of_a_committed_file_costs_no_object(s3: MemoryStore) -> None:
    """I2: it names an upload of the plan: there are stores where an abort takes the object."""
    job = mc.start(DEST)
    sent: list[str] = []
    s3.after = lambda request, _: sent.append(request.verb)
    s3.before = raising(lambda r: any(key.endswith(".pending") for key in r.keys), Unanswered)
    committed_task(job, "1", {"a.csv": b"1"})
    assert matching(s3, "*.pending")
    job.commit()
    assert "abort_upload" not in sent
    assert visible(s3) == {"t/a.csv": b"1"}


def test_the_plan_goes_before_the_sets_that_it_names(s3: MemoryStore) -> None:
    """I5: while a plan is there all its pendingsets are: the plan is deleted first."""
    job = job_of({"a.csv": b"1"})
    gone: list[str] = []
    s3.before = lambda request: gone.extend(request.keys)
    job.commit()
    kinds = ["plan" if "/_plan-" in key else "set" for key in gone if not key.endswith(".pending")]
    assert kinds[0] == "plan"
    assert "set" in kinds


def test_as_many_uploads_as_a_report_names_are_told_of_no_more(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each upload that is left is named in a warning, and none is said to be left beside them."""
    monkeypatch.setattr(sweep, "NAMED_MAX", 2)
    job = job_of({"a.csv": b"a", "b.csv": b"b"})

    with refusing(s3, "abort_upload", PermissionDenied):
        warnings = job.abort().warnings
    told = [("t/a.csv" in one, "t/b.csv" in one) for one in warnings]
    assert told == [(True, False), (False, True)]


def test_an_abort_of_a_running_job_looks_for_no_object(s3: MemoryStore) -> None:
    """Nobody can have completed its uploads: they are proved gone, and nothing more is asked."""
    job = job_of({"a.csv": b"a"})
    looked: list[str] = []
    s3.before = lambda r: looked.append(r.key) if r.verb == "head" else None
    job.abort()
    s3.before = None
    assert "t/a.csv" not in looked
    assert s3.open_uploads() == ()


def test_an_upload_of_the_plan_that_is_listed_still_hides_no_other() -> None:
    """I4: a lagging listing shows what was completed, and behind it what is to be aborted."""
    with costly_store() as s3:
        job = job_of({"a.csv": b"a"})
        killed(job, "2", "z.csv", unique=True)
        s3.lags = True
        job.commit()
        assert s3.open_uploads() == ()
        assert visible(s3) == {"t/a.csv": b"a"}


UPLOADS = 40
FAILURES: dict[str, StoreError] = {
    "no answer": Unanswered("no answer"),
    "slow down": Unanswered("slow down", status=503, code="SlowDown"),
    "no bucket": NotFound("no such bucket", status=404, code="NoSuchBucket"),
    "an empty 404": NotFound("not found", status=404),
    "forbidden": PermissionDenied("not allowed", status=403, code="AccessDenied"),
}


def killed_tasks(s3: MemoryStore) -> mc.Job:
    """A job whose tasks were killed: only their names tell of their uploads."""
    job = mc.start(DEST)
    for number in range(UPLOADS):
        s3.start_upload(f"t/p={number % 4}/{number:02}-mcj{job.uuid}.csv")
    return job


@pytest.mark.parametrize("verb", ["abort_upload", "list_parts"])
@pytest.mark.parametrize("failure", FAILURES)
def test_what_fails_once_is_done_again(s3: MemoryStore, verb: str, failure: str) -> None:
    """Each upload is proved gone behind its last abort, and the report has nothing to warn of."""
    job = killed_tasks(s3)
    told: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    failed: set[str] = set()

    def fail(request: Request) -> None:
        third = request.key.split("-")[0][-1] in "0369"
        if request.verb == verb and third and request.key not in failed:
            failed.add(request.key)
            raise FAILURES[failure]

    def note(request: Request, answer: object) -> None:
        if request.verb in ("abort_upload", "list_parts"):
            told[request.key].append((request.verb, getattr(answer, "code", "")))

    s3.before, s3.after = fail, note
    report = job.abort()
    s3.before = s3.after = None
    assert (report.warnings, s3.open_uploads()) == ((), ())
    assert not control(s3)
    assert len(failed) == 16
    assert len(told) == UPLOADS
    for requests in told.values():
        assert requests[-2:] == [("abort_upload", ""), ("list_parts", "NoSuchUpload")]
