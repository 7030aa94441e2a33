"""``uploads list|abort|expect``: what is shown, what is aborted, and what never is."""

from __future__ import annotations

import re
import shlex
import threading
from itertools import count

import pytest

import magic_committer as mc
from magic_committer.cli.main import run
from magic_committer.errors import InvalidRequest, Unanswered
from magic_committer.stores.base import Attributes
from magic_committer.stores.memory import Request
from tests.cli.conftest import forbid
from tests.cli.shop import DAY, DEST, FOREIGN, YOUNG, Shop, pending_job
from tests.promises.hands import At, committed_task, raising, refusing, visible

FILES = {f"t/j-{n}.csv": b"abc" for n in range(3)}
"""Of a pending job."""


def test_filters_are_all_met(shop: Shop) -> None:
    """Each for itself and together, where it is listed or expected; ``t`` never means ``t2``."""
    pending_job()
    old = shop.store.start_upload("t/x/old.csv", initiator="arn:role/etl/1")
    shop.store.start_upload("t2/x/old.csv")
    shop.later(7200)
    shop.store.start_upload("t/new.parquet", initiator="arn:role/web/1")
    told = shop.rows("list", DEST, "--older-than", "90m", "--key-glob", "x/*")
    assert [row["upload_id"] for row in told] == [old]
    assert 7198 <= told[0]["age"] <= 7202
    for number, *filters in (
        (5,), (3, "--job", "j"), (1, "--key-glob", "*.parquet"), (1, "--key-glob", "x/*"),
        (0, "--older-than", "3h"),
    ):  # fmt: skip
        assert len(shop.rows("list", DEST, *filters)) == number
        assert shop.command("uploads", "expect", DEST, number, *filters).code == 0
    wrong = shop.command("uploads", "expect", DEST, 0, "--format", "json")
    assert (wrong.code, wrong.json()["found"]) == (46, 5)
    assert wrong.err == f"Expected upload count under {DEST}/: 0, found 5\n"  # as Hadoop's tool


def test_of_many_problems_some_are_named(shop: Shop) -> None:
    """The others are counted, for programs named."""
    for number in range(15):
        shop.store.put_object(f"t/__magic_job-{number}/_job.json", b"{}")
        shop.store.start_upload(f"t/{number}.csv")
    told = shop.command("uploads", "list", DEST)
    assert told.err.count("_job.json") == 10
    assert "and 5 more that cannot be read" in told.err


def test_sizes_are_told_where_they_are_known(shop: Shop) -> None:
    """Null, with the reason, where the store would not say; what ended meanwhile is not listed."""
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
    assert {key: (row["parts"], row["bytes"]) for key, row in told.items()} == {
        "t/a": (2, 2 * 1024**2), "t/secret": (None, None),
    }  # fmt: skip
    assert "InvalidArgument" in told["t/secret"]["note"]
    asked = shop.store.requests["list_parts"]
    assert {row["bytes"] for row in shop.rows("list", DEST, "--no-sizes")} == {None}
    assert shop.store.requests["list_parts"] == asked


def test_people_see_what_it_adds_up_to(shop: Shop) -> None:
    """Counts and bytes stand above the table."""
    pending_job()
    shop.later(YOUNG)
    shop.store.start_upload("t/a.csv")
    lines = shop.command("uploads", "list", DEST).out.splitlines()
    assert lines[0] == "4 uploads, 9 B: live 3, foreign 1"
    assert next(line for line in lines if line.endswith(".csv")).endswith("  t/a.csv")
    empty = shop.command("uploads", "list", "s3://bucket/u").out
    assert empty == "No open uploads under s3://bucket/u/\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("list ./bucket/t", ""),
        (f"list {DEST} --older-than yesterday", "36h"),
        (f"expect {DEST}", ""),
        (f"abort {DEST} --yes --foreign", "older_than"),
        (f"abort {DEST} --yes --hadoop", "older_than"),
        (f"list {DEST} --job=", "is empty"),
        (f"expect {DEST} 0 --job=", "is empty"),
        (f"abort {DEST} --yes --older-than 0 --job=", "is empty"),
        (f"abort {DEST}", "--yes"),
    ],
)
def test_wrong_words_are_told_by_their_codes(shop: Shop, words: str, says: str) -> None:
    """2, and nothing is done: the empty ``--job "$JOB"`` of a script whose variable is not set
    would fit each upload of which no job's id is known."""
    orphans = shop.orphans(1)
    shop.later(2 * YOUNG)
    ran = shop.command("uploads", *words.split())
    assert (ran.code, shop.open()) == (2, set(orphans))
    assert says in ran.err


def test_orphans_go_when_they_are_old_enough(shop: Shop) -> None:
    """From their age on, or as the operator says; of more than ``--max-aborts`` none goes."""
    young = set(shop.orphans(25))
    shop.later(YOUNG / 2)
    assert shop.abort().code == 0
    shown = shop.rows("abort", DEST, "--older-than", "20m", "--dry-run")
    assert {row["upload_id"] for row in shown} == young == shop.open()
    assert {row["action"] for row in shown} == {"would abort"}
    ran = shop.abort("--older-than", "20m", "--max-aborts", 24)
    assert (ran.code, ran.out, shop.open()) == (46, "", young)
    assert "25 uploads are to be aborted under s3://bucket/t/ (orphan 25)" in ran.err
    assert shop.store.requests["abort_upload"] == 0
    assert shop.abort("--older-than", "20m", "--max-aborts", 25).code == 0
    assert shop.open() == set()


def test_an_interrupted_abort_goes_on_where_it_was(shop: Shop) -> None:
    """Whatever ends it, the same command does the rest, and tells only of the rest."""
    orphans, number = shop.orphans(40), count()
    shop.later(2 * YOUNG)
    shop.store.before = raising(
        lambda r: r.verb == "abort_upload" and next(number) > 6, KeyboardInterrupt
    )
    assert shop.abort("--no-sizes").code == 130
    shop.store.before = None
    left = shop.open()
    assert 0 < len(left) < len(orphans)
    assert {row["upload_id"] for row in shop.rows("abort", DEST, "--yes")} == left
    assert shop.open() == set()


def test_what_fails_is_left_and_told(shop: Shop) -> None:
    """An abort without an answer does not stop the others; exit code 46; the next run does it."""
    unlucky = min(shop.orphans(12))
    shop.later(2 * YOUNG)
    shop.store.before = raising(
        lambda r: (r.verb, r.upload_id) == ("abort_upload", unlucky), Unanswered("no answer")
    )
    ran = shop.abort("--format", "json")
    assert (ran.code, shop.open()) == (46, {unlucky})
    assert [r["note"] for r in ran.json()["rows"] if r["action"] == "left"] == ["no answer"]
    shop.store.before = None
    assert shop.abort().code == 0
    assert shop.open() == set()


@pytest.mark.parametrize(("deaf", "action"), [(3, "aborted"), (99, "left")])
def test_an_abort_is_believed_when_its_parts_are_gone(shop: Shop, deaf: int, action: str) -> None:
    """Parts in flight outlive an abort: it is sent again; what stays is told, exit code 46."""
    orphans = shop.orphans(2)
    shop.later(2 * YOUNG)
    shop.store.deaf = deaf
    assert set(shop.actions()) == {action}
    assert shop.open() == (set(orphans) if action == "left" else set())


def test_two_aborts_at_once_do_no_harm(shop: Shop) -> None:
    """Both end well, and each upload went once or was found gone."""
    shop.orphans(30)
    stays = shop.store.start_upload("t/foreign.csv")
    shop.later(2 * YOUNG)
    codes: list[int] = []

    def another() -> None:
        shop.store.before = None
        words = ["uploads", "abort", DEST, "--yes", "--quiet"]
        thread = threading.Thread(target=lambda: codes.append(run(words)))
        thread.start()
        thread.join()

    At(shop.store, "abort_upload", another)
    assert shop.abort().code == 0
    assert codes == [0]
    assert shop.open() == {stays}


def test_an_upload_that_began_anew_is_left(shop: Shop) -> None:
    """The age is asked for again right before the abort."""
    orphans = shop.orphans(1)
    shop.later(2 * YOUNG)
    shop.store.young = {one.key for one in shop.store.open_uploads()}
    assert (shop.actions(), shop.open()) == (["left"], set(orphans))


ADVISERS = ("uploads list", "uploads abort --dry-run", "report")
"""Commands that name old uploads of others."""
PASTED = re.compile(r"(?:^  |code\">)magic-committer (.*?)(?:</span>.*)?$", re.MULTILINE)
"""A line that is a command, also on a page."""


@pytest.mark.parametrize("words", ADVISERS)
def test_what_is_foreign_and_old_is_named_with_what_removes_it(shop: Shop, words: str) -> None:
    """How many, how many bytes, and a line that removes these, but nothing young or near a job."""

    def young_ones() -> set[str]:
        return {shop.store.start_upload(f"t/{name}.csv") for name in ("young", "live/near")}

    stays = young_ones()
    young = shop.command(*words.split(), DEST)
    assert not PASTED.findall(young.out + young.err)
    for upload in stays:
        shop.store.drop_upload(upload)
    for number in range(300):
        key = f"t/{number:03}.csv"
        shop.store.put_part(key, shop.store.start_upload(key), 1, memoryview(bytes(1024)))
    shop.later(8 * DAY)
    stays = young_ones()
    mc.start(f"{DEST}/live", job_id="alive")
    ran = shop.command(*words.split(), DEST)
    told = ran.out + ran.err
    assert "older than 7d: 300 foreign uploads" in told
    assert "300.0 KiB" in told or "abort" in words
    (line,) = (one for one in PASTED.findall(told) if "uploads list" not in one)
    assert shop.command(*shlex.split(line), "--yes").code == 0
    assert shop.open() == stays


def test_a_cleanup_counts_old_uploads_without_a_jobs_name(shop: Shop) -> None:
    """It names the command that tells whose they are, and asks about none of them."""
    for number in range(3):
        shop.store.start_upload(f"t/{number}.csv")
    shop.later(8 * DAY)
    ran = shop.command("cleanup", DEST)
    assert "3 uploads of other programs may leak: older than 7d" in ran.out
    assert shop.store.requests["list_parts"] == 0
    (line,) = PASTED.findall(ran.out)
    told = shop.command(*shlex.split(line)).err
    assert "remove them:\n  magic-committer uploads abort" in told


def test_the_command_keeps_the_filters(shop: Shop) -> None:
    """It removes what was listed, and nothing else; an abort that has them gives no advice."""
    shop.store.start_upload("t/a.parquet")
    shop.store.start_upload("t/b.csv")
    shop.later(40 * DAY)
    shop.store.start_upload("t/c.parquet")
    shop.later(8 * DAY)
    dry = shop.abort("--dry-run", "--foreign", "--older-than", "7d")
    assert "--foreign" not in dry.out + dry.err
    dry = shop.abort("--dry-run")
    assert "Would abort 0 uploads. Not touched: foreign 3" in dry.out
    assert "Aborted" not in dry.out
    filters = ("--key-glob", "*.parquet", "--older-than", "30d")
    ran = shop.command("uploads", "list", DEST, *filters)
    assert "1 foreign upload" in ran.err
    (line,) = PASTED.findall(ran.err)
    assert shop.command(*shlex.split(line), "--yes").code == 0
    assert {one.key for one in shop.store.open_uploads()} == {"t/b.csv", "t/c.parquet"}


def test_a_live_job_is_never_touched(shop: Shop) -> None:
    """However the options are, uploads of a job that changed lately stay, and it commits."""
    job = pending_job()
    shop.later(DAY - 120)
    assert shop.actions("--older-than", "0", "--foreign", "--hadoop") == []
    assert job.commit().files == 3


def test_a_dead_job_is_aborted_as_a_whole(shop: Shop) -> None:
    """Its record says `aborting` before an upload of it goes: its driver cannot commit any more."""
    job = pending_job()
    shop.later(2 * DAY)
    for option, action in (("--dry-run", "would abort"), ("--yes", "aborted")):
        told = shop.rows("abort", DEST, option)
        assert [(row["class"], row["action"]) for row in told] == [("over", action)] * 3
    assert mc.attach(DEST, "j").outcome == "aborted"
    with pytest.raises(mc.JobNotRunning):
        job.commit()
    assert visible(shop.store) == {}


def test_a_dead_job_that_cannot_be_decided_keeps_its_uploads(shop: Shop) -> None:
    """Its record may not be written: no upload of it goes, each is told with why, exit code 46."""
    job = pending_job()
    shop.later(2 * DAY)
    forbid(shop.store, "put", words="s3:PutObject is not allowed")
    ran = shop.abort("--format", "json")
    assert (ran.code, len(shop.open())) == (46, 3)
    for row in ran.json()["rows"]:
        assert row["action"] == "left"
        assert "its job could not be aborted: " in row["note"]
        assert "s3:PutObject is not allowed" in row["note"]
    shop.store.before = None
    assert job.commit().files == 3


@pytest.mark.parametrize(
    ("verbs", "action", "words"),
    [
        (("abort_upload",), "left", "s3:AbortMultipartUpload is not allowed"),
        (("delete", "delete_one"), "aborted", "s3:DeleteObject is not allowed"),
    ],
)
def test_a_dead_job_that_is_not_ended_is_told(
    shop: Shop, verbs: tuple[str, ...], action: str, words: str
) -> None:
    """Decided, but not ended: exit code 46, and the job is named with why; who may ends it."""
    pending_job(files=1)
    shop.later(2 * DAY)
    forbid(shop.store, *verbs, words=words)
    ran = shop.abort("--format", "json")
    assert (ran.code, len(shop.open())) == (46, action == "left")
    assert [row["action"] for row in ran.json()["rows"]] == [action]
    assert "job j is still aborting: " in ran.err
    assert words in ran.err
    shop.store.before = None
    if action == "left":
        assert shop.abort().code == 0
        assert (shop.open(), mc.attach(DEST, "j").state) == (set(), "closed")


def test_a_driver_that_wakes_up_loses_nothing(shop: Shop) -> None:
    """A job that was taken for dead commits between listing and abort: all its files are there."""
    job, reads = pending_job(), count()
    shop.store.requests.clear()  # the proof of the store
    shop.later(2 * DAY)
    # At the second read of the record: right before the swap.
    At(
        shop.store,
        lambda r: r.verb == "get" and r.key.endswith("_job.json") and next(reads) == 1,
        job.commit,
    )
    assert set(shop.actions()) == {"gone"}
    assert shop.store.requests["abort_upload"] == 0
    assert (visible(shop.store), job.outcome) == (FILES, "committed")


def test_part_of_a_dead_job_is_not_aborted(shop: Shop) -> None:
    """Where filters or path leave out one of its uploads, the job is left, and it is said how."""
    pending_job()
    mc.start(f"{DEST}/p", job_id="upper")
    committed_task(mc.attach(f"{DEST}/p", "upper"), "0", {"q=1/a.csv": b"abc"})
    shop.later(2 * DAY)
    before = shop.open()
    ran = shop.abort("--key-glob", "*-1.csv")
    assert (ran.code, shop.open()) == (0, before)
    assert "2 of its 3 uploads are not meant" in ran.err
    ran = shop.command("uploads", "abort", f"{DEST}/p/q=1", "--yes")
    assert (ran.code, shop.open()) == (0, before)
    assert "it lies above the path" in ran.err
    assert shop.abort("--job", "j").code == 0
    assert len(shop.open()) == 1


@pytest.mark.parametrize(("job_id", "words"), [("j", "j"), ("-j", "-- -j")])
def test_a_decided_job_is_left_to_recovery(shop: Shop, job_id: str, words: str) -> None:
    """However old, uploads of a job that is decided to commit stay: recovery completes them."""
    job = pending_job(job_id)
    with (
        refusing(shop.store, "complete_upload", KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        job.commit()
    shop.later(9 * DAY)
    ran = shop.abort("--older-than", "0")
    assert (ran.code, len(shop.open())) == (0, 3)
    told, line = ran.err.splitlines()
    assert told == f"job {job_id} under {DEST}/ is committing: recover it"
    assert line == f"  magic-committer job recover {DEST}/ {words}"
    assert shop.command(*line.split()[1:3], "--yes", *line.split()[3:]).code == 0
    assert list(visible(shop.store).values()) == list(FILES.values())


def test_others_uploads_beside_a_live_job_stay_until_it_ends(shop: Shop) -> None:
    """A foreign upload where a live job writes may be the job's: its user chose the name."""
    pending_job()
    near = shop.store.start_upload("t/chosen.csv")
    shop.store.start_upload("u/other.csv")
    shop.later(2 * YOUNG)
    told = {row["key"]: row["note"] for row in shop.rows("list", "s3://bucket")}
    assert told["t/chosen.csv"].startswith("it may be of job j (running)")
    assert told["u/other.csv"] == ""
    everywhere = ("uploads", "abort", "s3://bucket", *FOREIGN)
    assert shop.command(*everywhere).code == 0
    assert (near in shop.open(), len(shop.open())) == (True, 4)
    mc.abort(DEST, "j")
    assert shop.command(*everywhere).code == 0
    assert shop.open() == set()
