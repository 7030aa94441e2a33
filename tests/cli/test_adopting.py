"""``job commit|abort|recover --adopt``: Hadoop's jobs that had made files visible when their JVM
died; and every way out that is told of a Hadoop job, pasted as it was printed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock, memory_store
from tests.cli.conftest import Command, contents, pasted
from tests.hadoops import RELEASES, HadoopJob, complete, leave_job, leave_marker
from tests.promises.hands import DEST, visible
from tests.promises.machine import DAY, HOUR, READS

ADOPT = ("hadoops", "--adopt", "--dead-after", "0")
VERBS = ("commit", "abort", "recover")


# Half published -----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["abort", "recover"])
@pytest.mark.parametrize("release", RELEASES)
def test_what_is_visible_is_told_and_refused_before_the_question(
    s3: MemoryStore, command: Command, release: str, verb: str
) -> None:
    """I6: "2 of 3 files are visible", exit code 46, nothing is written, not even with ``--yes``.
    With ``--force`` dry run and report say how many files stay."""
    complete(s3, leave_job(s3, release), 2)
    before = contents(s3)
    for last in ("--dry-run", "--yes"):
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


@pytest.mark.parametrize("verb", ["abort", "recover"])
def test_a_job_that_was_adopted_before_is_refused_alike(
    s3: MemoryStore, command: Command, verb: str
) -> None:
    """The record changes nothing: what is visible is told before the question."""
    complete(s3, leave_job(s3, "3.5.0"), 1)
    mc.adopt(DEST, "hadoops", dead_after=0)
    before = contents(s3)
    limit = ("--dead-after", "0") if verb == "recover" else ()
    told = command("job", verb, DEST, "hadoops", *limit, "--yes")
    assert (told.code, "1 of 3 files are visible already" in told.err) == (46, True)
    assert contents(s3) == before
    more = ("--force", "--dry-run", "--format", "json")
    dry = command("job", "abort", DEST, "hadoops", *more).json()
    assert "1 of 3 files are visible already, and stay" in str(dry)


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


# Pasting ------------------------------------------------------------------------------------------


def wholly(s3: MemoryStore, hadoops: HadoopJob) -> None:
    """`_SUCCESS` names it."""
    complete(s3, hadoops)
    leave_marker(s3, hadoops, "3.5.0")


def without_tasks(s3: MemoryStore, hadoops: HadoopJob) -> None:
    """No task has committed."""
    s3.put_object(f"{hadoops.directory}job-hadoops/00/")
    for key in hadoops.sets:
        s3.delete_one(key)


LEFT: dict[str, Callable[[MemoryStore, HadoopJob], object]] = {
    "nothing is visible": lambda s3, hadoops: None,
    "some files are visible": lambda s3, hadoops: complete(s3, hadoops, 2),
    "_SUCCESS names it": wholly,
    "an upload is gone": lambda s3, hadoops: s3.drop_upload(min(hadoops.uploads.values())),
    "no task has committed": without_tasks,
}


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("given", [(), ("--adopt",), ("--adopt", "--dead-after", "0")])
@pytest.mark.parametrize("verb", VERBS)
def test_every_way_out_that_is_told_of_a_hadoop_job_leads_on(
    command: Command, verb: str, given: tuple[str, ...], left: str
) -> None:
    """Each command in a message is run as it was printed, and those in its message in turn: each
    says something new, and at the end of each way the job has ended; one that `_SUCCESS` names is
    never called aborted. Each way on a store of its own."""
    ends: list[int] = []

    def follow(way: tuple[list[str], ...], told_before: tuple[str, ...]) -> None:
        with memory_store() as s3:
            hadoops = leave_job(s3, "3.5.0")
            LEFT[left](s3, hadoops)
            marker = contents(s3) if left == "_SUCCESS names it" else None
            for call in way:
                told = command(*call, "--yes") if call[1] != "show" else command(*call)
            if marker is not None:
                assert visible(s3) == hadoops.files
                assert "aborted" not in told.out
        assert told.code in (exits.OK, exits.BAD_STATE), told.err
        if told.code == exits.OK or call[1] == "show":
            ends.append(told.code)
            return
        assert told.err not in told_before, "it leads nowhere"
        nexts = pasted(told.err)
        assert nexts or "--accept" in told.err, told.err
        for one in nexts:
            follow((*way, one), (*told_before, told.err))

    follow((["job", verb, DEST, "hadoops", *given],), ())
    assert exits.OK in ends


def test_a_limit_that_was_given_is_told_again(
    s3: MemoryStore, clock: PatientClock, command: Command
) -> None:
    """What is pasted asks for the same age, not for another that would be refused; and where a
    limit was not given none is told."""
    complete(s3, leave_job(s3, "3.5.0"), 1)
    clock.ahead += HOUR / 2
    told = command("job", "abort", DEST, "hadoops", "--adopt", "--dead-after", "10m30s", "--yes")
    same = ["hadoops", "--adopt", "--dead-after", "630s"]
    assert [call[3:] for call in pasted(told.err)] == [same, [*same, "--force"]]
    clock.ahead += DAY
    told = command("job", "abort", DEST, "hadoops", "--adopt", "--yes")
    assert next(call[3:] for call in pasted(told.err)) == ["hadoops", "--adopt"]


def test_who_was_slower_in_adopting_is_told_a_command_that_works(
    s3: MemoryStore, command: Command
) -> None:
    """Another operator adopts it between the question and the record: the command, run again."""
    hadoops = leave_job(s3, "3.5.0")

    def faster(request: Request) -> None:
        if request.verb not in READS and request.key == "t/__magic_job-hadoops/_job.json":
            s3.before = None
            mc.adopt(DEST, "hadoops", dead_after=0)

    s3.before = faster
    told = command("job", "commit", DEST, *ADOPT, "--yes")
    assert told.code == exits.BAD_STATE
    (again,) = pasted(told.err)
    assert command(*again, "--yes").code == exits.OK
    assert visible(s3) == hadoops.files
