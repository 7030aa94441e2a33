"""``uploads list|abort|expect``: what is shown, what is aborted, and what never is."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

import magic_committer as mc
from magic_committer._wiring import register_store, unregister_store
from magic_committer.cli.main import run
from magic_committer.errors import InvalidRequest, PermissionDenied, Unanswered
from magic_committer.hadoop.paths import unique_name
from magic_committer.stores.base import Attributes, Part, UploadPage
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.cli.conftest import Command
from tests.promises.hands import At

HOUR, DAY = 3600.0, 86_400.0
GONE = "0" * 32
"""The UUID of a job that has no record."""
T = "s3://bucket/t"


class Store(MemoryStore):
    """A store that can be told to behave badly.

    Attributes:
        deaf: so many aborts of each upload have no effect.
        young: of these keys a listing by exact key says that they began just now.
    """

    def __init__(self, clock: PatientClock, **rules: Any) -> None:
        super().__init__(clock=clock.now, **rules)
        self.deaf = 0
        self.heard: dict[str, int] = {}
        self.young: set[str] = set()

    def abort_upload(self, key: str, upload_id: str) -> None:
        """As the port's."""
        self.heard[upload_id] = self.heard.get(upload_id, 0) + 1
        if self.heard[upload_id] > self.deaf:
            super().abort_upload(key, upload_id)

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        """As the port's."""
        for page in super().list_uploads(prefix):
            uploads = [
                replace(one, initiated=page.seen_at) if prefix in self.young else one
                for one in page.uploads
            ]
            yield replace(page, uploads=tuple(uploads))


@dataclass
class Shop:
    """A store, its clock, and hands for it."""

    store: Store
    clock: PatientClock

    def orphans(self, count: int, *, of: str = GONE, under: str = "t/") -> set[str]:
        """Uploads of a job without a record; their ids."""
        return {
            self.store.start_upload(f"{under}{unique_name(f'{n:05}.csv', of)}")
            for n in range(count)
        }

    def open(self) -> set[str]:
        """The ids of all open uploads."""
        return {one.upload_id for one in self.store.open_uploads()}

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.ahead += seconds


@pytest.fixture
def shop() -> Iterator[Shop]:
    """The bucket ``bucket``, pages of ten."""
    clock = PatientClock()
    store = Store(clock, page_keys=10)
    register_store(store, clock)
    yield Shop(store, clock)
    unregister_store(store)


def pending_job(job_id: str = "j", files: int = 3) -> mc.Job:
    """A running job with one committed task."""
    job = mc.start(T, job_id=job_id)
    with job.task("0") as task:
        for number in range(files):
            with task.open(f"{job_id}-{number}.csv") as f:
                f.write(b"abc")
    return job


def rows(command: Command, *arguments: str) -> list[dict[str, Any]]:
    """What a command lists."""
    ran = command("uploads", *arguments, "--format", "json")
    assert ran.code in (0, 46), ran.err
    listed: list[dict[str, Any]] = ran.json()["rows"]
    return listed


# list ---------------------------------------------------------------------------------------------


def test_a_path_is_a_directory(command: Command, shop: Shop) -> None:
    """``t`` never means ``t2/x``."""
    for key in ("t/a.csv", "t/b/c.csv", "t2/x.csv", "u"):
        shop.store.start_upload(key)
    assert [row["key"] for row in rows(command, "list", T)] == ["t/a.csv", "t/b/c.csv"]
    assert len(rows(command, "list", "s3a://bucket")) == 4


def test_filters_are_all_met(command: Command, shop: Shop) -> None:
    """Age, key and job choose, each for itself and together."""
    pending_job()
    old = shop.store.start_upload("t/x/old.csv", initiator="arn:role/etl/1")
    shop.later(2 * HOUR)
    shop.store.start_upload("t/new.parquet", initiator="arn:role/web/1")
    assert len(rows(command, "list", T)) == 5
    assert len(rows(command, "list", T, "--job", "j")) == 3
    told = rows(command, "list", T, "--older-than", "90m", "--key-glob", "x/*")
    assert [row["upload_id"] for row in told] == [old]
    assert 2 * HOUR - 2 <= told[0]["age"] <= 2 * HOUR + 2
    assert len(rows(command, "list", T, "--key-glob", "*.parquet")) == 1
    assert len(rows(command, "list", T, "--key-glob", "x/*")) == 1


def test_sizes_are_told_where_they_are_known(command: Command, shop: Shop) -> None:
    """Parts and bytes; null, with the reason, where the store would not say; an upload that ended
    meanwhile is not listed."""
    made = shop.store.create_upload("t/a", attributes=Attributes())
    for number in (1, 2):
        shop.store.put_part("t/a", made.upload_id, number, memoryview(bytes(1024**2)))
    shop.store.start_upload("t/gone")
    shop.store.start_upload("t/secret")

    def parts(request: Request) -> None:
        if request.verb == "list_parts" and request.key == "t/gone":
            shop.store.drop_upload(request.upload_id)
        if request.verb == "list_parts" and request.key == "t/secret":
            raise InvalidRequest("no", code="InvalidArgument")

    shop.store.before = parts
    told = {row["key"]: row for row in rows(command, "list", T)}
    assert set(told) == {"t/a", "t/secret"}
    assert (told["t/a"]["parts"], told["t/a"]["bytes"]) == (2, 2 * 1024**2)
    assert told["t/secret"]["bytes"] is None
    assert "InvalidArgument" in told["t/secret"]["note"]
    shop.store.before = None
    asked = shop.store.requests["list_parts"]
    assert {row["bytes"] for row in rows(command, "list", T, "--no-sizes")} == {None}
    assert shop.store.requests["list_parts"] == asked


def test_people_see_what_it_adds_up_to(command: Command, shop: Shop) -> None:
    """Counts and bytes stand above the table."""
    pending_job()
    shop.later(HOUR)
    shop.store.start_upload("t/a.csv")
    ran = command("uploads", "list", T)
    lines = ran.out.splitlines()
    assert lines[0] == "4 uploads, 9 B: live 3, foreign 1"
    rows = [line for line in lines if line.endswith(".csv")]
    assert rows[0].endswith("  t/a.csv")
    assert (
        command("uploads", "list", "s3://bucket/u").out == "No open uploads under s3://bucket/u/\n"
    )


def test_expect_says_whether_a_count_is_right(command: Command, shop: Shop) -> None:
    """0 if exactly N fit the filters, else 46, in the words of Hadoop's tool."""
    pending_job()
    shop.store.start_upload("t/a.parquet")
    assert command("uploads", "expect", T, 4).code == 0
    assert command("uploads", "expect", T, 1, "--key-glob", "*.parquet").code == 0
    assert command("uploads", "expect", T, 3, "--job", "j").code == 0
    assert command("uploads", "expect", T, 0, "--older-than", "1h").code == 0
    wrong = command("uploads", "expect", T, 0, "--format", "json")
    assert wrong.code == 46
    assert wrong.err == f"Expected upload count under {T}/: 0, found 4\n"
    assert wrong.json()["found"] == 4


def test_wrong_words_are_told_by_their_codes(command: Command, shop: Shop) -> None:
    """A wrong path or value, a missing option or one that does not go with another: 2."""
    assert command("uploads", "list", "./bucket/t").code == 2
    assert command("uploads", "list", T, "--older-than", "yesterday").code == 2
    assert command("uploads", "expect", T).code == 2
    for wrong in (
        ("--foreign",),
        ("--hadoop",),
    ):
        assert command("uploads", "abort", T, "--yes", *wrong).code == 2, wrong


@pytest.mark.parametrize(
    "words", [("list", T), ("expect", T, 0), ("abort", T, "--yes", "--older-than", "0")]
)
def test_an_empty_job_is_not_that_of_all_without_one(
    command: Command, shop: Shop, words: tuple[str, ...]
) -> None:
    """``--job "$JOB"`` of a script whose variable is not set is refused: it would fit each upload
    of which no job's id is known."""
    orphans = shop.orphans(1)
    ran = command("uploads", *words, "--job", "")
    assert (ran.code, shop.open()) == (2, orphans)
    assert "is empty" in ran.err


# abort --------------------------------------------------------------------------------------------


def test_nothing_is_aborted_unasked(command: Command, shop: Shop) -> None:
    """Without a terminal and --yes nothing is done (2); a dry run shows it and changes nothing."""
    orphans = shop.orphans(3)
    shop.later(2 * HOUR)
    assert command("uploads", "abort", T).code == 2
    shown = rows(command, "abort", T, "--dry-run")
    assert {row["upload_id"] for row in shown} == orphans == shop.open()
    assert {row["action"] for row in shown} == {"would abort"}
    assert shop.store.requests["abort_upload"] == 0


def test_young_uploads_and_those_without_an_age_stay(command: Command, shop: Shop) -> None:
    """Orphans go from an hour on; another limit, or 0 for every age, is the operator's."""
    young = shop.orphans(2)
    shop.later(HOUR / 2)
    assert command("uploads", "abort", T, "--yes").code == 0
    assert shop.open() == young
    assert command("uploads", "abort", T, "--yes", "--older-than", "20m").code == 0
    assert shop.open() == set()


def test_more_than_max_aborts_is_none(command: Command, shop: Shop) -> None:
    """One more than N: nothing is aborted, exit code 46, and the count is told."""
    orphans = shop.orphans(25)
    shop.later(2 * HOUR)
    ran = command("uploads", "abort", T, "--yes", "--max-aborts", 24)
    assert (ran.code, ran.out, shop.open()) == (46, "", orphans)
    assert "25 uploads are to be aborted under s3://bucket/t/ (orphan 25)" in ran.err
    assert command("uploads", "abort", T, "--yes", "--max-aborts", 25).code == 0
    assert shop.open() == set()


def test_an_interrupted_abort_goes_on_where_it_was(command: Command, shop: Shop) -> None:
    """Whatever ends it, the same command does the rest, and tells only of the rest."""
    orphans = shop.orphans(40)
    shop.later(2 * HOUR)
    aborts = 0

    def ctrl_c(request: Request) -> None:
        nonlocal aborts
        aborts += request.verb == "abort_upload"
        if aborts > 7:
            raise KeyboardInterrupt

    shop.store.before = ctrl_c
    assert command("uploads", "abort", T, "--yes", "--no-sizes").code == 130
    shop.store.before = None
    left = shop.open()
    assert 0 < len(left) < len(orphans)
    assert {row["upload_id"] for row in rows(command, "abort", T, "--yes")} == left
    assert shop.open() == set()


def test_what_fails_is_left_and_told(command: Command, shop: Shop) -> None:
    """An abort without an answer does not stop the others; exit code 46; the next run does it."""
    orphans = shop.orphans(12)
    shop.later(2 * HOUR)
    unlucky = min(orphans)

    def lose(request: Request) -> None:
        if request.verb == "abort_upload" and request.upload_id == unlucky:
            raise Unanswered("no answer")

    shop.store.before = lose
    ran = command("uploads", "abort", T, "--yes", "--format", "json")
    assert (ran.code, shop.open()) == (46, {unlucky})
    assert [r["note"] for r in ran.json()["rows"] if r["action"] == "left"] == ["no answer"]
    shop.store.before = None
    assert command("uploads", "abort", T, "--yes").code == 0
    assert shop.open() == set()


@pytest.mark.parametrize(("deaf", "code"), [(3, 0), (99, 46)])
def test_an_abort_is_believed_when_its_parts_are_gone(
    command: Command, shop: Shop, deaf: int, code: int
) -> None:
    """Parts in flight outlive an abort: it is sent again; what stays is told, exit code 46."""
    orphans = shop.orphans(2)
    shop.later(2 * HOUR)
    shop.store.deaf = deaf
    told = rows(command, "abort", T, "--yes")
    assert {row["action"] for row in told} == {"left" if code else "aborted"}
    assert shop.open() == (orphans if code else set())


def test_two_aborts_at_once_do_no_harm(command: Command, shop: Shop) -> None:
    """While one aborts, another does all of it: both end well, and each upload went once or was
    found gone."""
    shop.orphans(30)
    stays = shop.store.start_upload("t/foreign.csv")
    shop.later(2 * HOUR)
    codes: list[int] = []

    def another() -> None:
        shop.store.before = None
        thread = threading.Thread(
            target=lambda: codes.append(run(["uploads", "abort", T, "--yes", "--quiet"]))
        )
        thread.start()
        thread.join()

    At(shop.store, lambda r: r.verb == "abort_upload", another)
    assert command("uploads", "abort", T, "--yes").code == 0
    assert codes == [0]
    assert shop.open() == {stays}


def test_an_upload_that_began_anew_is_left(command: Command, shop: Shop) -> None:
    """The age is asked for again right before the abort."""
    orphans = shop.orphans(1)
    shop.later(2 * HOUR)
    (upload,) = shop.store.open_uploads()
    shop.store.young = {upload.key}
    (row,) = rows(command, "abort", T, "--yes")
    assert (row["action"], shop.open()) == ("left", orphans)


def test_what_was_completed_meanwhile_stays_visible(command: Command, shop: Shop) -> None:
    """An upload that its program completes while we look is gone, and its object is there."""
    key = "t/foreign.bin"
    upload_id = shop.store.start_upload(key)
    part = shop.store.put_part(key, upload_id, 1, memoryview(b"abc"))
    shop.later(2 * HOUR)

    def complete() -> None:
        shop.store.complete_upload(key, upload_id, [Part(1, part.etag, 3)])

    At(shop.store, lambda r: r.verb == "list_uploads" and r.key == key, complete)
    told = rows(command, "abort", T, "--yes", "--foreign", "--older-than", "1h")
    assert [row["action"] for row in told] == ["gone"]
    assert shop.store.body(key) == b"abc"
    assert shop.store.requests["abort_upload"] == 0


# Of others ----------------------------------------------------------------------------------------


ADVISERS = ("uploads list", "uploads abort --dry-run", "report")
"""Commands that name old uploads of others."""
PASTED = re.compile(r"^  magic-committer (.*)$", re.MULTILINE)
"""A line that is a command."""


@pytest.mark.parametrize("words", ADVISERS)
def test_what_is_foreign_and_old_is_named_with_what_removes_it(
    command: Command, shop: Shop, words: str
) -> None:
    """A bucket full of others' old uploads: how many, how many bytes, and a line that removes these
    and leaves the young one, and the one near a live job."""
    for number in range(300):
        key = f"t/{number:03}.csv"
        shop.store.put_part(key, shop.store.start_upload(key), 1, memoryview(bytes(1024)))
    shop.later(8 * DAY)
    stays = {shop.store.start_upload("t/young.csv"), shop.store.start_upload("t/live/near.csv")}
    mc.start(f"{T}/live", job_id="alive")
    ran = command(*words.split(), T)
    told = ran.out + ran.err
    assert "older than 7d: 300 foreign uploads" in told
    assert "300.0 KiB" in told or "abort" in words
    (line,) = PASTED.findall(told)
    assert command(*shlex.split(line), "--yes").code == 0
    assert shop.open() == stays


def test_a_cleanup_counts_old_uploads_without_a_jobs_name(command: Command, shop: Shop) -> None:
    """It names the command that tells whose they are, and asks about none of them."""
    for number in range(3):
        shop.store.start_upload(f"t/{number}.csv")
    shop.later(8 * DAY)
    ran = command("cleanup", T)
    assert "3 uploads of other programs may leak: older than 7d" in ran.out
    assert shop.store.requests["list_parts"] == 0
    (line,) = PASTED.findall(ran.out)
    assert "remove them:\n  magic-committer uploads abort" in command(*shlex.split(line)).err


def test_nothing_old_of_others_is_no_advice(command: Command, shop: Shop) -> None:
    """Young uploads of others, and those that the command aborts itself, get none."""
    shop.store.start_upload("t/a.csv")
    for words in ADVISERS:
        ran = command(*words.split(), T)
        assert "--foreign" not in ran.out + ran.err, words
    shop.later(8 * DAY)
    ran = command("uploads", "abort", T, "--dry-run", "--foreign", "--older-than", "7d")
    assert "--foreign" not in ran.out + ran.err


def test_the_command_keeps_the_filters(command: Command, shop: Shop) -> None:
    """It removes what was listed, and nothing else: filters and a greater age come with it."""
    shop.store.start_upload("t/a.parquet")
    shop.store.start_upload("t/b.csv")
    shop.later(40 * DAY)
    shop.store.start_upload("t/c.parquet")
    shop.later(8 * DAY)
    ran = command("uploads", "list", T, "--key-glob", "*.parquet", "--older-than", "30d")
    assert "1 foreign upload" in ran.err
    (line,) = PASTED.findall(ran.err)
    assert command(*shlex.split(line), "--yes").code == 0
    assert {one.key for one in shop.store.open_uploads()} == {"t/b.csv", "t/c.parquet"}


def test_a_dry_run_never_says_aborted(command: Command, shop: Shop) -> None:
    """Also where there is nothing to abort."""
    shop.store.start_upload("t/a.csv")
    told = command("uploads", "abort", T, "--dry-run").out
    assert "Would abort 0 uploads. Not touched: foreign 1" in told
    assert "Aborted" not in told


# Jobs ---------------------------------------------------------------------------------------------


def test_a_live_job_is_never_touched(command: Command, shop: Shop) -> None:
    """However the options are, uploads of a job that changed lately stay, and it commits."""
    job = pending_job()
    shop.later(23 * HOUR)
    wild = ("--older-than", "0", "--foreign", "--hadoop", "--yes")
    assert rows(command, "abort", T, *wild) == []
    assert job.commit().files == 3


def test_a_dead_job_is_aborted_as_a_whole(command: Command, shop: Shop) -> None:
    """Its record says `aborting` before an upload of it goes: its driver cannot commit any more."""
    job = pending_job()
    shop.later(2 * DAY)
    told = rows(command, "abort", T, "--yes")
    assert [(row["class"], row["action"]) for row in told] == [("over", "aborted")] * 3
    assert mc.attach(T, "j").outcome == "aborted"
    with pytest.raises(mc.JobNotRunning):
        job.commit()
    assert [key for key in shop.store.keys() if key.endswith(".csv")] == []


def test_a_dead_job_that_is_not_ended_is_told(command: Command, shop: Shop) -> None:
    """Decided, but its uploads may not be aborted: exit code 46, and the job is named with why."""
    pending_job(files=1)
    shop.later(2 * DAY)

    def deny(request: Request) -> None:
        if request.verb == "abort_upload":
            raise PermissionDenied("s3:AbortMultipartUpload is not allowed")

    shop.store.before = deny
    ran = command("uploads", "abort", T, "--yes", "--format", "json")
    assert ran.code == 46
    assert [row["action"] for row in ran.json()["rows"]] == ["left"]
    assert "job j is still aborting: " in ran.err
    shop.store.before = None
    assert command("uploads", "abort", T, "--yes").code == 0
    assert (shop.open(), mc.attach(T, "j").state) == (set(), "closed")


def test_a_dead_job_whose_objects_stay_is_told(command: Command, shop: Shop) -> None:
    """All its uploads are aborted, but its control objects may not be deleted: 46, and its name."""
    pending_job(files=1)
    shop.later(2 * DAY)

    def deny(request: Request) -> None:
        if request.verb in ("delete", "delete_one"):
            raise PermissionDenied("s3:DeleteObject is not allowed")

    shop.store.before = deny
    ran = command("uploads", "abort", T, "--yes", "--format", "json")
    assert (ran.code, shop.open()) == (46, set())
    assert [row["action"] for row in ran.json()["rows"]] == ["aborted"]
    assert "job j is still aborting: " in ran.err
    assert "s3:DeleteObject is not allowed" in ran.err
    shop.store.before = None


def test_an_interrupted_abort_of_a_job_goes_on(command: Command, shop: Shop) -> None:
    """Decided, and interrupted before its uploads are gone: the same command does the rest at once,
    though its record has just changed."""
    pending_job()
    shop.later(2 * DAY)

    def ctrl_c(request: Request) -> None:
        if request.verb == "abort_upload":
            raise KeyboardInterrupt

    shop.store.before = ctrl_c
    assert command("uploads", "abort", T, "--yes").code == 130
    shop.store.before = None
    assert len(shop.open()) == 3
    assert mc.attach(T, "j").state == "aborting"
    assert [row["action"] for row in rows(command, "abort", T, "--yes")] == ["aborted"] * 3
    assert (shop.open(), mc.attach(T, "j").state) == (set(), "closed")


def test_a_driver_that_wakes_up_loses_nothing(command: Command, shop: Shop) -> None:
    """A job that was taken for dead commits between listing and abort: all its files are there."""
    job = pending_job()
    shop.store.requests.clear()  # the proof of the store
    shop.later(2 * DAY)
    reads = 0

    def commits(request: Request) -> None:
        nonlocal reads
        reads += request.verb == "get" and request.key.endswith("_job.json")
        if reads == 2:  # of the record: right before the swap
            shop.store.before = None
            job.commit()

    shop.store.before = commits
    assert {row["action"] for row in rows(command, "abort", T, "--yes")} == {"gone"}
    assert shop.store.requests["abort_upload"] == 0
    assert {f"t/j-{n}.csv" for n in range(3)} <= set(shop.store.keys())
    assert job.outcome == "committed"


def test_part_of_a_dead_job_is_not_aborted(command: Command, shop: Shop) -> None:
    """Where filters or path leave out one of its uploads, the job is left, and it is said how."""
    pending_job()
    shop.later(2 * DAY)
    before = shop.open()
    ran = command("uploads", "abort", T, "--yes", "--key-glob", "*-1.csv")
    assert (ran.code, shop.open()) == (0, before)
    assert "2 of its 3 uploads are not meant" in ran.err
    shop.store.start_upload("t/sub/x.csv")
    assert command("uploads", "abort", T, "--yes", "--job", "j").code == 0
    assert len(shop.open()) == 1


def test_a_job_above_the_path_is_left(command: Command, shop: Shop) -> None:
    """Aborting under a subdirectory never decides a job whose other uploads lie beside it."""
    job = mc.start(T, job_id="j")
    with job.task("0") as task, task.open("p=1/a.csv") as f:
        f.write(b"abc")
    shop.later(2 * DAY)
    ran = command("uploads", "abort", f"{T}/p=1", "--yes")
    assert (ran.code, len(shop.open())) == (0, 1)
    assert "it lies above the path" in ran.err


def test_a_decided_job_is_left_to_recovery(command: Command, shop: Shop) -> None:
    """However old, uploads of a job that is decided to commit stay: recovery completes them."""
    job = pending_job()

    def dies(request: Request) -> None:
        if request.verb == "complete_upload":
            raise KeyboardInterrupt

    shop.store.before = dies
    with pytest.raises(KeyboardInterrupt):
        job.commit()
    shop.store.before = None
    shop.later(9 * DAY)
    ran = command("uploads", "abort", T, "--yes", "--older-than", "0")
    assert (ran.code, len(shop.open())) == (0, 3)
    assert f"job j under {T}/ is committing: recover it" in ran.err
    mc.recover(T, "j")
    assert {f"t/j-{n}.csv" for n in range(3)} <= set(shop.store.keys())


def test_others_uploads_beside_a_live_job_stay_until_it_ends(command: Command, shop: Shop) -> None:
    """A foreign upload where a live job writes may be the job's: its user chose the name."""
    pending_job()
    near = shop.store.start_upload("t/chosen.csv")
    shop.store.start_upload("u/other.csv")
    shop.later(2 * HOUR)
    foreign = ("--foreign", "--older-than", "1h", "--yes")
    told = {row["key"]: row["note"] for row in rows(command, "list", "s3://bucket")}
    assert told["t/chosen.csv"].startswith("it may be of job j (running)")
    assert told["u/other.csv"] == ""
    assert command("uploads", "abort", "s3://bucket", *foreign).code == 0
    assert near in shop.open()
    assert len(shop.open()) == 4
    mc.abort(T, "j")
    assert command("uploads", "abort", "s3://bucket", *foreign).code == 0
    assert shop.open() == set()
