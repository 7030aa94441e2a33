"""``job commit|abort|recover --adopt``: Hadoop's jobs that had made files visible when their JVM
died; and every way out that is told of a Hadoop job, pasted as it was printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock, memory_store
from tests.cli.conftest import Command, Ran
from tests.hadoops import RELEASES, HadoopJob, complete, leave_job, leave_marker
from tests.promises.hands import DEST, control, visible
from tests.promises.machine import DAY, HOUR, READS

ADOPT = ("hadoops", "--adopt", "--dead-after", "0")
VERBS = ("commit", "abort", "recover")
RECORD = "t/__magic_job-hadoops/_job.json"


def contents(store: MemoryStore) -> object:
    """All there is."""
    return {key: store.body(key) for key in store.keys()}, store.open_uploads()


def hints(told: Ran) -> list[list[str]]:
    """The arguments of each command that a message gives."""
    calls = [shlex.split(call) for call in re.findall("`(.*?)`", told.err)]
    assert all(call[0] == "magic-committer" for call in calls)
    return [call[1:] for call in calls]


# Half published -----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["abort", "recover"])
@pytest.mark.parametrize("release", RELEASES)
def test_what_is_visible_is_told_and_refused_before_the_question(
    s3: MemoryStore, command: Command, release: str, verb: str
) -> None:
    """I6: "2 of 3 files are visible", exit code 46, nothing is written, not even with ``--yes``."""
    complete(s3, leave_job(s3, release), 2)
    before = contents(s3)
    for last in ("--dry-run", "--yes"):
        told = command("job", verb, DEST, *ADOPT, last)
        assert (told.code, "2 of 3 files are visible already" in told.err) == (46, True)
        assert "nothing of it becomes visible" not in told.out + told.err
    assert contents(s3) == before


def test_the_word_is_a_flag_and_the_question_says_what_stays(
    s3: MemoryStore, command: Command
) -> None:
    """``--force`` aborts the rest; dry run and report say how many files stay."""
    hadoops = leave_job(s3, "3.4.1")
    stay = complete(s3, hadoops, 2)
    call = ("job", "abort", DEST, *ADOPT, "--force")
    would = command(*call, "--dry-run", "--format", "json").json()["would"]
    assert would.endswith("; 2 of 3 files are visible already, and stay")
    told = command(*call, "--yes")
    assert (told.code, "2 of 3 files are visible already, and stay" in told.out) == (0, True)
    assert visible(s3) == {key: hadoops.files[key] for key in stay}
    assert s3.open_uploads() == ()


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


@pytest.mark.parametrize("release", RELEASES)
def test_a_job_that_its_marker_names_is_swept_and_not_aborted(
    s3: MemoryStore, command: Command, release: str
) -> None:
    """I8: ``abort`` says that it has committed; what it advises takes away what the job left, and
    `_SUCCESS` stays byte for byte."""
    hadoops = leave_job(s3, release)
    complete(s3, hadoops)
    s3.delete_one(hadoops.sets[0])  # the JVM died in its cleanup
    body = leave_marker(s3, hadoops, release)
    before = contents(s3)
    told = command("job", "abort", DEST, *ADOPT, "--force", "--yes")
    assert (told.code, "has committed: _SUCCESS names it" in told.err) == (46, True)
    for verb in ("commit", "recover"):
        dry = command("job", verb, DEST, *ADOPT, "--dry-run", "--format", "json").json()
        assert dry["would"].startswith("It has committed: _SUCCESS names it, and stays as it is.")
    assert contents(s3) == before
    (advice,) = hints(told)
    assert command(*advice, "--yes").code == exits.OK
    assert (visible(s3), s3.body("t/_SUCCESS")) == (hadoops.files, body)
    assert control(s3) == [RECORD]


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


def nothing(s3: MemoryStore, hadoops: HadoopJob) -> None:
    """All its tasks are committed, nothing is visible."""


def half(s3: MemoryStore, hadoops: HadoopJob) -> None:
    """Some files are visible."""
    complete(s3, hadoops, 2)


def wholly(s3: MemoryStore, hadoops: HadoopJob) -> None:
    """`_SUCCESS` names it."""
    complete(s3, hadoops)
    leave_marker(s3, hadoops, "3.5.0")


def lost(s3: MemoryStore, hadoops: HadoopJob) -> None:
    """An upload is gone."""
    s3.drop_upload(min(hadoops.uploads.values()))


def without_tasks(s3: MemoryStore, hadoops: HadoopJob) -> None:
    """No task has committed."""
    s3.put_object(f"{hadoops.directory}job-hadoops/00/")
    for key in hadoops.sets:
        s3.delete_one(key)


LEFT = (nothing, half, wholly, lost, without_tasks)


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("given", [(), ("--adopt",), ("--adopt", "--dead-after", "0")])
@pytest.mark.parametrize("verb", VERBS)
def test_every_way_out_that_is_told_of_a_hadoop_job_leads_on(
    command: Command,
    verb: str,
    given: tuple[str, ...],
    left: Callable[[MemoryStore, HadoopJob], None],
) -> None:
    """Each command in a message is run as it was printed, and those in its message in turn: each
    says something new, and at the end of each way the job has ended. Each way on a store of its
    own."""
    ends: list[int] = []

    def follow(way: tuple[list[str], ...], told_before: tuple[str, ...]) -> None:
        with memory_store() as s3:
            left(s3, leave_job(s3, "3.5.0"))
            for call in way:
                told = command(*call, "--yes") if call[1] != "show" else command(*call)
        assert told.code in (exits.OK, exits.BAD_STATE), told.err
        if told.code == exits.OK or call[1] == "show":
            ends.append(told.code)
            return
        assert told.err not in told_before, "it leads nowhere"
        nexts = hints(told)
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
    assert [call[3:] for call in hints(told)] == [
        ["hadoops", "--adopt", "--dead-after", "630s"],
        ["hadoops", "--adopt", "--dead-after", "630s", "--force"],
    ]
    clock.ahead += DAY
    told = command("job", "abort", DEST, "hadoops", "--adopt", "--yes")
    assert next(call[3:] for call in hints(told)) == ["hadoops", "--adopt"]


def test_who_was_slower_in_adopting_is_told_a_command_that_works(
    s3: MemoryStore, command: Command
) -> None:
    """Another operator adopts it between the question and the record: the command, run again."""
    hadoops = leave_job(s3, "3.5.0")

    def faster(request: Request) -> None:
        if request.verb not in READS and request.key == RECORD:
            s3.before = None
            mc.adopt(DEST, "hadoops", dead_after=0)

    s3.before = faster
    told = command("job", "commit", DEST, *ADOPT, "--yes")
    assert told.code == exits.BAD_STATE
    (again,) = hints(told)
    assert command(*again, "--yes").code == exits.OK
    assert visible(s3) == hadoops.files
