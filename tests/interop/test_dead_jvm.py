"""Jobs of real Hadoop whose JVM was killed in each of their phases, ended by us.

One JVM of each release holds jobs in all phases when it gets SIGKILL: after their files were
written, after their tasks were committed, in the Completes, after `_SUCCESS`, in the middle of the
clean-up. A job is held at its place by a proxy that forwards nothing more of it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import dropwhile

import pytest
from py4j.protocol import Py4JError

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.cli.main import run
from tests.interop import jars, jvm
from tests.interop.jvm import HadoopsJob
from tests.interop.lake import BUCKET, Lake
from tests.interop.wire import Sent, Stop, Wire

HELD_SECONDS_MAX = 300.0
ADOPT = ("--adopt", "--dead-after", "0", "--yes")
Command = Callable[..., tuple[int, str]]
PHASES: dict[str, tuple[str, ...]] = {
    "written": ("abort", "commit"),
    "tasks": ("abort", "commit", "cleanup", "api"),
    "completing": ("abort", "commit", "word"),
    "marked": ("abort", "commit"),
    "cleaning": ("recover", "commit"),
}
"""In each phase a job for each end that a test gives it."""
PLAIN = {"fs_s3a_committer_threads": 1, "fs_s3a_bulk_delete_page_size": 1}
"""One request at a time, and a key in each delete: so that a job can be held in the middle."""


def third_complete(before: list[Sent], now: Sent) -> bool:
    """Two of four files are visible."""
    done = sum(one.verb == "CompleteMultipartUpload" for one in before)
    return now.verb == "CompleteMultipartUpload" and done == 2


def after_success(before: list[Sent], now: Sent) -> bool:
    """`_SUCCESS` is written, nothing else happened since."""
    return any(marks(one) for one in before)


def second_delete(before: list[Sent], now: Sent) -> bool:
    """One object was deleted after `_SUCCESS` was written."""
    since = dropwhile(lambda one: not marks(one), before)
    return now.verb.startswith("Delete") and any(o.verb.startswith("Delete") for o in since)


def marks(one: Sent) -> bool:
    return one.verb == "PutObject" and one.key.endswith("/_SUCCESS")


HELD: dict[str, Callable[[list[Sent], Sent], bool]] = {
    "completing": third_complete, "marked": after_success, "cleaning": second_delete,
}  # fmt: skip


@dataclass(frozen=True)
class Graveyard:
    release: str
    jobs: dict[str, HadoopsJob]

    def job(self, phase: str, end: str) -> tuple[str, HadoopsJob]:
        """The destination below the bucket, and the job."""
        job = self.jobs[f"{phase}-{end}"]
        return job.dest.partition("/")[2], job


@pytest.fixture(scope="module", params=jars.RELEASES)
def dead(request: pytest.FixtureRequest, wired: Wire, lake: Lake) -> Graveyard:
    """A JVM that was killed with jobs in every phase."""
    with jvm.running(request.param, wired.url) as running:
        jobs, committing = {}, []
        for phase, ends in PHASES.items():
            for end in ends:
                dest = f"{request.param}-{phase}-{end}"
                job = HadoopsJob(running, f"{BUCKET}/{dest}", f"uuid-{end}", **PLAIN).setup()
                jobs[f"{phase}-{end}"] = job.tasks(2, commit=phase != "written")
                if phase in HELD:
                    committing.append((job, Stop(f"{dest}/", HELD[phase])))
        wired.stops += [stop for _, stop in committing]
        for job, _ in committing:
            threading.Thread(target=_dies, args=(job,), daemon=True).start()
        for job, stop in committing:
            assert stop.reached.wait(HELD_SECONDS_MAX), job.dest
        running.kill()
        wired.stops.clear()
    return Graveyard(request.param, jobs)


def _dies(job: HadoopsJob) -> None:
    with suppress(Py4JError, OSError):  # the answer never comes
        job.commit()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs ``job VERB`` on a dead JVM's job, which is adopted; gives the code, and all it says."""

    def ran(verb: str, dest: str, job: HadoopsJob, *more: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run(["job", verb, f"s3://{BUCKET}/{dest}", job.id, *ADOPT, *more])
        told = capsys.readouterr()
        return code, told.out + told.err

    return ran


def ended(lake: Lake, dest: str, job: HadoopsJob) -> bool:
    """Whether nothing but the closed record is left of a job."""
    record = f"{dest}/__magic_job-{job.id}/_job.json"
    return lake.control(dest) == [record] and lake.open_uploads(dest) == []


def test_jobs_of_a_dead_jvm_are_shown(
    dead: Graveyard, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    """``job list`` and `inspect` tell in each phase what is left: kind, tasks, files. They change
    nothing."""
    left = {"written": (0, 4), "tasks": (2, 4), "completing": (2, 4), "marked": (2, 4)}
    for phase, (tasks, files) in left.items():
        dest, job = dead.job(phase, "commit")
        before = lake.everything(dest)
        capsys.readouterr()
        assert run(["job", "list", f"s3://{BUCKET}/{dest}", "--format", "jsonl"]) == exits.OK
        told = capsys.readouterr().out
        shown = [line for line in map(json.loads, told.splitlines()) if line.get("id") == job.id]
        assert [(o["kind"], o["tasks"], o["files"]) for o in shown] == [("hadoop", tasks, files)]
        assert lake.everything(dest) == before


@pytest.mark.parametrize("phase", ["written", "tasks"])
def test_what_is_not_committed_is_aborted(
    dead: Graveyard, lake: Lake, command: Command, phase: str
) -> None:
    """Killed before any task was committed, or before the job commit: every upload goes, nothing
    becomes visible."""
    dest, job = dead.job(phase, "abort")
    assert len(lake.open_uploads(dest)) == 4
    code, _ = command("abort", dest, job)
    assert (code, lake.visible(dest)) == (exits.OK, {})
    assert ended(lake, dest, job)


def test_a_job_without_a_committed_task_is_not_committed(
    dead: Graveyard, lake: Lake, command: Command
) -> None:
    """An empty job would be published: it is refused, and nothing is written."""
    dest, job = dead.job("written", "commit")
    before = lake.everything(dest)
    code, told = command("commit", dest, job)
    assert (code, "no committed task" in told) == (exits.BAD_STATE, True)
    assert lake.everything(dest) == before


@pytest.mark.parametrize("end", ["commit", "api"])
@pytest.mark.parametrize("phase", ["tasks", "completing"])
def test_committed_tasks_become_visible_byte_for_byte(
    dead: Graveyard, lake: Lake, command: Command, phase: str, end: str
) -> None:
    """Killed before the job commit, or in the middle of its Completes: all files of its tasks are
    visible, with a `_SUCCESS`, and nothing is left."""
    if (phase, end) == ("completing", "api"):
        end = "abort"  # its abort was refused, or will be
    dest, job = dead.job(phase, end)
    if end == "commit":
        code, _ = command("commit", dest, job)
        assert code == exits.OK
    else:
        mc.adopt(f"s3://{BUCKET}/{dest}", job.id, dead_after=0)
        if phase == "completing":
            with pytest.raises(mc.AlreadyVisible, match="2 of 4 files"):
                mc.abort(f"s3://{BUCKET}/{dest}", job.id)
        assert mc.attach(f"s3://{BUCKET}/{dest}", job.id).commit().files == 4
    assert lake.visible(dest) == job.files
    assert f"{dest}/_SUCCESS" in lake.keys(dest)
    assert ended(lake, dest, job)


def test_cleanup_leaves_hadoops_job_alone(dead: Graveyard, lake: Lake) -> None:
    """I6: without anybody's word nothing of it is touched, whatever its age."""
    dest, _ = dead.job("tasks", "cleanup")
    before = lake.everything(dest)
    report = mc.cleanup(f"s3://{BUCKET}/{dest}", dead_after=0, leftover_after=0)
    assert (report.recovered, report.errors) == ((), ())
    assert lake.everything(dest) == before


def test_a_half_published_job_is_not_torn(dead: Graveyard, lake: Lake, command: Command) -> None:
    """Killed after two of four Completes: "2 of 4 files are visible", refused by abort and recover,
    nothing is changed; by force the two stay and the others go."""
    dest, job = dead.job("completing", "word")
    before = lake.everything(dest)
    for verb in ("abort", "recover"):
        code, told = command(verb, dest, job)
        assert (code, "2 of 4 files are visible already" in told) == (exits.BAD_STATE, True)
        assert lake.everything(dest) == before
    assert command("abort", dest, job, "--force")[0] == exits.OK
    stayed = lake.visible(dest)
    assert len(stayed) == 2
    assert stayed.items() <= job.files.items()
    assert ended(lake, dest, job)


@pytest.mark.parametrize(
    ("phase", "end"),
    [("marked", "commit"), ("marked", "abort"), ("cleaning", "commit"), ("cleaning", "recover")],
)
def test_a_job_that_hadoop_committed_is_swept(
    dead: Graveyard, lake: Lake, command: Command, phase: str, end: str
) -> None:
    """Killed after `_SUCCESS`: it cannot be aborted; what it left goes, and files and Hadoop's
    `_SUCCESS` stay byte for byte."""
    dest, job = dead.job(phase, end)
    marker = lake.read(f"{dest}/_SUCCESS")
    assert len(json.loads(marker)["filenames"]) == 4
    if end == "abort":
        before = lake.everything(dest)
        code, told = command("abort", dest, job)
        assert (code, "has committed: _SUCCESS names it" in told) == (exits.BAD_STATE, True)
        assert lake.everything(dest) == before
    verb = "recover" if end == "recover" else "commit"
    code, told = command(verb, dest, job)
    assert (code, "committed" in told) == (exits.OK, True)
    assert (lake.visible(dest), lake.read(f"{dest}/_SUCCESS")) == (job.files, marker)
    assert ended(lake, dest, job)
