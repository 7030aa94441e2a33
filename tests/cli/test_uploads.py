"""``uploads list|abort|expect``: what is shown, what is aborted, and what never is."""

from __future__ import annotations

import re
import shlex
import threading

import pytest

import magic_committer as mc
from magic_committer.cli.main import run
from magic_committer.errors import InvalidRequest, Unanswered
from magic_committer.stores.base import Attributes, Part
from magic_committer.stores.memory import Request
from tests.cli.conftest import Command, forbid
from tests.cli.shop import DAY, DEST, HOUR, LATER, Shop, pending_job
from tests.promises.hands import At, raising, visible

FILES = {f"t/j-{n}.csv": b"abc" for n in range(3)}
"""Of a pending job."""

# list ---------------------------------------------------------------------------------------------


def test_filters_are_all_met(shop: Shop) -> None:
    """Age, key and job choose, each for itself and together; ``t`` never means ``t2``."""
    pending_job()
    old = shop.store.start_upload("t/x/old.csv", initiator="arn:role/etl/1")
    shop.store.start_upload("t2/x/old.csv")
    shop.later(2 * HOUR)
    shop.store.start_upload("t/new.parquet", initiator="arn:role/web/1")
    assert len(shop.rows("list", DEST)) == 5
    assert len(shop.rows("list", DEST, "--job", "j")) == 3
    told = shop.rows("list", DEST, "--older-than", "90m", "--key-glob", "x/*")
    assert [row["upload_id"] for row in told] == [old]
    assert 2 * HOUR - 2 <= told[0]["age"] <= 2 * HOUR + 2
    assert len(shop.rows("list", DEST, "--key-glob", "*.parquet")) == 1
    assert len(shop.rows("list", DEST, "--key-glob", "x/*")) == 1


def test_of_many_problems_some_are_named(shop: Shop, command: Command) -> None:
    """The others are counted, for programs named."""
    for number in range(15):
        shop.store.put_object(f"t/__magic_job-{number}/_job.json", b"{}")
        shop.store.start_upload(f"t/{number}.csv")
    told = command("uploads", "list", DEST)
    assert told.err.count("_job.json") == 10
    assert "and 5 more that cannot be read" in told.err


def test_sizes_are_told_where_they_are_known(shop: Shop) -> None:
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
    told = {row["key"]: row for row in shop.rows("list", DEST)}
    assert set(told) == {"t/a", "t/secret"}
    assert (told["t/a"]["parts"], told["t/a"]["bytes"]) == (2, 2 * 1024**2)
    assert told["t/secret"]["bytes"] is None
    assert "InvalidArgument" in told["t/secret"]["note"]
    shop.store.before = None
    asked = shop.store.requests["list_parts"]
    assert {row["bytes"] for row in shop.rows("list", DEST, "--no-sizes")} == {None}
    assert shop.store.requests["list_parts"] == asked


def test_people_see_what_it_adds_up_to(command: Command, shop: Shop) -> None:
    """Counts and bytes stand above the table."""
    pending_job()
    shop.later(HOUR)
    shop.store.start_upload("t/a.csv")
    lines = command("uploads", "list", DEST).out.splitlines()
    assert lines[0] == "4 uploads, 9 B: live 3, foreign 1"
    rows = [line for line in lines if line.endswith(".csv")]
    assert rows[0].endswith("  t/a.csv")
    empty = command("uploads", "list", "s3://bucket/u").out
    assert empty == "No open uploads under s3://bucket/u/\n"


def test_expect_says_whether_a_count_is_right(command: Command, shop: Shop) -> None:
    """0 if exactly N fit the filters, else 46, in the words of Hadoop's tool."""
    pending_job()
    shop.store.start_upload("t/a.parquet")
    assert command("uploads", "expect", DEST, 4).code == 0
    assert command("uploads", "expect", DEST, 1, "--key-glob", "*.parquet").code == 0
    assert command("uploads", "expect", DEST, 3, "--job", "j").code == 0
    assert command("uploads", "expect", DEST, 0, "--older-than", "1h").code == 0
    wrong = command("uploads", "expect", DEST, 0, "--format", "json")
    assert (wrong.code, wrong.json()["found"]) == (46, 4)
    assert wrong.err == f"Expected upload count under {DEST}/: 0, found 4\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("list", "./bucket/t"), ""),
        (("list", DEST, "--older-than", "yesterday"), "36h"),
        (("expect", DEST), ""),
        (("abort", DEST, "--yes", "--foreign"), "older_than"),
        (("abort", DEST, "--yes", "--hadoop"), "older_than"),
        *((words, "is empty") for words in (
            ("list", DEST, "--job", ""), ("expect", DEST, 0, "--job", ""),
            ("abort", DEST, "--yes", "--older-than", "0", "--job", ""),
        )),
        (("abort", DEST), "--yes"),
    ],
)  # fmt: skip
def test_wrong_words_are_told_by_their_codes(
    command: Command, shop: Shop, words: tuple[str, ...], says: str
) -> None:
    """A wrong path or value, a missing option or one that does not go with another, an abort that
    nobody confirms: 2, and nothing is done. The empty ``--job "$JOB"`` of a script whose variable
    is not set would fit each upload of which no job's id is known."""
    orphans = shop.orphans(1)
    shop.later(2 * HOUR)
    ran = command("uploads", *words)
    assert (ran.code, shop.open()) == (2, set(orphans))
    assert says in ran.err


# abort --------------------------------------------------------------------------------------------


def test_orphans_go_when_they_are_old_enough(command: Command, shop: Shop) -> None:
    """From an hour on; another limit, or 0 for every age, is the operator's. A dry run shows what
    would go and changes nothing."""
    young = set(shop.orphans(2))
    shop.later(HOUR / 2)
    assert command("uploads", "abort", DEST, "--yes").code == 0
    shown = shop.rows("abort", DEST, "--older-than", "20m", "--dry-run")
    assert {row["upload_id"] for row in shown} == young == shop.open()
    assert {row["action"] for row in shown} == {"would abort"}
    assert shop.store.requests["abort_upload"] == 0
    assert command("uploads", "abort", DEST, "--yes", "--older-than", "20m").code == 0
    assert shop.open() == set()


def test_more_than_max_aborts_is_none(command: Command, shop: Shop) -> None:
    """One more than N: nothing is aborted, exit code 46, and the count is told."""
    orphans = shop.orphans(25)
    shop.later(2 * HOUR)
    ran = command("uploads", "abort", DEST, "--yes", "--max-aborts", 24)
    assert (ran.code, ran.out, shop.open()) == (46, "", set(orphans))
    assert "25 uploads are to be aborted under s3://bucket/t/ (orphan 25)" in ran.err
    assert command("uploads", "abort", DEST, "--yes", "--max-aborts", 25).code == 0
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
    assert command("uploads", "abort", DEST, "--yes", "--no-sizes").code == 130
    shop.store.before = None
    left = shop.open()
    assert 0 < len(left) < len(orphans)
    assert {row["upload_id"] for row in shop.rows("abort", DEST, "--yes")} == left
    assert shop.open() == set()


def test_what_fails_is_left_and_told(command: Command, shop: Shop) -> None:
    """An abort without an answer does not stop the others; exit code 46; the next run does it."""
    unlucky = min(shop.orphans(12))
    shop.later(2 * HOUR)
    shop.store.before = raising(
        lambda r: (r.verb, r.upload_id) == ("abort_upload", unlucky), Unanswered("no answer")
    )
    ran = command("uploads", "abort", DEST, "--yes", "--format", "json")
    assert (ran.code, shop.open()) == (46, {unlucky})
    assert [r["note"] for r in ran.json()["rows"] if r["action"] == "left"] == ["no answer"]
    shop.store.before = None
    assert command("uploads", "abort", DEST, "--yes").code == 0
    assert shop.open() == set()


@pytest.mark.parametrize(("deaf", "action"), [(3, "aborted"), (99, "left")])
def test_an_abort_is_believed_when_its_parts_are_gone(shop: Shop, deaf: int, action: str) -> None:
    """Parts in flight outlive an abort: it is sent again; what stays is told, exit code 46."""
    orphans = shop.orphans(2)
    shop.later(2 * HOUR)
    shop.store.deaf = deaf
    assert set(shop.actions()) == {action}
    assert shop.open() == (set(orphans) if action == "left" else set())


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
            target=lambda: codes.append(run(["uploads", "abort", DEST, "--yes", "--quiet"]))
        )
        thread.start()
        thread.join()

    At(shop.store, lambda r: r.verb == "abort_upload", another)
    assert command("uploads", "abort", DEST, "--yes").code == 0
    assert codes == [0]
    assert shop.open() == {stays}


def test_an_upload_that_began_anew_is_left(shop: Shop) -> None:
    """The age is asked for again right before the abort."""
    orphans = shop.orphans(1)
    shop.later(2 * HOUR)
    shop.store.young = {one.key for one in shop.store.open_uploads()}
    assert (shop.actions(), shop.open()) == (["left"], set(orphans))


def test_what_was_completed_meanwhile_stays_visible(shop: Shop) -> None:
    """An upload that its program completes while we look is gone, and its object is there."""
    key = "t/foreign.bin"
    upload_id = shop.store.start_upload(key)
    part = shop.store.put_part(key, upload_id, 1, memoryview(b"abc"))
    shop.later(2 * HOUR)

    def complete() -> None:
        shop.store.complete_upload(key, upload_id, [Part(1, part.etag, 3)])

    At(shop.store, lambda r: r.verb == "list_uploads" and r.key == key, complete)
    assert shop.actions("--foreign", "--older-than", "1h") == ["gone"]
    assert shop.store.body(key) == b"abc"
    assert shop.store.requests["abort_upload"] == 0


# Of others ----------------------------------------------------------------------------------------


ADVISERS = ("uploads list", "uploads abort --dry-run", "report")
"""Commands that name old uploads of others."""
PASTED = re.compile(r"(?:^  |code\">)magic-committer (.*?)(?:</span>.*)?$", re.MULTILINE)
"""A line that is a command, also on a page."""


@pytest.mark.parametrize("words", ADVISERS)
def test_what_is_foreign_and_old_is_named_with_what_removes_it(
    command: Command, shop: Shop, words: str
) -> None:
    """A bucket full of others' old uploads: how many, how many bytes, and a line that removes these
    and leaves the young one, and the one near a live job. Young ones alone get no advice."""
    stays = {shop.store.start_upload("t/young.csv"), shop.store.start_upload("t/live/near.csv")}
    young = command(*words.split(), DEST)
    assert not PASTED.findall(young.out + young.err)
    for upload in stays:
        shop.store.drop_upload(upload)
    for number in range(300):
        key = f"t/{number:03}.csv"
        shop.store.put_part(key, shop.store.start_upload(key), 1, memoryview(bytes(1024)))
    shop.later(8 * DAY)
    stays = {shop.store.start_upload("t/young.csv"), shop.store.start_upload("t/live/near.csv")}
    mc.start(f"{DEST}/live", job_id="alive")
    ran = command(*words.split(), DEST)
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
    ran = command("cleanup", DEST)
    assert "3 uploads of other programs may leak: older than 7d" in ran.out
    assert shop.store.requests["list_parts"] == 0
    (line,) = PASTED.findall(ran.out)
    assert "remove them:\n  magic-committer uploads abort" in command(*shlex.split(line)).err


def test_the_command_keeps_the_filters(command: Command, shop: Shop) -> None:
    """It removes what was listed, and nothing else: filters and a greater age come with it; an
    abort that takes them itself gives no advice. A dry run never says "aborted"."""
    shop.store.start_upload("t/a.parquet")
    shop.store.start_upload("t/b.csv")
    shop.later(40 * DAY)
    shop.store.start_upload("t/c.parquet")
    shop.later(8 * DAY)
    dry = command("uploads", "abort", DEST, "--dry-run", "--foreign", "--older-than", "7d")
    assert "--foreign" not in dry.out + dry.err
    dry = command("uploads", "abort", DEST, "--dry-run")
    assert "Would abort 0 uploads. Not touched: foreign 3" in dry.out
    assert "Aborted" not in dry.out
    ran = command("uploads", "list", DEST, "--key-glob", "*.parquet", "--older-than", "30d")
    assert "1 foreign upload" in ran.err
    (line,) = PASTED.findall(ran.err)
    assert command(*shlex.split(line), "--yes").code == 0
    assert {one.key for one in shop.store.open_uploads()} == {"t/b.csv", "t/c.parquet"}


# Jobs ---------------------------------------------------------------------------------------------


def test_a_live_job_is_never_touched(shop: Shop) -> None:
    """However the options are, uploads of a job that changed lately stay, and it commits."""
    job = pending_job()
    shop.later(23 * HOUR)
    assert shop.actions("--older-than", "0", "--foreign", "--hadoop") == []
    assert job.commit().files == 3


def test_a_dead_job_is_aborted_as_a_whole(shop: Shop) -> None:
    """Its record says `aborting` before an upload of it goes: its driver cannot commit any more."""
    job = pending_job()
    shop.later(2 * DAY)
    told = shop.rows("abort", DEST, "--yes")
    assert [(row["class"], row["action"]) for row in told] == [("over", "aborted")] * 3
    assert mc.attach(DEST, "j").outcome == "aborted"
    with pytest.raises(mc.JobNotRunning):
        job.commit()
    assert visible(shop.store) == {}


@pytest.mark.parametrize(
    ("verbs", "action", "words"),
    [
        (("abort_upload",), "left", "s3:AbortMultipartUpload is not allowed"),
        (("delete", "delete_one"), "aborted", "s3:DeleteObject is not allowed"),
    ],
)
def test_a_dead_job_that_is_not_ended_is_told(
    command: Command, shop: Shop, verbs: tuple[str, ...], action: str, words: str
) -> None:
    """Decided, but its uploads may not be aborted, or its control objects not be deleted: exit code
    46, and the job is named with why; who may ends it."""
    pending_job(files=1)
    shop.later(2 * DAY)
    forbid(shop.store, *verbs, words=words)
    ran = command("uploads", "abort", DEST, "--yes", "--format", "json")
    assert (ran.code, len(shop.open())) == (46, action == "left")
    assert [row["action"] for row in ran.json()["rows"]] == [action]
    assert "job j is still aborting: " in ran.err
    assert words in ran.err
    shop.store.before = None
    if action == "left":
        assert command("uploads", "abort", DEST, "--yes").code == 0
        assert (shop.open(), mc.attach(DEST, "j").state) == (set(), "closed")


def test_an_interrupted_abort_of_a_job_goes_on(command: Command, shop: Shop) -> None:
    """Decided, and interrupted before its uploads are gone: the same command does the rest at once,
    though its record has just changed."""
    pending_job()
    shop.later(2 * DAY)
    shop.store.before = raising(lambda r: r.verb == "abort_upload", KeyboardInterrupt)
    assert command("uploads", "abort", DEST, "--yes").code == 130
    shop.store.before = None
    assert (len(shop.open()), mc.attach(DEST, "j").state) == (3, "aborting")
    assert shop.actions() == ["aborted"] * 3
    assert (shop.open(), mc.attach(DEST, "j").state) == (set(), "closed")


def test_a_driver_that_wakes_up_loses_nothing(shop: Shop) -> None:
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
    assert set(shop.actions()) == {"gone"}
    assert shop.store.requests["abort_upload"] == 0
    assert (visible(shop.store), job.outcome) == (FILES, "committed")


def test_part_of_a_dead_job_is_not_aborted(command: Command, shop: Shop) -> None:
    """Where filters or path leave out one of its uploads, the job is left, and it is said how; so
    is one that lies above the path."""
    pending_job()
    mc.start(f"{DEST}/p", job_id="upper")
    upper = mc.attach(f"{DEST}/p", "upper")
    with upper.task("0") as task, task.open("q=1/a.csv") as f:
        f.write(b"abc")
    shop.later(2 * DAY)
    before = shop.open()
    ran = command("uploads", "abort", DEST, "--yes", "--key-glob", "*-1.csv")
    assert (ran.code, shop.open()) == (0, before)
    assert "2 of its 3 uploads are not meant" in ran.err
    ran = command("uploads", "abort", f"{DEST}/p/q=1", "--yes")
    assert (ran.code, shop.open()) == (0, before)
    assert "it lies above the path" in ran.err
    assert command("uploads", "abort", DEST, "--yes", "--job", "j").code == 0
    assert len(shop.open()) == 1


def test_a_decided_job_is_left_to_recovery(command: Command, shop: Shop) -> None:
    """However old, uploads of a job that is decided to commit stay: recovery completes them."""
    job = pending_job()
    shop.store.before = raising(lambda r: r.verb == "complete_upload", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        job.commit()
    shop.store.before = None
    shop.later(9 * DAY)
    ran = command("uploads", "abort", DEST, "--yes", "--older-than", "0")
    assert (ran.code, len(shop.open())) == (0, 3)
    assert f"job j under {DEST}/ is committing: recover it" in ran.err
    mc.recover(DEST, "j")
    assert visible(shop.store) == FILES


def test_others_uploads_beside_a_live_job_stay_until_it_ends(command: Command, shop: Shop) -> None:
    """A foreign upload where a live job writes may be the job's: its user chose the name."""
    pending_job()
    near = shop.store.start_upload("t/chosen.csv")
    shop.store.start_upload("u/other.csv")
    shop.later(2 * HOUR)
    told = {row["key"]: row["note"] for row in shop.rows("list", "s3://bucket")}
    assert told["t/chosen.csv"].startswith("it may be of job j (running)")
    assert told["u/other.csv"] == ""
    assert command("uploads", "abort", "s3://bucket", "--foreign", *LATER).code == 0
    assert (near in shop.open(), len(shop.open())) == (True, 4)
    mc.abort(DEST, "j")
    assert command("uploads", "abort", "s3://bucket", "--foreign", *LATER).code == 0
    assert shop.open() == set()
