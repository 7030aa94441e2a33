"""`cleanup`: what it takes away and what it leaves, its exit codes, and two runs at once."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from contextlib import suppress
from typing import Any

import orjson
import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.cli.cleanup import COUNTS, metrics
from magic_committer.errors import PermissionDenied, PreconditionFailed, Unanswered
from magic_committer.hadoop.formats import UploadEtag, encode_pending, new_pending
from magic_committer.maintenance.cleanup import Cleaning, Limits
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.stores.memory import Request
from magic_committer.testing import MemoryStore, PatientClock, memory_store
from tests.cli.conftest import Command

TABLE = "s3://bucket/table"
DAY = 86_400.0


class StandingClock(PatientClock):
    """One that stands, just before a full second, unless it is moved."""

    def now(self) -> float:
        return 1_795_264_000.95 + self.ahead


def half_written(job_id: str, dest: str = TABLE, files: int = 2) -> mc.Job:
    """A job whose files are written, and whose driver is not heard of again."""
    job = mc.start(dest, job_id=job_id)
    with job.task(0) as task:
        for number in range(files):
            with task.open(f"{job_id}-{number}.csv", "w") as file:
                file.write("x")
    return job


def decided(s3: MemoryStore, job_id: str) -> None:
    """A job that is decided to commit, and of which nothing is visible yet."""
    job = half_written(job_id)

    def crash(request: Request) -> None:
        if request.verb == "complete_upload":
            raise KeyboardInterrupt

    s3.before = crash
    with pytest.raises(KeyboardInterrupt):
        job.commit()
    s3.before = None


# What it does -------------------------------------------------------------------------------------


def test_dead_jobs_go_and_live_ones_stay(
    command: Command, s3: MemoryStore, clock: PatientClock
) -> None:
    """A dead job is aborted with its uploads, one that lives keeps every one of its own."""
    half_written("dead", files=3)
    clock.ahead += 2 * DAY
    live = half_written("live")
    ran = command("cleanup", TABLE, "--format", "json")
    (row,) = ran.json()["rows"]
    assert ran.code == exits.OK
    assert [(job["job_id"], job["outcome"]) for job in row["recovered"]] == [("dead", "aborted")]
    assert row["jobs_left"] == 1
    assert [upload.key for upload in s3.open_uploads()] == [
        "table/live-0.csv", "table/live-1.csv"
    ]  # fmt: skip
    assert live.commit().files == 2


def test_a_dry_run_says_the_same_and_changes_nothing(
    command: Command, s3: MemoryStore, clock: PatientClock
) -> None:
    """With --dry-run the counts are those of the run that follows, and the store is as it was."""
    half_written("dead")
    decided(s3, "decided")
    clock.ahead += 2 * DAY
    before = (s3.keys(), s3.open_uploads())
    dry = command("cleanup", TABLE, "--dry-run", "--format", "json").json()
    assert (s3.keys(), s3.open_uploads()) == before
    wet = command("cleanup", TABLE, "--format", "json").json()
    assert dry["summary"]["jobs_recovered"] == wet["summary"]["jobs_recovered"] == 2
    assert s3.open_uploads() == ()


def test_limits_hold_in_truth_and_not_on_rounded_seconds() -> None:
    """A sign of life 0.1 s ago, shown as 1 s old by clocks that tell whole seconds, is younger than
    a limit of 1 s; one of more than 2 s ago is not."""
    clock = StandingClock()
    with memory_store(clock=clock) as s3:
        half_written("job")
        clock.ahead += 0.1
        assert mc.cleanup(TABLE, dead_after=1, leftover_after=1).jobs_left == 1
        assert len(s3.open_uploads()) == 2
        clock.ahead += 2
        (recovery,) = mc.cleanup(TABLE, dead_after=1, leftover_after=1).recovered
        assert recovery.outcome == "aborted"


def test_decided_jobs_are_finished_or_only_told_of(
    command: Command, s3: MemoryStore, clock: PatientClock
) -> None:
    """With ``finish=False`` a decided job stays as it is, and is named; the command finishes it."""
    decided(s3, "decided")
    clock.ahead += 2 * DAY
    before = (s3.keys(), s3.open_uploads())
    (named,) = mc.cleanup(TABLE, finish=False).unfinished
    assert (named.job_id, named.did.startswith("complete 2 files of 2")) == ("decided", True)
    assert (s3.keys(), s3.open_uploads()) == before
    ran = command("cleanup", TABLE)
    assert ran.code == exits.OK
    assert "1 job recovered" in ran.out
    assert [key for key in s3.keys() if "__magic" not in key] == [
        "table/_SUCCESS", "table/decided-0.csv", "table/decided-1.csv"
    ]  # fmt: skip


# How it ends --------------------------------------------------------------------------------------


def test_a_job_that_nobody_can_decide_is_named(
    command: Command, s3: MemoryStore, clock: PatientClock
) -> None:
    """A job with a file whose upload somebody aborted stays, is named on stderr, and the code is
    46; the job beside it is cleaned."""
    decided(s3, "lost")
    half_written("dead")
    s3.drop_upload(next(u.upload_id for u in s3.open_uploads() if "lost" in u.key))
    clock.ahead += 2 * DAY
    ran = command("cleanup", TABLE)
    assert ran.code == exits.BAD_STATE
    assert "__magic_job-lost" in ran.err
    assert "job dead (running): " in ran.out
    assert s3.open_uploads() == ()


def test_a_job_that_is_not_ended_is_named(
    command: Command, s3: MemoryStore, clock: PatientClock
) -> None:
    """Where uploads may not be aborted the job is decided and stays: it is named on stderr with the
    reason, the code is 46; a later run, which may, ends it."""
    half_written("denied", files=1)
    clock.ahead += 2 * DAY

    def deny(request: Request) -> None:
        if request.verb == "abort_upload":
            raise PermissionDenied("s3:AbortMultipartUpload is not allowed")

    s3.before = deny
    ran = command("cleanup", TABLE, "--format", "json")
    assert ran.code == ran.json()["rows"][0]["code"] == exits.BAD_STATE
    assert "job denied is still aborting: " in ran.err
    assert "s3:AbortMultipartUpload is not allowed" in ran.err
    assert len(s3.open_uploads()) == 1
    s3.before = None
    clock.ahead += 2 * DAY
    assert command("cleanup", TABLE).code == exits.OK
    assert s3.open_uploads() == ()


def test_a_hostile_file_does_not_stop_the_others(
    command: Command, s3: MemoryStore, clock: PatientClock
) -> None:
    """Litter whose sizes are thousands of digits is named with its field, and left; the dead job
    beside it is ended, and `uploads list` shows all."""
    upload = s3.start_upload("table/left.csv")
    pending = new_pending(
        uri="s3a://bucket/table/left.csv", upload_id=upload, bucket="bucket",
        destination_key="table/left.csv", created_ms=0,
        etags=(UploadEtag('"900150983cd24fb0d6963f7d28e17f72"', None, None),), length=3,
        extra_data={"magic-committer.part-bytes": "9" * 5_000}, task_id="t",
    )  # fmt: skip
    hostile = "table/__magic_job-litter/job-litter/00/tasks/a/__base/x.pending"
    s3.put_object(hostile, encode_pending(pending), metadata={JOB_METADATA: "0" * 32})
    half_written("dead", files=1)
    clock.ahead += 2 * DAY
    ran = command("uploads", "list", TABLE, "--format", "json")
    assert ran.code == exits.OK
    classes = {row["key"]: row["class"] for row in ran.json()["rows"]}
    assert classes == {"table/left.csv": "foreign", "table/dead-0.csv": "over"}
    (problem,) = ran.json()["summary"]["problems"]
    assert "extraData.magic-committer.part-bytes" in problem
    ran = command("cleanup", TABLE)
    assert ran.code == exits.BAD_STATE
    assert f"{hostile}: 0: extraData.magic-committer.part-bytes" in ran.err
    assert "job dead (running): " in ran.out
    assert [one.upload_id for one in s3.open_uploads()] == [upload]


def test_a_destination_that_fails_does_not_stop_the_next(
    command: Command, s3: MemoryStore, clock: PatientClock
) -> None:
    """Two destinations, the first forbidden: the second is cleaned, the code is 46; where all fail
    alike the code is theirs, else again 46."""
    half_written("dead")
    clock.ahead += 2 * DAY
    kinds: dict[str, type[mc.StoreError]] = {"no": PermissionDenied, "mute": Unanswered}

    def refuse(request: Request) -> None:
        kind = kinds.get(request.key.split("/")[0])
        if kind is not None:
            raise kind("no", operation="list", bucket="bucket", key=request.key)

    s3.before = refuse
    ran = command("cleanup", "s3://bucket/no", TABLE, "--format", "jsonl")
    lines = [orjson.loads(line) for line in ran.out.splitlines()]
    assert ran.code == exits.BAD_STATE
    assert [(line["type"], line["code"]) for line in lines] == [
        ("cleanup", exits.FORBIDDEN), ("cleanup", exits.OK), ("cleanups.summary", exits.BAD_STATE)
    ]  # fmt: skip
    assert [line["jobs_recovered"] for line in lines] == [0, 1, 1]
    assert lines[-1]["errors_count"] == 1
    assert "s3://bucket/no/: " in ran.err
    assert command("cleanup", "s3://bucket/no", "s3://bucket/no/x").code == exits.FORBIDDEN
    assert command("cleanup", "s3://bucket/mute").code == exits.NO_ANSWER
    assert command("cleanup", "s3://bucket/no", "s3://bucket/mute").code == exits.BAD_STATE


def test_an_error_that_nobody_expected_is_one_destinations(
    command: Command, s3: MemoryStore
) -> None:
    """A fault of our own at one destination is told with its kind, and the next one is cleaned."""

    def break_down(request: Request) -> None:
        if request.key.startswith("a/"):
            raise ZeroDivisionError("as the test wants")

    s3.before = break_down
    ran = command("cleanup", "s3://bucket/a", TABLE, "--format", "json")
    assert [row["code"] for row in ran.json()["rows"]] == [exits.FAILED, exits.OK]
    assert "ZeroDivisionError: as the test wants" in ran.err


@pytest.mark.parametrize("arguments", [[], [TABLE, "--dead-after", "36"], ["table"]])
def test_wrong_arguments_end_before_any_request(
    command: Command, s3: MemoryStore, arguments: list[str]
) -> None:
    """No path, an age without its unit, and what is no URL."""
    assert command("cleanup", *arguments).code == exits.USAGE
    assert s3.requests.total() == 0


# Two at once --------------------------------------------------------------------------------------


def is_swap(request: Request) -> bool:
    """Whether it changes a job's record."""
    is_put = request.verb == "put" and request.if_match is not None
    return is_put and request.key.endswith("/_job.json")


def test_two_cleanups_at_once_do_no_harm(clock: PatientClock) -> None:
    """Two threads at once clean 12 dead jobs and 4 decided ones beside a live one:
    each record is swapped once to its decision and once to its end, by whichever of them, and the
    live one commits whole."""
    with memory_store(clock=clock) as s3:
        for number in range(12):
            half_written(f"dead-{number}")
        for number in range(4):
            decided(s3, f"decided-{number}")
        clock.ahead += 2 * DAY
        live = half_written("live")
        swaps: Counter[tuple[str, str]] = Counter()

        meetings: defaultdict[str, threading.Barrier] = defaultdict(lambda: threading.Barrier(2))

        def meet(request: Request) -> None:
            if is_swap(request):
                with suppress(threading.BrokenBarrierError):  # the other one does not swap it
                    met = any(outcome == "lost" for _, outcome in swaps)
                    meetings[request.key].wait(0.3 if met else 60)

        def count(request: Request, answer: Any) -> None:
            if is_swap(request):
                outcome = "lost" if isinstance(answer, PreconditionFailed) else "won"
                swaps[request.key, outcome] += 1

        s3.before, s3.after = meet, count
        both = threading.Barrier(2)
        reports: list[mc.CleanupReport] = []

        def clean() -> None:
            both.wait(300)
            reports.append(mc.cleanup(TABLE, leftover_after=60))

        threads = [threading.Thread(target=clean) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        s3.before = s3.after = None
        assert len(reports) == 2
        assert [report.errors for report in reports] == [(), ()]
        won = {key: number for (key, outcome), number in swaps.items() if outcome == "won"}
        assert len(won) == 12 + 4
        assert set(won.values()) == {2}
        assert not [key for key in won if "live" in key]
        assert [key for key, outcome in swaps if outcome == "lost"], "they never met"
        assert len(s3.open_uploads()) == 2
        assert live.commit().files == 2
        visible = [key for key in s3.keys() if key.endswith(".csv")]
        assert len(visible) == 4 * 2 + 2


# Metrics ------------------------------------------------------------------------------------------


def test_metrics_tell_what_was_done(command: Command, s3: MemoryStore, clock: PatientClock) -> None:
    """``--format prometheus`` prints each metric with its help and type once, and a value for each
    destination; a failure is success 0."""
    half_written("dead")
    decided(s3, "decided")
    clock.ahead += 2 * DAY
    s3.before = lambda r: _refuse(r) if r.key.startswith("no/") else None
    text = command("cleanup", TABLE, "s3://bucket/no", "--format", "prometheus").out
    samples = parse(text)
    table, no = {"destination": f"{TABLE}/"}, {"destination": "s3://bucket/no/"}
    prefix = "magic_committer_cleanup_"
    assert samples[f"{prefix}success", frozenset(table.items())] == 1
    assert samples[f"{prefix}success", frozenset(no.items())] == 0
    assert samples[f"{prefix}errors", frozenset(no.items())] == 1
    assert samples[f"{prefix}jobs_recovered", frozenset(table.items())] == 2
    assert samples[f"{prefix}last_run_timestamp_seconds", frozenset(table.items())] > 1e9
    names = {name for name, _ in samples}
    assert {line.split()[2] for line in text.splitlines() if line.startswith("# HELP")} == names
    assert {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} == names


@pytest.mark.parametrize("odd", ['a"b', "a\\b", "a\nb", '\\"', "\\n", "a,b}", "ä"])
def test_labels_are_escaped(odd: str) -> None:
    """Quotes, backslashes and line ends in a label come back from the text as they were."""
    row = {"dest": odd, "code": 0, "seconds": 0.1, **dict.fromkeys(COUNTS, 0)}
    told = {dict(labels)["destination"] for _, labels in parse(metrics(0.0, [row]))}
    assert told == {odd}


def _refuse(request: Request) -> None:
    raise PermissionDenied("no", operation="list", bucket="bucket", key=request.key)


def parse(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples of a text in Prometheus's format."""
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for line in text.split("\n"):
        if not line or line.startswith("#"):
            continue
        head, _, value = line.rpartition(" ")
        name, _, labels = head.removesuffix("}").partition("{")
        found: dict[str, str] = {}
        while labels:
            label, _, labels = labels.partition('="')
            content = ""
            while not labels.startswith('"'):
                taken = 2 if labels.startswith("\\") else 1
                escapes = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
                content += escapes.get(labels[:taken], labels[:taken])
                labels = labels[taken:]
            labels = labels[1:].removeprefix(",")
            found[label] = content
        key = (name, frozenset(found.items()))
        assert key not in samples
        samples[key] = float(value)
    return samples


def test_the_limits_reach_the_cleaning(
    command: Command, s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each option sets the limit that it names, and nothing else."""
    seen: list[Limits] = []
    original = Cleaning.__init__

    def spy(self: Cleaning, runtime: Any, dest: Any, limits: Limits, **more: Any) -> None:
        seen.append(limits)
        original(self, runtime, dest, limits, **more)

    monkeypatch.setattr(Cleaning, "__init__", spy)
    command("cleanup", TABLE)
    command(
        "cleanup", TABLE, "--dead-after", "36h", "--leftover-after", "90m", "--forget-after", "2d",
    )  # fmt: skip
    assert seen == [
        Limits(DAY, 3600, DAY, 30 * DAY, True), Limits(36 * 3600, 5400, 2 * DAY, 30 * DAY, True)
    ]  # fmt: skip
