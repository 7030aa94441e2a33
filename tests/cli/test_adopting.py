"""``job commit|abort|recover --adopt``: Hadoop's jobs that had made files visible when their JVM
died; and every way out that is told of a Hadoop job, pasted as it was printed."""

from __future__ import annotations

import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import PatientClock, memory_store
from tests.cli.conftest import Command, contents, pasted
from tests.hadoops import RELEASES, HadoopJob, complete, leave_job, leave_marker
from tests.promises.hands import DEST, At, visible
from tests.promises.machine import READS

ADOPT = ("hadoops", "--adopt", "--dead-after", "0")
VERBS = ("commit", "abort", "recover")


@pytest.mark.parametrize("verb", ["abort", "recover"])
@pytest.mark.parametrize("release", [*RELEASES, "adopted before"])
def test_what_is_visible_is_told_and_refused_before_the_question(
    s3: MemoryStore, command: Command, release: str, verb: str
) -> None:
    """I6: "2 of 3 files are visible", exit code 46, and nothing is written; they stay by force."""
    complete(s3, leave_job(s3, release if release in RELEASES else "3.5.0"), 2)
    adopted = release not in RELEASES
    if adopted:
        mc.adopt(DEST, "hadoops", dead_after=0)
    before = contents(s3)
    for last in ("--yes",) if adopted else ("--dry-run", "--yes"):
        told = command("job", verb, DEST, *ADOPT, last)
        assert (told.code, "2 of 3 files are visible already" in told.err) == (46, True)
        assert "nothing of it becomes visible" not in told.out + told.err
    forced = ("job", "abort", DEST, *ADOPT, "--force")
    would = command(*forced, "--dry-run", "--format", "json").json()["would"]
    assert would.endswith("; 2 of 3 files are visible already, and stay")
    assert contents(s3) == before
    told = command(*forced, "--yes")
    assert (told.code, "2 of 3 files are visible already, and stay" in told.out) == (0, True)
    assert (len(visible(s3)), s3.open_uploads()) == (2, ())


@pytest.mark.parametrize("verb", VERBS)
def test_older_application_attempts_are_told_in_the_question(
    s3: MemoryStore, command: Command, verb: str
) -> None:
    """What earlier application attempts committed is aborted: not without a word."""
    leave_job(s3, "3.5.0", content=b"old")
    leave_job(s3, "3.5.0", app_attempt="01", content=b"new")
    dry = command("job", verb, DEST, *ADOPT, "--dry-run", "--format", "json").json()
    words = "its older application attempts had committed 2 tasks, which are aborted:"
    assert f"{words} __magic_job-hadoops/job-hadoops/00/." in dry["warning"]


def leave(s3: MemoryStore, left: str) -> HadoopJob:
    """A job of Hadoop's in which something is odd."""
    hadoops = leave_job(s3, "3.5.0")
    if left == "some files are visible":
        complete(s3, hadoops, 2)
    elif left == "_SUCCESS names it":
        complete(s3, hadoops)
        leave_marker(s3, hadoops, "3.5.0")
    elif left == "an upload is gone":
        s3.drop_upload(min(hadoops.uploads.values()))
    elif left == "no task has committed":
        s3.put_object(f"{hadoops.directory}job-hadoops/00/")
        s3.delete(hadoops.sets)
    return hadoops


@pytest.mark.parametrize(
    "left",
    ["nothing is visible", "some files are visible", "_SUCCESS names it", "an upload is gone",
     "no task has committed"],
)  # fmt: skip
@pytest.mark.parametrize("given", [(), ("--adopt",), ("--adopt", "--dead-after", "0")])
@pytest.mark.parametrize("verb", VERBS)
def test_every_way_out_that_is_told_of_a_hadoop_job_leads_on(
    command: Command, verb: str, given: tuple[str, ...], left: str
) -> None:
    """What is printed is run, and what that prints, in turn, until the job has ended."""
    ends: list[int] = []

    def follow(way: tuple[list[str], ...], told_before: tuple[str, ...]) -> None:
        with memory_store() as s3:
            hadoops = leave(s3, left)
            for call in way:
                told = command(*call, "--yes")
            if left == "_SUCCESS names it":
                assert visible(s3) == hadoops.files
                assert "aborted" not in told.out
        assert told.code in (exits.OK, exits.BAD_STATE), told.err
        if told.code == exits.OK:
            ends.append(told.code)
            return
        assert told.err not in told_before, "it leads nowhere"
        nexts = pasted(told.err)
        assert nexts or "--accept" in told.err, told.err
        for one in nexts:
            follow((*way, one), (*told_before, told.err))

    follow((["job", verb, DEST, "hadoops", *given],), ())
    assert exits.OK in ends


def test_who_was_slower_in_adopting_is_told_a_command_that_works(
    s3: MemoryStore, command: Command
) -> None:
    """Another operator adopts it between the question and the record: the command, run again."""
    hadoops = leave_job(s3, "3.5.0")
    record = "t/__magic_job-hadoops/_job.json"
    At(
        s3,
        lambda r: r.verb not in READS and r.key == record,
        lambda: mc.adopt(DEST, "hadoops", dead_after=0),
    )
    told = command("job", "commit", DEST, *ADOPT, "--yes")
    assert told.code == exits.BAD_STATE
    (again,) = pasted(told.err)
    assert command(*again, "--yes").code == exits.OK
    assert visible(s3) == hadoops.files


def test_a_limit_that_was_given_is_told_again(
    s3: MemoryStore, clock: PatientClock, command: Command
) -> None:
    """What is pasted asks for the same age; where a limit was not given none is told."""
    complete(s3, leave_job(s3, "3.5.0"), 1)
    clock.ahead += 1800.0
    told = command("job", "abort", DEST, "hadoops", "--adopt", "--dead-after", "10m30s", "--yes")
    same = ["hadoops", "--adopt", "--dead-after", "630s"]
    assert [call[3:] for call in pasted(told.err)] == [same, [*same, "--force"]]
    clock.ahead += 86_400.0
    told = command("job", "abort", DEST, "hadoops", "--adopt", "--yes")
    assert next(call[3:] for call in pasted(told.err)) == ["hadoops", "--adopt"]
