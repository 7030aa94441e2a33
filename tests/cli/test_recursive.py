"""``--recursive``: jobs of all directories below a path; and no all-clear for what was not looked
at."""

from __future__ import annotations

import pytest

import magic_committer as mc
from magic_committer import _wiring
from magic_committer._runtime import Runtime, no_progress
from magic_committer.cli import exits
from magic_committer.errors import PermissionDenied
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.inspect import destination_of, has_deeper, jobs_below
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock, memory_store
from tests.cli.conftest import Command, forbid
from tests.hadoops import leave_job
from tests.promises.hands import failing
from tests.promises.machine import DAY

BUCKET = "s3://bucket"
TABLES = ("lake/events", "lake/flights", "sales")
ROOT = Destination("bucket", "")
ONLY = "only s3://bucket/ itself was looked at; `job list --recursive` looks below"


@pytest.fixture
def lake(s3: MemoryStore) -> MemoryStore:
    """A job in each of three tables, with a file that its task committed; data beside them."""
    for table in TABLES:
        s3.put_object(f"{table}/year=2013/part-0.csv", b"data")
        job = mc.start(f"{BUCKET}/{table}", job_id="nightly")
        with job.task("1") as task, task.open("a.csv", "wb") as file:
            file.write(b"abc")
    return s3


def runtime() -> Runtime:
    """The components for the bucket in memory."""
    return _wiring.runtime_for("bucket", mc.S3Options(), no_progress)


# What is found ------------------------------------------------------------------------------------


def test_all_jobs_below_are_listed(command: Command, lake: MemoryStore) -> None:
    """With --recursive a list of the bucket has the job of each table, with its destination."""
    told = command("job", "list", BUCKET, "--recursive", "--format", "json")
    assert told.code == exits.OK
    document = told.json()
    assert [row["dest"] for row in document["rows"]] == [f"{BUCKET}/{t}/" for t in TABLES]
    assert document["summary"] == {
        "jobs": 3, "by_kind": {"ours": 3}, "recursive": True, "not_looked_at": [],
    }  # fmt: skip
    table = command("job", "list", BUCKET, "--recursive").out
    assert all(f"{BUCKET}/{t}/" in table for t in TABLES)


def test_hadoops_jobs_of_both_layouts_are_found(command: Command, s3: MemoryStore) -> None:
    """A job without a record is below a path as much as one with."""
    leave_job(s3, "3.3.4", job_id="old", dest="a/b/")
    leave_job(s3, "3.4.1", job_id="new", dest="a/c/")
    rows = command("job", "list", f"{BUCKET}/a", "--recursive", "--format", "json").json()["rows"]
    assert [(row["id"], row["dest"], row["kind"]) for row in rows] == [
        ("old", f"{BUCKET}/a/b/", "hadoop"), ("new", f"{BUCKET}/a/c/", "hadoop"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "destination"),
    [
        ("t/__magic_job-1/_job.json", "t/"), ("__magic_job-1/job-1/00/a.pendingset", ""),
        ("a/b/__magic/job-7/00/x.pending", "a/b/"),
        ("t/__magic_job-1/job-1/00/tasks/a/__base/__magic_job-2/x", "t/"),
        ("t/__magic_job-1/", "t/"), ("t/__magic_job-1", None), ("t/__magic/job-7", None),
        ("t/__magic/x/y", None), ("t/my__magic_job-1/x", None),
        ("t/__magic_stream/__magic_job-1/x", None), ("t/x.csv", None),
    ],
)  # fmt: skip
def test_a_key_tells_its_destination(key: str, destination: str | None) -> None:
    """By the first directory of a job that it lies in, whole elements only."""
    assert destination_of(key) == destination


def test_a_path_is_a_directory_below_too(command: Command, lake: MemoryStore) -> None:
    """``lake`` below means nothing of ``lake2``."""
    mc.start(f"{BUCKET}/lake2/events", job_id="other")
    rows = command("job", "list", f"{BUCKET}/lake", "--recursive", "--format", "json").json()[
        "rows"
    ]
    assert {row["dest"] for row in rows} == {f"{BUCKET}/lake/events/", f"{BUCKET}/lake/flights/"}


def test_one_flat_listing_finds_them(clock: PatientClock) -> None:
    """The objects are listed once, a request a page; their number does not grow with the tables."""
    with memory_store(clock=clock, page_keys=10) as store:
        for number in range(40):
            store.put_object(f"t{number:02}/__magic_job-1/_job.json", b"{}")
        listed: list[Request] = []
        store.before = listed.append
        below, problems = jobs_below(runtime(), ROOT)
        assert (len(below), problems) == (40, ())
        assert [request.verb for request in listed] == ["list"] * 4


def test_a_listing_that_meets_its_limit_is_no_all_clear(
    clock: PatientClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found is given, and where the listing stopped. One that is just as long as the limit
    is whole."""
    with memory_store(clock=clock, page_keys=2) as store:
        for name in "abcd":
            store.put_object(f"{name}/__magic_job-1/_job.json", b"{}")
        monkeypatch.setattr("magic_committer.maintenance.inspect.OBJECTS_MAX", 4)
        assert jobs_below(runtime(), ROOT)[1] == ()
        monkeypatch.setattr("magic_committer.maintenance.inspect.OBJECTS_MAX", 2)
        cut, (problem,) = jobs_below(runtime(), ROOT)
        assert "up to the key b/__magic_job-1/_job.json" in problem
        assert len(cut) == 2


def test_a_directory_that_no_destination_can_be_is_told(command: Command, s3: MemoryStore) -> None:
    """A key with an empty element: its job is named as one that was not looked at, exit code 46."""
    s3.put_object("a//b/__magic_job-1/_job.json", b"{}")
    mc.start(f"{BUCKET}/t", job_id="fine")
    told = command("job", "list", BUCKET, "--recursive", "--format", "json")
    assert told.code == exits.BAD_STATE
    assert "s3://bucket/a//b/" in told.err
    assert [row["id"] for row in told.json()["rows"]] == ["fine"]


def test_a_destination_that_is_refused_hides_no_other(command: Command, lake: MemoryStore) -> None:
    """It is told with its URL, the rest is listed, and the exit code is not 0."""
    forbid(lake, "list", below="lake/flights/__magic_job-")
    told = command("job", "list", BUCKET, "--recursive", "--format", "json")
    assert told.code == exits.BAD_STATE
    assert f"{BUCKET}/lake/flights/: not allowed" in told.err
    assert len(told.json()["rows"]) == 2


def test_a_listing_that_fails_is_no_all_clear(command: Command, lake: MemoryStore) -> None:
    """Where the bucket cannot be listed, nothing says that there are no jobs; exit code 43."""
    forbid(lake, "list")
    told = command("job", "list", BUCKET, "--recursive")
    assert (told.code, told.out) == (exits.FORBIDDEN, "No jobs in what could be looked at\n")
    document = command("job", "list", BUCKET, "--recursive", "--format", "json").json()
    assert document["summary"]["not_looked_at"] == [f"{BUCKET}/"]


# What was not looked at ---------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["job list {}", "cleanup {}", "report {}", "job show {} x"])
def test_a_look_that_finds_nothing_says_what_it_left_out(
    command: Command, lake: MemoryStore, words: str
) -> None:
    """A bucket above its tables, without --recursive: one line says that only it was looked at; in
    JSON it is a field of the summary."""
    told = command(*words.format(BUCKET).split())
    assert [line for line in told.err.splitlines() if "--recursive" in line] == [f"note: {ONLY}"]
    if "show" not in words and "report" not in words:
        document = command(*words.format(BUCKET).split(), "--format", "json").json()
        assert document["summary"]["not_looked_at"] == [f"{BUCKET}/"]


def test_a_cleanup_of_a_table_from_cron_is_silent(command: Command, s3: MemoryStore) -> None:
    """A table has partitions below it, and nothing is to be cleaned: no line on stderr, which cron
    would send by mail; in JSON the field tells."""
    s3.put("table/dt=1/a.csv", b"1")
    told = command("cleanup", f"{BUCKET}/table", "--format", "json")
    assert told.err == ""
    assert told.json()["summary"]["not_looked_at"] == [f"{BUCKET}/table/"]


@pytest.mark.parametrize("words", ["job list", "cleanup", "report"])
def test_a_path_with_nothing_below_is_an_all_clear(
    command: Command, s3: MemoryStore, words: str
) -> None:
    """No line is told where there is nothing that was not looked at."""
    s3.put_object("t/a.csv", b"data")
    told = command(*words.split(), f"{BUCKET}/t")
    assert (told.code, told.err) == (exits.OK, "")


def test_jobs_of_its_own_are_no_directories_below(s3: MemoryStore) -> None:
    """What lies in committers' directories was looked at; any other directory was not."""
    s3.put_object("t/__magic_job-1/_job.json", b"{}")
    s3.put_object("t/a.csv", b"data")
    assert not has_deeper(runtime(), Destination("bucket", "t/"))
    s3.put_object("t/deep/a.csv", b"data")
    assert has_deeper(runtime(), Destination("bucket", "t/"))


# Show, clean up, report, inspect ------------------------------------------------------------------


def test_a_cleanup_takes_the_dead_jobs_below(
    command: Command, lake: MemoryStore, clock: PatientClock
) -> None:
    """Those of every table, each under its own destination, and the path; a live one stays. With
    --dry-run the same jobs are counted, and the store is as it was."""
    clock.ahead += 2 * DAY
    live = mc.start(f"{BUCKET}/sales", job_id="live")
    before = (lake.keys(), lake.open_uploads())
    dry = command("cleanup", BUCKET, "--recursive", "--dry-run", "--format", "json").json()
    assert dry["summary"]["jobs_recovered"] == 3
    assert (lake.keys(), lake.open_uploads()) == before
    document = command("cleanup", BUCKET, "--recursive", "--format", "json").json()
    assert [(row["dest"], row["jobs_recovered"]) for row in document["rows"]] == [
        (f"{BUCKET}/", 0), *((f"{BUCKET}/{t}/", 1) for t in TABLES),
    ]  # fmt: skip
    assert lake.open_uploads() == ()
    assert mc.attach(f"{BUCKET}/sales", live.id).state == "running"


def test_what_is_named_twice_is_cleaned_once(
    command: Command, lake: MemoryStore, clock: PatientClock
) -> None:
    """A path that lies below another one is cleaned once, where it was named."""
    clock.ahead += 2 * DAY
    told = command("cleanup", BUCKET, f"{BUCKET}/sales", "--recursive", "--format", "json").json()
    dests = [row["dest"] for row in told["rows"]]
    assert sorted(dests) == sorted(set(dests))
    assert told["summary"]["jobs_recovered"] == 3


def test_a_cleanup_that_cannot_look_below_says_so(command: Command, lake: MemoryStore) -> None:
    """The listing is refused: the path itself is cleaned all the same, exit code 46."""
    failing(lake, "list", "", PermissionDenied("not allowed"))
    told = command("cleanup", BUCKET, "--recursive", "--format", "json")
    assert told.code == exits.BAD_STATE
    (row,) = told.json()["rows"]
    assert (row["dest"], row["errors_count"], row["errors"]) == (
        f"{BUCKET}/", 1, ["not allowed"],
    )  # fmt: skip


def test_a_report_has_the_jobs_below(command: Command, lake: MemoryStore) -> None:
    """With --recursive the page has each table's job, with its destination."""
    told = command("report", BUCKET, "--recursive")
    assert told.code == exits.OK
    assert all(f"{BUCKET}/{t}/" in told.out for t in TABLES)
