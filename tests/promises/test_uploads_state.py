"""I2, I3, I4, I10: what a store says of an upload is read in one way, and an abort is proved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, get_args

import pytest

import magic_committer as mc
from magic_committer.commit.sweep import NAMED_MAX
from magic_committer.errors import (
    InvalidRequest,
    NotSupported,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.hadoop.paths import unique_name
from magic_committer.options import Mode
from magic_committer.runtime.wiring import register_store, unregister_store
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.costly import costly_store
from tests.promises.hands import (
    DEST,
    At,
    Crash,
    committed_task,
    control,
    dies_at,
    job_of,
    killed,
    raises,
    refusing,
    visible,
)
from tests.promises.machine import HOUR, Machine, matching

DENIED = PermissionDenied("s3:… is not allowed", status=403)
ALL = {"t/a.csv": b"1", "t/b.csv": b"22"}


def denying(*verbs: str, key: str = "", error: StoreError = DENIED) -> Callable[[Request], None]:
    """A hook that refuses these verbs, for keys that end so."""

    def hook(request: Request) -> None:
        if request.verb in verbs and request.key.endswith(key):
            raise error

    return hook


def decided(s3: MemoryStore, *, mode: Mode = "append") -> mc.Job:
    job = job_of({"a.csv": b"1", "b.csv": b"22"}, job_id="j", mode=mode)
    with refusing(s3, "complete_upload", Crash), pytest.raises(Crash):
        job.commit()
    return job


@pytest.mark.parametrize("error", [DENIED, InvalidRequest("a key is needed", status=400)])
def test_an_upload_nobody_may_see_is_not_called_gone(s3: MemoryStore, error: StoreError) -> None:
    """I10: after the decision its file is unfinished; nobody is told to accept what is there."""
    job = decided(s3)
    s3.before = denying("complete_upload", "list_parts", error=error)
    for step in (lambda: mc.attach(DEST, "j").commit(), lambda: mc.recover(DEST, "j")):
        raised = raises(mc.CommitIncomplete, step)
        assert raised.unresolved == ()
        assert sorted(raised.unfinished) == ["t/a.csv", "t/b.csv"]
        assert "accept" not in raised.hint
    s3.before = denying("complete_upload", "list_parts", "list_uploads", error=error)
    with pytest.raises(mc.CommitIncomplete):  # the operator's word is for what is gone
        mc.recover(DEST, "j", accept=["t/a.csv", "t/b.csv"])
    s3.before = None
    assert mc.recover(DEST, job.id).outcome == "committed"
    assert visible(s3) == ALL
    assert s3.open_uploads() == ()


@pytest.mark.parametrize("verb", ["list_parts", "head"])
def test_an_upload_that_cannot_be_told_is_not_missing(s3: MemoryStore, verb: str) -> None:
    """I10: inspect says that it may not be looked at; nobody calls it unresolved."""
    decided(s3)
    for upload in s3.open_uploads():
        if verb == "head":  # it has ended; whether it was completed only its object tells
            s3.drop_upload(upload.upload_id)

    def hook(request: Request) -> None:
        if request.verb == "list_uploads":
            raise NotSupported("no such listing", status=501)
        denying(verb, key=".csv")(request)
        if verb == "head":  # else a listing of the key tells
            denying("list", key=".csv")(request)

    s3.before = hook
    (found,) = mc.inspect(DEST)
    assert (found.missing, found.missing_keys, found.visible) == (0, (), 0)
    assert "of 2 files nobody can tell" in found.problem
    assert mc.recover(DEST, "j", dry_run=True).unresolved == ()


def test_a_store_that_does_not_answer_is_no_finding(s3: MemoryStore) -> None:
    """I10: inspect tells that the uploads cannot be looked at, and counts none as missing."""
    decided(s3)
    for upload in s3.open_uploads():
        s3.drop_upload(upload.upload_id)
    s3.before = denying("list_parts", key=".csv", error=Unanswered("no answer"))
    (found,) = mc.inspect(DEST)
    assert (found.visible, found.missing, found.problem) == (None, None, "no answer")


@pytest.fixture
def blind(s3: MemoryStore) -> MemoryStore:
    """A store whose listing of uploads shows none, as it may: it is a hint."""

    def shows_none(request: Request, reply: Any) -> Any:
        if request.verb != "list_uploads" or isinstance(reply, StoreError):
            return None
        page, bound = reply
        return replace(page, uploads=()), bound

    s3.after = shows_none
    return s3


@pytest.mark.parametrize("verb", ["list_parts", "list_uploads"])
@pytest.mark.parametrize("error", [DENIED, Unanswered("no answer")])
def test_a_check_that_is_not_made_decides_nothing(
    blind: MemoryStore, error: StoreError, verb: str
) -> None:
    """I10: the error is raised, the job runs on, and the same call commits it later."""
    job = job_of({"a.csv": b"1"}, job_id="j")
    blind.before = denying(verb, error=error)
    if verb == "list_parts" or isinstance(error, Unanswered):
        raises(type(error), job.commit)
        assert job.state == "running"
    blind.before = None
    assert job.commit().outcome == "committed"
    assert visible(blind) == {"t/a.csv": b"1"}


CONFLICT = WriteConflict("conflict", status=409)
FAILED = PreconditionFailed("precondition failed", status=412)


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("error", [CONFLICT, FAILED])
def test_a_conflict_with_nothing_is_none(s3: MemoryStore, mode: Mode, error: StoreError) -> None:
    """I2: a 409 with nothing at the key is passed over; one that stays undoes nothing."""
    if mode in ("fail", "fail_partitions"):  # the others send no condition
        first = job_of({"dt=1/a.csv": b"1"}, mode=mode)
        with At(s3, "complete_upload", error):
            assert first.commit().outcome == "committed"
    job = mc.start(f"{DEST}2", job_id="j", mode=mode)
    committed_task(job, "1", {"a.csv": b"1", "b.csv": b"22"})
    s3.before = denying("complete_upload", key="b.csv", error=error)
    for _ in range(2):
        raised = raises(mc.CommitIncomplete, mc.attach(f"{DEST}2", "j").commit)
        assert (raised.unfinished, raised.unresolved) == (("t2/b.csv",), ())
        assert "t2/a.csv" in s3.keys()
        assert mc.attach(f"{DEST}2", "j").state == "committing"
    s3.before = None
    assert mc.recover(f"{DEST}2", "j").outcome == "committed"
    assert {"t2/a.csv", "t2/b.csv"} <= set(s3.keys())


class Deaf(MemoryStore):
    """Aborts are answered with success and take no effect, so many times each upload."""

    times = 0

    def __init__(self, **rules: Any) -> None:
        super().__init__(**rules)
        self.heard: dict[str, int] = {}

    def abort_upload(self, key: str, upload_id: str) -> None:
        self.heard[upload_id] = self.heard.get(upload_id, 0) + 1
        if self.heard[upload_id] > self.times:
            super().abort_upload(key, upload_id)


@contextmanager
def deaf_store(times: int) -> Iterator[tuple[Deaf, PatientClock]]:
    """Use one for the bucket ``bucket`` while the block runs."""
    clock = PatientClock()
    store = Deaf(clock=clock.now)
    register_store(store, clock)
    store.times = times
    try:
        yield store, clock
    finally:
        unregister_store(store)


def complete(s3: MemoryStore, key: str) -> None:
    """A driver that wakes up completes a file."""
    (upload,) = s3.open_uploads(key)
    s3.complete_upload(key, upload.upload_id, s3.list_parts(key, upload.upload_id))


def test_a_revert_is_not_told_while_an_upload_can_be_completed() -> None:
    """I3: aborts that do not take leave it `reverting`; what is completed meanwhile is deleted."""
    with deaf_store(99) as (s3, _):
        job = decided(s3)
        raised = raises(mc.AbortIncomplete, mc.abort, DEST, job.id, revert=True, match="still open")
        assert "magic_committer.recover(" in raised.hint
        assert mc.attach(DEST, job.id).state == "reverting"
        complete(s3, "t/a.csv")
        s3.times = 1
        s3.heard.clear()
        with At(s3, "list_parts t/b.csv", lambda: complete(s3, "t/b.csv")):
            assert mc.abort(DEST, job.id).outcome == "reverted"
        assert visible(s3) == {}
        assert s3.open_uploads() == ()


REVERT_FAILS = {
    "abort": "abort_upload",
    "proof": "list_parts|list_uploads",
    "head": "head *.csv",
    "delete": "delete_one *.csv",
    "pendingset": "get *.pendingset",
    "plan": "get */_plan-*",
}


@pytest.mark.parametrize("error", [DENIED, Unanswered("no answer"), CONFLICT])
@pytest.mark.parametrize("what", REVERT_FAILS)
def test_what_fails_in_a_revert_is_done_again(
    machine: Machine, what: str, error: StoreError
) -> None:
    """I3, I10: whatever failed, it is AbortIncomplete, never reverted or committed."""
    job, s3 = machine.job("committing"), machine.s3
    with refusing(s3, REVERT_FAILS[what], error), pytest.raises(mc.AbortIncomplete) as raised:
        mc.abort(DEST, job.id, revert=True)
    assert "is committed" not in str(raised.value)
    assert mc.attach(DEST, job.id).state == "reverting"
    assert mc.abort(DEST, job.id).outcome == "reverted"
    assert visible(s3) == {}
    assert s3.open_uploads() == ()


@pytest.mark.parametrize("error", [DENIED, Unanswered("no answer")])
@pytest.mark.parametrize("verb", ["put", "get"])
def test_a_record_that_fails_is_told(machine: Machine, verb: str, error: StoreError) -> None:
    """I10: it cannot be written, nor read after that: AbortIncomplete, no error of the store."""
    job, s3 = machine.job("reverting"), machine.s3
    undone: list[str] = []

    def hook(request: Request) -> None:
        undone.extend([request.key] if request.verb in ("abort_upload", "delete_one") else [])
        if undone and request.verb in ("put", verb) and request.key.endswith("_job.json"):
            raise error

    s3.before = hook
    raises(mc.AbortIncomplete, mc.abort, DEST, job.id)
    s3.before = None
    assert undone
    assert mc.abort(DEST, job.id).outcome == "reverted"


@pytest.mark.parametrize("times", [1, 99])
def test_cleanup_believes_an_abort_when_the_parts_are_gone(times: int) -> None:
    """I4: it aborts an orphan again; one that stays open is told, and not counted as aborted."""
    with deaf_store(times) as (s3, clock):
        key = f"t/{unique_name('x.csv', 'f' * 32)}"
        s3.start_upload(key)
        clock.ahead += 5 * HOUR
        report = mc.cleanup(DEST)
        if times == 1:
            assert (report.uploads_aborted, report.uploads_left, report.errors) == (1, 0, ())
            assert s3.open_uploads() == ()
        else:
            assert (report.uploads_aborted, report.uploads_left, report.did) == (0, 1, ())
            assert "still open" in report.errors[0]


def test_litter_that_names_an_upload_stays_until_the_upload_is_gone() -> None:
    """I4: cleanup deletes a leftover pendingset only once what it names is proved gone."""
    with deaf_store(99) as (s3, clock):
        job_of({"users-name.csv": b"1"}, track="memory", accept="results")
        (upload,) = s3.open_uploads()
        s3.delete_object(*matching(s3, "*_job.json"))
        clock.ahead += 5 * HOUR
        report = mc.cleanup(DEST)
        assert (report.objects_deleted, report.uploads_aborted) == (0, 0)
        assert upload.upload_id in report.errors[0]
        assert len(control(s3)) == 1
        s3.times = 0
        report = mc.cleanup(DEST)
        assert (report.objects_deleted, report.uploads_aborted, report.errors) == (1, 1, ())
        assert (s3.open_uploads(), control(s3)) == ((), [])


def test_a_lagging_listing_is_not_aborted_once_more() -> None:
    """I6: aborted, proved gone, and shown again: its key may be another's by now."""
    with costly_store() as s3:
        job = mc.start(DEST)
        s3.requests.clear()  # the proof of the store
        file = killed(job, "1", "cut.csv", unique=True)
        (upload,) = s3.open_uploads()
        s3.done[upload.upload_id] = upload
        s3.lags = True
        report = job.abort()
        assert (report.outcome, report.warnings) == ("aborted", ())
        assert s3.requests["abort_upload"] == 1
        file.abort()


@pytest.mark.parametrize("there", [True, False])
def test_where_parts_may_not_be_listed_no_object_is_risked(there: bool) -> None:
    """I2: plan and set are gone: with an object at its key an upload is left, else aborted."""
    with costly_store() as s3:
        job = mc.start(DEST)
        s3.requests.clear()  # the proof of the store
        with job.task("1") as task, task.open("a.csv", unique=True) as f:
            f.write(b"1")
        dies_at(s3, "put t/_SUCCESS", job.commit)
        for key in (*matching(s3, "*/_plan-*"), *matching(s3, "*set")):
            s3.delete_object(key)
        s3.lags = True
        (key,) = visible(s3)
        if not there:
            s3.delete_object(key)
        s3.before = denying("list_parts")
        report = mc.recover(DEST, job.id).report
        assert report is not None
        if not there:
            assert s3.requests["abort_upload"] > 0
            return
        assert (report.state, len(report.left_open)) == ("completed", 1)
        assert "cannot be told" in report.warnings[0]
        s3.before = None
        assert mc.recover(DEST, job.id).state == "closed"
        assert s3.requests["abort_upload"] == 0
        assert list(visible(s3).values()) == [b"1"]


def test_many_uploads_that_stay_are_named_in_part_and_counted() -> None:
    """I4: a hundred are named, the rest is a number; record and sets stay for the next sweep."""
    with deaf_store(99) as (s3, _):
        job = job_of({"users-name.csv": b"1"})
        for number in range(NAMED_MAX + 7):
            s3.start_upload(f"t/{number}-mcj{job.uuid}.csv")
        report = job.abort()
        assert (report.state, len(report.left_open)) == ("aborting", NAMED_MAX)
        assert len(report.warnings) == NAMED_MAX + 1
        assert report.warnings[-1] == "8 more uploads could not be aborted"
        assert any("still open" in warning for warning in report.warnings)
        assert matching(s3, "*.pendingset")
        s3.times = 1
        s3.heard.clear()
        report = mc.attach(DEST, job.id).abort()
        assert (report.outcome, report.warnings, report.left_open) == ("aborted", (), ())
        assert s3.open_uploads() == ()
