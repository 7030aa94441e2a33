"""`cleanup`: what it prints, its exit codes, and several destinations in one run."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.cli.cleanup import COUNTS, metrics
from magic_committer.errors import PermissionDenied, Unanswered
from magic_committer.maintenance.cleanup import Cleaning, Limits
from magic_committer.stores.memory import Request
from magic_committer.testing import MemoryStore, PatientClock, memory_store
from tests.cli.conftest import Command, contents
from tests.cli.shop import GONE, put_pending
from tests.promises.hands import DEST, raising, visible
from tests.promises.machine import DAY, FILES, YOUNG, Machine


@pytest.fixture
def two(machine: Machine) -> Machine:
    """A dead job that runs, and one that is decided to commit: both two days old."""
    machine.job("running", job_id="dead")
    machine.job("committing", job_id="decided")
    machine.later(2 * DAY)
    return machine


@pytest.mark.parametrize("kind", ["s3", "manifest"], indirect=True)
def test_a_dry_run_says_the_same_and_changes_nothing(command: Command, two: Machine) -> None:
    """With --dry-run the counts are those of the run that follows, which leaves what lives."""
    mc.start(DEST, job_id="live")
    before = contents(two.s3)
    dry = command("cleanup", DEST, "--dry-run", "--format", "json").json()
    (named,) = mc.cleanup(DEST, finish=False, dry_run=True).unfinished
    assert (named.job_id, named.did.startswith("complete 1 file of 2")) == ("decided", True)
    assert contents(two.s3) == before
    ran = command("cleanup", DEST, "--format", "json")
    (row,) = ran.json()["rows"]
    assert (ran.code, row["jobs_left"]) == (exits.OK, 1)
    assert dry["summary"]["jobs_recovered"] == ran.json()["summary"]["jobs_recovered"] == 2
    ended = {job["job_id"]: job["outcome"] for job in row["recovered"]}
    assert ended == {"dead": "aborted", "decided": "committed"}
    assert (visible(two.s3), two.s3.open_uploads()) == (FILES, ())


class StandingClock(PatientClock):
    """One that stands, just before a full second, unless it is moved."""

    def now(self) -> float:
        return 1_795_264_000.95 + self.ahead


def test_limits_hold_in_truth_and_not_on_rounded_seconds() -> None:
    """A sign of life 0.1 s ago, which clocks of whole seconds show as 1 s, is younger than 1 s."""
    clock = StandingClock()
    with memory_store(clock=clock) as s3:
        Machine(s3, clock).job("running")
        clock.ahead += 0.1
        assert mc.cleanup(DEST, dead_after=1, leftover_after=1).jobs_left == 1
        assert len(s3.open_uploads()) == 3
        clock.ahead += 2
        (recovery,) = mc.cleanup(DEST, dead_after=1, leftover_after=1).recovered
        assert recovery.outcome == "aborted"


def test_a_job_that_nobody_can_decide_is_named(command: Command, two: Machine) -> None:
    """One whose upload somebody aborted stays, code 46; the job beside it is cleaned."""
    planned = [u for u in two.s3.open_uploads("t/2.csv") if u.key == "t/2.csv"]
    two.s3.drop_upload(planned[-1].upload_id)
    ran = command("cleanup", DEST)
    assert ran.code == exits.BAD_STATE
    assert "__magic_job-decided" in ran.err
    assert "job dead (running): " in ran.out
    assert not [one for one in two.s3.open_uploads() if one.key in FILES]


def test_a_hostile_file_does_not_stop_the_others(command: Command, machine: Machine) -> None:
    """Litter whose sizes are thousands of digits is named with its field, and left."""
    s3, place = machine.s3, "t/__magic_job-litter/job-litter/00/tasks/a/__base"
    upload = s3.start_upload("t/left.csv")
    digits = {"magic-committer.part-bytes": "9" * 5_000}
    put_pending(s3, place, "t/left.csv", upload, uuid=GONE, extra=digits)
    machine.job("running", job_id="dead")
    machine.later(2 * DAY)
    ran = command("uploads", "list", DEST, "--format", "json")
    assert ran.code == exits.OK
    classes = {row["key"]: row["class"] for row in ran.json()["rows"]}
    assert (classes.pop("t/left.csv"), set(classes.values())) == ("foreign", {"over"})
    (problem,) = ran.json()["summary"]["problems"]
    assert "extraData.magic-committer.part-bytes" in problem
    ran = command("cleanup", DEST)
    assert ran.code == exits.BAD_STATE
    assert f"{place}/x.pending: 0: extraData.magic-committer.part-bytes" in ran.err
    assert "job dead (running): " in ran.out
    assert [one.upload_id for one in s3.open_uploads()] == [upload]


def test_a_destination_that_fails_does_not_stop_the_next(command: Command, two: Machine) -> None:
    """The next one is cleaned, the code is 46; where all fail alike the code is theirs."""
    kinds = {"no": PermissionDenied("no"), "mute": Unanswered("no"), "odd": ZeroDivisionError("x")}

    def refuse(request: Request) -> None:
        if (error := kinds.get(request.key.split("/")[0])) is not None:
            raise error

    two.s3.before = refuse
    ran = command("cleanup", "s3://bucket/no", "s3://bucket/odd", DEST, "--format", "jsonl")
    lines = [orjson.loads(line) for line in ran.out.splitlines()]
    assert ran.code == exits.BAD_STATE
    assert [(line["type"], line["code"], line["jobs_recovered"]) for line in lines] == [
        ("cleanup", exits.FORBIDDEN, 0), ("cleanup", exits.FAILED, 0), ("cleanup", exits.OK, 2),
        ("cleanups.summary", exits.BAD_STATE, 2),
    ]  # fmt: skip
    assert lines[-1]["errors_count"] == 2
    assert "s3://bucket/no/: " in ran.err
    assert "ZeroDivisionError: x" in ran.err
    for dests, code in (
        (("no", "no/x"), exits.FORBIDDEN), (("mute",), exits.NO_ANSWER),
        (("no", "mute"), exits.BAD_STATE),
    ):  # fmt: skip
        assert command("cleanup", *(f"s3://bucket/{dest}" for dest in dests)).code == code


def test_the_limits_reach_the_cleaning(
    command: Command, s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each option sets the limit that it names, and nothing else."""
    seen: list[Limits] = []

    def spy(cleaning: Cleaning, *given: Any, **more: Any) -> None:
        seen.append(given[2])
        raise PermissionDenied("enough")

    monkeypatch.setattr(Cleaning, "__init__", spy)
    command("cleanup", DEST)
    command(*f"cleanup {DEST} --dead-after 36h --leftover-after 90m --forget-after 2d".split())
    assert seen == [
        Limits(DAY, YOUNG, DAY, 30 * DAY, True), Limits(36 * 3600, 5400, 2 * DAY, 30 * DAY, True)
    ]  # fmt: skip


def test_metrics_tell_what_was_done(command: Command, two: Machine) -> None:
    """Each metric has its help and type once, and a value for each destination."""
    two.s3.before = raising("* no/*", PermissionDenied("no"))
    text = command("cleanup", DEST, "s3://bucket/no", "--format", "prometheus").out
    samples = parse(text)

    def told(name: str, url: str) -> float:
        return samples[f"magic_committer_cleanup_{name}", url]

    assert (told("success", f"{DEST}/"), told("success", "s3://bucket/no/")) == (1, 0)
    assert told("errors", "s3://bucket/no/") == 1
    assert told("jobs_recovered", f"{DEST}/") == 2
    assert told("last_run_timestamp_seconds", f"{DEST}/") > 1e9
    names = {name for name, _ in samples}
    for head in ("# HELP", "# TYPE"):
        assert {line.split()[2] for line in text.splitlines() if line.startswith(head)} == names


@pytest.mark.parametrize("odd", ['a"b', "a\\b", "a\nb", '\\"', "\\n", "a,b}", "ä"])
def test_labels_are_escaped(odd: str) -> None:
    """Quotes, backslashes and line ends in a label come back from the text as they were."""
    row = {"dest": odd, "code": 0, "seconds": 0.1, **dict.fromkeys(COUNTS, 0)}
    assert {dest for _, dest in parse(metrics(0.0, [row]))} == {odd}


def parse(text: str) -> dict[tuple[str, str], float]:
    """The samples of a text in Prometheus's format, by name and destination."""
    samples: dict[tuple[str, str], float] = {}
    for line in text.split("\n"):
        if not line or line.startswith("#"):
            continue
        read = re.fullmatch(r'(\w+)\{destination="((?:\\.|[^"\\])*)"\} (\S+)', line)
        assert read, line
        key = (read[1], re.sub(r"\\(.)", lambda found: found[1].replace("n", "\n"), read[2]))
        assert key not in samples
        samples[key] = float(read[3])
    return samples
