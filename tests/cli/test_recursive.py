"""``--recursive``: jobs of all directories below a path; and no all-clear for what was not looked
at."""

from __future__ import annotations

import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.errors import PermissionDenied
from magic_committer.hadoop.paths import Destination, unique_name
from magic_committer.maintenance.inspect import destination_of, jobs_below
from magic_committer.runtime.components import Runtime
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import PatientClock, memory_store
from tests.cli.conftest import Command, forbid
from tests.hadoops import leave_job
from tests.promises.hands import failing
from tests.promises.machine import DAY

BUCKET = "s3://bucket"
TABLES = ("lake/events", "lake/flights", "sales")
ROOT = Destination("bucket", "")
ONLY = (
    "only s3://bucket/ itself was looked at;"
    " `magic-committer job list s3://bucket/ --recursive` looks below"
)


@pytest.fixture
def lake(s3: MemoryStore) -> MemoryStore:
    """A job in each of three tables, with a file that its task committed; data beside them."""
    for table in TABLES:
        s3.put_object(f"{table}/year=2013/part-0.csv", b"data")
        job = mc.start(f"{BUCKET}/{table}", job_id="nightly")
        with job.task("1") as task, task.open("a.csv", "wb") as file:
            file.write(b"abc")
    return s3


def test_all_jobs_below_are_listed(command: Command, lake: MemoryStore) -> None:
    """Hadoop's of both layouts too, in lists and reports; ``lake`` never means ``lake2``."""
    mc.start(f"{BUCKET}/lake2/events", job_id="other")
    leave_job(lake, "3.3.4", job_id="old", dest="a/b/")
    leave_job(lake, "3.4.1", job_id="new", dest="a/c/")
    document = command("job", "list", f"{BUCKET}/lake", "--recursive", "--format", "json").json()
    assert [row["dest"] for row in document["rows"]] == [f"{BUCKET}/{t}/" for t in TABLES[:2]]
    assert document["summary"] == {
        "jobs": 2, "by_kind": {"ours": 2}, "recursive": True, "not_looked_at": [],
    }  # fmt: skip
    rows = command("job", "list", f"{BUCKET}/a", "--recursive", "--format", "json").json()["rows"]
    assert [(row["id"], row["dest"], row["kind"]) for row in rows] == [
        ("old", f"{BUCKET}/a/b/", "hadoop"), ("new", f"{BUCKET}/a/c/", "hadoop"),
    ]  # fmt: skip
    for words in ("job list", "report"):
        told = command(*words.split(), BUCKET, "--recursive")
        assert told.code == exits.OK
        assert all(f"{BUCKET}/{t}/" in told.out for t in (*TABLES, "lake2/events"))


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


def test_one_flat_listing_finds_them(clock: PatientClock) -> None:
    """The objects are listed once, a request a page; their number does not grow with the tables."""
    with memory_store(clock=clock, page_keys=10) as store:
        for number in range(40):
            store.put_object(f"t{number:02}/__magic_job-1/_job.json", b"{}")
        store.requests.clear()
        below, problems = jobs_below(Runtime(store), ROOT)
        assert (len(below), problems) == (40, ())
        assert store.requests == {"list": 4}


def test_a_directory_that_no_destination_can_be_is_told(command: Command, s3: MemoryStore) -> None:
    """A key with an empty element: its job is named as one that was not looked at, exit code 46."""
    s3.put_object("a//b/__magic_job-1/_job.json", b"{}")
    mc.start(f"{BUCKET}/t", job_id="fine")
    told = command("job", "list", BUCKET, "--recursive", "--format", "json")
    assert told.code == command("report", BUCKET, "--recursive").code == exits.BAD_STATE
    assert "s3://bucket/a//b/" in told.err
    assert [row["id"] for row in told.json()["rows"]] == ["fine"]


def test_a_destination_that_is_refused_hides_no_other(command: Command, lake: MemoryStore) -> None:
    """It is told with its URL, the rest is listed, and the exit code is not 0; on a page too."""
    forbid(lake, "list", below="lake/flights/__magic_job-")
    told = command("job", "list", BUCKET, "--recursive", "--format", "json")
    assert told.code == exits.BAD_STATE
    assert f"{BUCKET}/lake/flights/: not allowed" in told.err
    assert len(told.json()["rows"]) == 2
    page = command("report", BUCKET, "--recursive")
    assert page.code == exits.BAD_STATE
    assert f"The jobs under {BUCKET}/lake/flights/ are unknown: not allowed" in page.out
    assert all(f"{BUCKET}/{t}/" in page.out for t in TABLES)
    page = command("report", f"{BUCKET}/lake/flights")
    assert (page.code, "No job has a directory" in page.out) == (exits.BAD_STATE, False)
    assert "none is waiting" not in page.out
    forbid(lake, "list", "list_uploads", below="lake/flights/")
    assert command("report", f"{BUCKET}/lake/flights").code == exits.FORBIDDEN


def test_a_listing_that_fails_is_no_all_clear(command: Command, lake: MemoryStore) -> None:
    """Where the bucket cannot be listed, nothing says that there are no jobs; exit code 43."""
    forbid(lake, "list")
    told = command("job", "list", BUCKET, "--recursive")
    assert (told.code, told.out) == (exits.FORBIDDEN, "No jobs in what could be looked at\n")
    document = command("job", "list", BUCKET, "--recursive", "--format", "json").json()
    assert document["summary"]["not_looked_at"] == [f"{BUCKET}/"]


@pytest.mark.parametrize("words", ["job list", "cleanup", "report", "job show"])
def test_a_look_that_finds_nothing_says_what_it_left_out(
    command: Command, lake: MemoryStore, words: str
) -> None:
    """One line, or a field of the summary, says that only the path itself was looked at; not of a
    table from cron, whose line would be a mail, nor where nothing is below."""
    more = ["x"] if words == "job show" else []
    told = command(*words.split(), BUCKET, *more)
    assert [line for line in told.err.splitlines() if "--recursive" in line] == [f"note: {ONLY}"]
    if words in ("cleanup", "job list"):
        document = command(*words.split(), BUCKET, "--format", "json").json()
        assert document["summary"]["not_looked_at"] == [f"{BUCKET}/"]
    lake.put("table/dt=1/a.csv", b"1")
    if words == "cleanup":
        cron = command("cleanup", f"{BUCKET}/table", "--format", "json")
        assert (cron.err, cron.json()["summary"]["not_looked_at"]) == ("", [f"{BUCKET}/table/"])
    if words != "job show":
        told = command(*words.split(), f"{BUCKET}/table/dt=1")
        assert (told.code, told.err) == (exits.OK, "")


def test_a_cleanup_takes_the_dead_jobs_below(
    command: Command, lake: MemoryStore, clock: PatientClock
) -> None:
    """Those of every table, once each, and uploads once; a live one stays; a dry run counts the
    same."""
    lake.start_upload(f"sales/{unique_name('orphan.csv', '5' * 32)}")
    clock.ahead += 2 * DAY
    live = mc.start(f"{BUCKET}/sales", job_id="live")
    before = (lake.keys(), lake.open_uploads())
    clean = ("cleanup", BUCKET, f"{BUCKET}/sales", "--recursive", "--format", "json")
    dry = command(*clean, "--dry-run").json()
    counts = dry["summary"]["jobs_recovered"], dry["summary"]["uploads_aborted"]
    assert counts == (3, 1)
    assert (lake.keys(), lake.open_uploads()) == before
    document = command(*clean).json()
    assert sorted((row["dest"], row["jobs_recovered"]) for row in document["rows"]) == [
        (f"{BUCKET}/", 0), *((f"{BUCKET}/{t}/", 1) for t in TABLES),
    ]  # fmt: skip
    assert lake.open_uploads() == ()
    assert mc.attach(f"{BUCKET}/sales", live.id).state == "running"


def test_a_cleanup_that_cannot_look_below_says_so(command: Command, lake: MemoryStore) -> None:
    """The listing is refused: the path itself is cleaned all the same, exit code 46."""
    failing(lake, "list", "", PermissionDenied("not allowed"))
    told = command("cleanup", BUCKET, "--recursive", "--format", "json")
    (row,) = told.json()["rows"]
    assert (told.code, row["dest"]) == (exits.BAD_STATE, f"{BUCKET}/")
    assert (row["errors_count"], row["errors"]) == (1, ["not allowed"])
