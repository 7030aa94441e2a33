"""``job show|commit|abort|recover``: each on a job in each state, ours and Hadoop's (both layouts).
What may change nothing changes nothing, and every way out that is told can be pasted."""

from __future__ import annotations

import csv
import io
import re
import threading

import orjson
import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.cli.app import FORMATS
from magic_committer.commit.sets import LOADING_SETS_MAX
from magic_committer.errors import PermissionDenied
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.stores.memory import Request
from tests.cli.conftest import Command, contents, forbid, pasted
from tests.hadoops import leave_job
from tests.promises.hands import DEST, committed_task, control, dies_at, job_of, refusing, visible
from tests.promises.machine import DAY, FILES, READS, STATES, YOUNG, Machine

RELEASES = ("3.3.4", "3.4.1")
VERBS = ("commit", "abort", "recover")
ON_BOTH = pytest.mark.parametrize("kind", ["s3", "manifest"], indirect=True)
"""On S3, and on a file system whose jobs rename."""
PATIENCE_SECONDS = 300.0
"""For threads that are to meet."""


@pytest.mark.parametrize("how", FORMATS)
@pytest.mark.parametrize("state", STATES)
def test_a_job_in_each_state_is_shown_in_each_format(
    machine: Machine, command: Command, state: str, how: str
) -> None:
    """State, what a recovery would do, and the files: the same in every format; a dry run too."""
    job = machine.job(state, job_id="mine")
    machine.later(2 * DAY)
    before = contents(machine.s3)
    told = command("job", "show", DEST, job.id, "--format", how)
    dry = command("job", "recover", DEST, job.id, "--dry-run", "--format", how)
    assert (told.code, told.err, dry.code, "mine" in dry.out) == (exits.OK, "", exits.OK, True)
    assert contents(machine.s3) == before
    (found,) = mc.inspect(DEST)
    if how == "table":
        assert re.search(rf"^state +{state}$", told.out, re.MULTILINE)
        assert found.would in told.out
        return
    (shown,) = csv.DictReader(io.StringIO(told.out)) if how == "csv" else [orjson.loads(told.out)]
    assert (shown["id"], shown["kind"]) == ("mine", "ours")
    assert (shown["state"], shown["would"]) == (state, found.would)
    assert abs(float(shown["age"]) - found.age) < 3600


def test_a_job_of_a_streaming_query_tells_its_batch(machine: Machine, command: Command) -> None:
    """Query and number of a decided job, the hash of the checkpoint; `inspect` reads the ledger."""
    job = mc.start(DEST, checkpoint="s3://bucket/ck")
    result = committed_task(job, "0", {"a.csv": b"1"})
    batch = mc.StreamBatch("query-1", 7)
    dies_at(machine.s3, "complete_upload", lambda: job.commit([result], batch=batch))
    (row,) = command("job", "list", DEST, "--format", "json").json()["rows"]
    assert (row["query"], row["batch"]) == ("query-1", 7)
    assert "query-1      7" in command("job", "list", DEST).out
    shown = command("job", "show", DEST, job.id).out
    for line in ("query +query-1", "batch +7", "checkpoint +[0-9a-f]+"):
        assert re.search(rf"^{line}$", shown, re.MULTILINE)
    mc.recover(DEST, job.id)
    told = command("inspect", "s3://bucket/t/__magic_stream/_query-1.json").out
    assert re.search(r"^done +7$", told, re.MULTILINE)


@pytest.mark.parametrize("verb", ["commit", "recover"])
def test_keys_that_are_unresolved_are_named(machine: Machine, command: Command, verb: str) -> None:
    """For people and, beside the error, for programs; also that no file is visible."""
    machine.job("committing", job_id="mine")
    machine.s3.drop_upload(machine.s3.open_uploads("t/2.csv")[0].upload_id)
    shown = command("job", "show", DEST, "mine", "--format", "json").json()
    assert (shown["visible"], shown["missing_keys"]) == (1, ["t/2.csv"])
    dry = command("job", "recover", DEST, "mine", "--dry-run", "--format", "json")
    assert (dry.code, dry.json()["unresolved"]) == (exits.OK, ["t/2.csv"])
    failed = command("job", verb, DEST, "mine", "--yes", "--format", "json")
    assert (failed.code, "magic_committer." in failed.err) == (exits.BAD_STATE, False)
    assert failed.json()["type"] == "job.unfinished"
    assert failed.json()["unresolved"] == ["t/2.csv"]
    told = command("job", "show", DEST, "mine").out
    assert "missing keys  t/2.csv" in told
    assert re.search(r"^outcome", told, re.MULTILINE) is None
    machine.s3.delete(["t/1.csv"])
    assert re.search(r"^visible +0", command("job", "show", DEST, "mine").out, re.MULTILINE)


@pytest.mark.parametrize("verb", ["show", *VERBS])
def test_an_id_that_is_not_there_is_told_with_those_that_are(
    machine: Machine, command: Command, verb: str
) -> None:
    """Exit code 44, and some ids, ours and Hadoop's."""
    machine.job("running", job_id="mine")
    leave_job(machine.s3, "3.3.4")
    for more in ((), () if verb == "show" else ("--adopt",)):
        told = command("job", verb, DEST, "min", *more)
        assert (told.code, told.out) == (exits.NOT_FOUND, "")
        assert "There are: mine, hadoops" in told.err
    assert "none at all" in command("job", verb, "s3://bucket/empty", "min").err


def test_a_record_that_cannot_be_read_is_shown_and_left(machine: Machine, command: Command) -> None:
    """A newer version's record: shown with the problem, refused by what would end it."""
    machine.s3.put_object("t/__magic_job-new/_job.json", b'{"version":9}')
    shown = command("job", "show", DEST, "new", "--format", "json").json()
    assert (shown["kind"], "this library knows 1" in shown["problem"]) == ("unreadable", True)
    before = contents(machine.s3)
    for verb in VERBS:
        assert command("job", verb, DEST, "new", "--yes").code == exits.BAD_STATE
    assert contents(machine.s3) == before


@pytest.mark.parametrize("started", [1e18, -1e300])
def test_a_start_that_is_no_date_is_shown(
    machine: Machine, command: Command, started: float
) -> None:
    """A record may hold any number there: it is shown as it is."""
    job, key = mc.start(DEST, job_id="mine"), "t/__magic_job-mine/_job.json"
    record = {**orjson.loads(machine.s3.body(key)), "started": started}
    machine.s3.put_object(key, orjson.dumps(record), metadata={JOB_METADATA: job.uuid})
    told = command("job", "show", DEST, "mine")
    assert (told.code, told.err) == (exits.OK, "")
    assert f"{started} s after 1970, which is no date" in told.out
    assert command("job", "show", DEST, "mine", "--format", "json").json()["id"] == "mine"


@pytest.mark.parametrize("directory", ["__magic/job-h/", "__magic_job-h/job-h/"])
def test_a_job_that_may_not_be_looked_at_hides_no_other(
    machine: Machine, command: Command, directory: str
) -> None:
    """Whether one without a record is Hadoop's only its objects tell: else it is unreadable."""
    mc.start(DEST, job_id="fine")
    machine.s3.put_object(f"t/{directory}x")
    leave_job(machine.s3, "3.3.4", job_id="other")
    forbid(machine.s3, "head", below=f"t/{directory}", words="s3:GetObject is not allowed")
    told = command("job", "list", DEST, "--format", "json")
    rows = {row["id"]: row for row in told.json()["rows"]}
    kinds = {"fine": "ours", "h": "unreadable", "other": "hadoop"}
    assert (told.code, {name: row["kind"] for name, row in rows.items()}) == (exits.OK, kinds)
    assert "s3:GetObject is not allowed" in rows["h"]["problem"]


def test_tokens_are_looked_for_by_many_requests_at_once(machine: Machine, command: Command) -> None:
    """As many HEADs at once as sets are loaded, and no more."""
    files = 2 * LOADING_SETS_MAX
    for number in range(files):
        machine.s3.put_object(f"t/__magic_job-h/job-h/00/tasks/a/__base/part-{number}")
    together = threading.Barrier(LOADING_SETS_MAX)
    now: set[str] = set()
    most: list[int] = []

    def meet(request: Request) -> None:
        if request.verb == "head":
            now.add(request.key)
            most.append(len(now))
            together.wait(PATIENCE_SECONDS)

    machine.s3.before = meet
    machine.s3.after = lambda request, reply: now.discard(request.key)
    assert command("job", "list", DEST).code == exits.OK
    assert (machine.s3.requests["head"], max(most)) == (files, LOADING_SETS_MAX)


OUTCOMES: dict[str, tuple[str | None, ...]] = {
    "running": ("committed", "aborted", "aborted"),
    "committing": ("committed", None, "committed"),
    "completed": ("committed", None, "committed"),
    "reverting": (None, "reverted", "reverted"),
    "reverted": (None, "reverted", "reverted"),
    "aborting": (None, "aborted", "aborted"),
    "closed": (None, "aborted", "aborted"),
}
"""What each of `VERBS` makes of a dead job; None: refused."""


@ON_BOTH
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", OUTCOMES)
def test_each_command_ends_a_job_or_refuses(
    machine: Machine, command: Command, verb: str, state: str
) -> None:
    """Not before a yes; then it comes to the end that its record allows, and stays there."""
    outcome = OUTCOMES[state][VERBS.index(verb)]
    job = machine.job(state, job_id="mine")
    machine.later(2 * DAY)
    before = contents(machine.s3)
    dry = command("job", verb, DEST, job.id, "--dry-run", "--format", "json")
    if state != "closed" and outcome is not None:
        assert command("job", verb, DEST, job.id).code == exits.USAGE
    assert contents(machine.s3) == before
    told = command("job", verb, DEST, job.id, "--yes", "--format", "json")
    if outcome is None:
        assert (dry.code, told.code) == (exits.BAD_STATE, exits.BAD_STATE)
        assert contents(machine.s3) == before
        return
    assert (dry.code, told.code, told.err) == (exits.OK, exits.OK, "")
    assert (told.json()["outcome"], told.json()["state"]) == (outcome, "closed")
    assert visible(machine.s3) == (FILES if outcome == "committed" else {})
    assert machine.s3.open_uploads() == ()
    after = contents(machine.s3)
    again = command("job", verb, DEST, job.id, "--yes", "--format", "json")
    assert again.json()["outcome"] == outcome
    assert contents(machine.s3) == after


@pytest.mark.parametrize("verb", ["abort", "recover"])
def test_a_job_of_which_something_is_left_is_not_ended(
    machine: Machine, command: Command, verb: str
) -> None:
    """Where its uploads may not be aborted: exit code 46, and the report says what is left."""
    machine.job("running", job_id="mine")
    machine.later(2 * DAY)
    forbid(machine.s3, "abort_upload", words="s3:AbortMultipartUpload is not allowed")
    for _ in range(2):
        told = command("job", verb, DEST, "mine", "--yes", "--format", "json")
        report = told.json()["report"] if verb == "recover" else told.json()
        assert told.code == exits.BAD_STATE
        assert (report["outcome"], report["state"]) == ("aborted", "aborting")
        assert {one.split()[0] for one in report["left_open"]} >= {"t/1.csv", "t/2.csv"}
        assert all("s3:AbortMultipartUpload" in warning for warning in report["warnings"])
    machine.s3.before = None
    assert command("job", verb, DEST, "mine", "--yes").code == exits.OK
    assert machine.s3.open_uploads() == ()


@ON_BOTH
def test_a_commit_says_in_numbers_what_becomes_visible(machine: Machine, command: Command) -> None:
    """Exactly the chosen attempts count: not the pendings of killed ones, nor older attempts."""
    job = machine.job("running")
    committed_task(job, "1", {"1.csv": b"newer"})
    told = command("job", "commit", DEST, job.id, "--dry-run", "--format", "json").json()
    assert (told["tasks"], told["files"], told["adopt"]) == (["1", "2"], 2, False)
    assert told["would"].startswith(f"Commit job {job.id}: make visible 2 files of 2 tasks, ")
    words = command("job", "commit", DEST, job.id, "--dry-run").out
    assert "2 files of 2 tasks" in words


@pytest.mark.parametrize(
    ("why", "asked", "says", "word", "files"),
    [
        ("other tasks", ("--expect", "3"), "3", ("--expect", "2"), 2),
        ("no task", (), "--expect 0", ("--expect", "0"), 0),
        ("a lost upload", (), "t/2.csv", ("--accept", "t/2.csv"), 1),
    ],
)
def test_a_commit_that_is_refused_decides_nothing(
    machine: Machine, command: Command, why: str, asked: tuple[str, ...], says: str,
    word: tuple[str, ...], files: int,
) -> None:  # fmt: skip
    """Exit code 46 and why; on the operator's word the job is taken as it is."""
    job = mc.start(DEST) if why == "no task" else machine.job("running")
    if why == "a lost upload":
        machine.s3.drop_upload(machine.s3.open_uploads("t/2.csv")[0].upload_id)
    before = contents(machine.s3)
    for last in ("--dry-run", "--yes") if why == "other tasks" else ("--yes",):
        told = command("job", "commit", DEST, job.id, *asked, last)
        assert (told.code, says in told.err) == (exits.BAD_STATE, True)
    assert contents(machine.s3) == before
    ran = command("job", "commit", DEST, job.id, *word, "--yes", "--format", "json")
    assert (ran.json()["outcome"], len(visible(machine.s3))) == ("committed", files)


@pytest.mark.parametrize("verb", ["complete_upload", "put"])
def test_an_interrupted_commit_tells_whether_it_is_decided(
    command: Command, machine: Machine, verb: str
) -> None:
    """Ctrl-C before the decision: commit or abort it; after it: recover it. Exit code 130."""
    job, decided = job_of({"a.csv": b"1"}), verb == "complete_upload"
    with refusing(machine.s3, verb, KeyboardInterrupt):
        ran = command("job", "commit", job.dest, job.id, "--yes")
    assert ran.code == exits.INTERRUPTED
    assert ("was not decided" in ran.err) is not decided
    call = "recover" if decided else "abort"
    assert ["job", call, "s3://bucket/t/", job.id] in pasted(ran.err)


@ON_BOTH
def test_what_was_written_over_is_told_before_a_revert(machine: Machine, command: Command) -> None:
    """Before the first request that changes anything: it does not come back."""
    machine.s3.put_object("t/1.csv", b"older")
    machine.job("committing", job_id="mine")
    words = "What the job has written over does not come back"
    revert = ("job", "abort", DEST, "mine", "--revert")
    dry = command(*revert, "--dry-run", "--format", "json").json()
    assert dry["warning"].startswith(words)
    assert dry["would"].startswith("Undo job mine, which is committing: ")
    out = command(*revert, "--dry-run").out
    assert words in out
    assert "1 of its 2 files" in out
    with refusing(machine.s3, lambda r: r.verb not in READS, PermissionDenied):
        told = command(*revert, "--yes")
    assert (told.code, told.err.count(words)) == (exits.FORBIDDEN, 1)
    assert command(*revert, "--yes").code == exits.OK
    assert visible(machine.s3) == {}
    machine.job("committing", job_id="fails", mode="fail")  # which could write over nothing
    told = command("job", "abort", DEST, "fails", "--revert", "--yes")
    assert (told.code, told.err) == (exits.OK, "")
    machine.job("committing", job_id="other")  # and a commit undoes nothing
    dry = command("job", "commit", DEST, "other", "--dry-run", "--format", "json").json()
    assert (dry["warning"], command("job", "commit", DEST, "other", "--yes").err) == ("", "")


@ON_BOTH
def test_a_way_out_goes_to_the_same_store_and_tells_no_secret(
    machine: Machine, command: Command
) -> None:
    """A young job is left; profile and endpoint are repeated, but not one with credentials."""
    machine.job("running", job_id="mine")
    machine.later(5 * 3600)
    way = ("--profile", "ops", "--endpoint-url", "http://store:9000")
    told = command("job", "recover", DEST, "mine", "--yes", *way)
    assert (told.code, "5 h" in told.err) == (exits.BAD_STATE, True)
    (call,) = pasted(told.err)
    assert call[-4:] == list(way)
    secret = ("--endpoint-url", "http://user:secret@store:9000")
    assert "secret" not in command("job", "recover", DEST, "mine", *secret).err
    assert command(*call, "--yes", "--format", "json").json()["outcome"] == "aborted"


def test_a_job_that_its_marker_knows_is_recovered_already(
    machine: Machine, command: Command
) -> None:
    """Without a record `_SUCCESS` may tell that the job has committed: that is no error."""
    with mc.write(DEST) as job, job.open("a.csv") as f:
        f.write(b"1")
    told = command("job", "recover", DEST, job.id, "--format", "json")
    assert (told.code, told.json()["outcome"]) == (exits.OK, "committed")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("verb", VERBS)
def test_hadoops_job_is_ended_only_on_the_operators_word(
    machine: Machine, command: Command, verb: str, release: str
) -> None:
    """Without ``--adopt``, too young, or without a yes it stays as it is; then it is ended."""
    hadoops = leave_job(machine.s3, release, unfinished=True)
    before = contents(machine.s3)
    shown = command("job", "show", DEST, "hadoops", "--format", "json").json()
    assert (shown["kind"], shown["state"], shown["files"]) == ("hadoop", "absent", 3)
    assert f"t/{shown['directory']}" == hadoops.directory
    refused = command("job", verb, DEST, "hadoops", "--yes")
    assert (refused.code, "--adopt" in refused.err) == (exits.BAD_STATE, True)
    young = command("job", verb, DEST, "hadoops", "--adopt", "--yes")
    assert (young.code, "--dead-after 0" in young.err) == (exits.BAD_STATE, True)
    machine.later(YOUNG)
    assert command("job", verb, DEST, "hadoops", "--adopt", "--dry-run").code == exits.OK
    adopt = ("job", verb, DEST, "hadoops", "--adopt", "--dead-after", "0")
    assert command(*adopt).code == exits.USAGE
    dry = command(*adopt, "--dry-run", "--format", "json")
    assert (dry.json()["adopt"], dry.json()["state"]) == (True, "absent")
    assert contents(machine.s3) == before
    told = command(*adopt, "--yes", "--format", "json")
    assert (told.code, told.json()["state"]) == (exits.OK, "closed")
    assert visible(machine.s3) == (hadoops.files if verb == "commit" else {})
    assert machine.s3.open_uploads() == ()
    assert control(machine.s3) == ["t/__magic_job-hadoops/_job.json"]
