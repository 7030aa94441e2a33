"""Real processes killed with SIGKILL at a request drawn by chance: another process ends their job.

What is then on the store: all files or none, byte for byte; no upload; no control object but a
closed record; a marker exactly if the files are visible.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest

import magic_committer as mc
from tests.chaos import jobs, judge
from tests.chaos.conftest import BUCKET
from tests.chaos.jobs import Ending, Round, Way
from tests.chaos.judge import lies
from tests.chaos.proxy import Moment, Striker, through
from tests.chaos.victims import Victim
from tests.nightly import most
from tests.outside import Outside

KILLS_MIN = most(6, 3)
"""Kills in each state."""
TRIES_MAX = 10 * KILLS_MIN
REQUESTS_MIN = 8
"""A recovery sends so many, and one more for each open upload."""
LARGE = Round(0, files=200, tasks=4, threads=4, bytes_each=20)
ENDINGS: tuple[Ending, ...] = ("recover", "abort", "cleanup")


@dataclass
class Field:
    """A bucket where jobs are killed, and others end them."""

    way: Way
    bucket: str
    chance: random.Random
    large: Round = LARGE
    endings: tuple[Ending, ...] = ENDINGS

    def job(self) -> Round:
        """A job of its own destination, and how it is ended."""
        named = f"t{self.chance.getrandbits(48):012x}"
        return replace(self.large, named=named, ending=self.chance.choice(self.endings))

    def dest(self, job: Round) -> str:
        return f"s3://{self.bucket}/{job.dest}"

    def moment(self, phase: int | None, requests: int) -> Moment:
        """Somewhere in a phase of so many requests; None: in all."""
        return Moment(phase, self.chance.randint(1, requests), self.chance.random() < 0.5)

    def killed(self, work: Any, *arguments: object, moment: Moment | None) -> bool:
        """Run a process until it ends or is killed. Gives whether it was."""
        with through(Striker(), self.way.url) as line:
            way = replace(self.way, url=line.url)
            victim = Victim(work, way, *arguments, line=line, moment=moment)
            victim.end()
            return victim.killed

    def state(self, job: Round) -> tuple[str, str]:
        """The id and state of the job that is left; two empty texts if its record is gone."""
        jobs_there = mc.inspect(self.dest(job), s3=self.way.s3())
        found = [(one.id, str(one.state)) for one in jobs_there if one.state != "closed"]
        assert len(found) <= 1
        return found[0] if found else ("", "")

    def end(self, job: Round) -> dict[str, str]:
        """End it from another process, if it is left. All or nothing is there then, and nothing
        else; gives the files."""
        if self.state(job)[0]:
            assert not self.killed(judge.end, self.bucket, job, moment=None)
        found = Outside(self.way.s3(), self.bucket).look(job.dest)
        assert lies("", found, job) == ""
        assert found.left == ()
        return found.files


@pytest.fixture
def field(url: str, chance: random.Random) -> Field:
    """Where this test's jobs run."""
    return Field(Way(url), BUCKET, chance)


@pytest.fixture(scope="module")
def requests(url: str) -> Counter[Any]:
    """How many requests a driver that nobody kills sends in each phase: while the store has
    accepted so many versions of the record."""
    with through(Striker(), url) as line:
        told = jobs.run(Way(line.url), BUCKET, LARGE)
    assert told.outcome == "committed"
    assert Outside(Way(url).s3(), BUCKET).look(LARGE.dest, closed=True).left == ()
    assert line.seen[1] > 2 * LARGE.files
    assert line.seen[2] >= LARGE.files
    return line.seen


@pytest.mark.parametrize(("phase", "state"), [(1, "running"), (2, "committing"), (3, "completed")])
def test_a_killed_driver_s_job_is_ended_by_another_process(
    field: Field, phase: int, state: str, requests: Counter[Any]
) -> None:
    """I2 to I5, I8: while it was running nothing was visible, and nothing is left; while it was
    committing some files were: all become so, or none stays, as the operator says; when it was
    completed all were: the marker comes, and the rest goes. Every second recovery is killed too."""
    kills, wanted = Counter[str](), Counter({state: KILLS_MIN, "recovering": KILLS_MIN // 3})
    for number in range(TRIES_MAX):
        if wanted <= kills:
            break
        job, moment = field.job(), field.moment(phase, requests[phase])
        if field.killed(jobs.run, BUCKET, job, moment=moment):
            kills[field.state(job)[1]] += 1
            if number % 2:
                uploads = len(Outside(field.way.s3(), BUCKET).uploads(job.dest))
                moment = field.moment(None, REQUESTS_MIN + uploads)  # it may be done before
                again = replace(job, ending="recover")
                kills["recovering"] += field.killed(judge.end, BUCKET, again, moment=moment)
        field.end(job)
    print(f"kill -9: {kills}")
    assert wanted <= kills


def test_two_drivers_of_one_job_one_or_both_killed(field: Field) -> None:
    """I2, I5: two processes commit one job at once, and one or both are killed: the other, or who
    recovers, ends it as one would have."""
    kills, whole = 0, LARGE.files + LARGE.tasks
    for number in range(TRIES_MAX):
        if min(number, kills) >= KILLS_MIN:  # where one is slow, the other may have done all
            break
        job = field.job()
        handle = mc.start(field.dest(job), s3=field.way.s3())
        jobs.write_tasks(handle, job)
        moments = field.moment(None, whole // 2), field.moment(None, whole) if number % 2 else None
        with through(Striker(), field.way.url) as one, through(Striker(), field.way.url) as two:
            both = [
                Victim(
                    jobs.commit, Way(line.url), field.dest(job), handle.id, job.tasks,
                    line=line, moment=moment,
                )
                for line, moment in zip((one, two), moments, strict=True)
            ]  # fmt: skip
            for victim in both:
                victim.end()
            kills += sum(victim.killed for victim in both)
        field.end(job)
    assert kills >= KILLS_MIN
