"""A job of another process lives through cleanups every second with limits of some seconds, while a
dead one beside it is taken away."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple
from unittest.mock import patch

import magic_committer as mc
from magic_committer.commit.fence import give_sign_of_life
from tests.chaos.conftest import BUCKET
from tests.chaos.jobs import Way
from tests.chaos.victims import Victim, context
from tests.outside import Outside, etag
from tests.promises.hands import until

DEST = f"s3://{BUCKET}/table"
SIGN_SECONDS = 0.3
LIVES_SECONDS = 8.0
DEAD_SECONDS = 4.0
LIMITS = dict.fromkeys(("dead_after", "leftover_after", "forget_after"), DEAD_SECONDS)
PACE_SECONDS = 0.85
"""Between cleanups: a bit less than a second, so that they fall on all parts of the store's."""
END_SECONDS_MAX = 300
STALLED_SECONDS = DEAD_SECONDS - 1
"""A process that was silent for so long had no time from the machine: its job may be taken."""
RUNS_MAX = 3
"""The first that was not stalled counts."""
FILES = 6


class Ended(NamedTuple):
    """How the live job ended, and for how many seconds it did not sign at most."""

    outcome: str
    silent: float


def live(way: Way, go: Any) -> Iterator[Any]:
    """A driver that signs every 0.3 s, waits with one file open and two tasks not committed, then
    commits; tells its UUID and then how it ended."""
    signs = [time.monotonic()]

    def timed(*job: Any) -> bool:
        going_on = give_sign_of_life(*job)
        signs.append(time.monotonic())
        return going_on

    with (
        patch("magic_committer.job.ALIVE_SECONDS", SIGN_SECONDS),
        patch("magic_committer.job.give_sign_of_life", timed),
    ):
        job = mc.start(DEST, track="s3", accept="results", s3=way.s3())
        silence = job.keep_alive()
        tasks = [job.task(number) for number in range(FILES)]
        files = [task.open(f"part-{n}", unique=True) for n, task in enumerate(tasks)]
        for number, file in enumerate(files):
            file.write(b"%d" % number)
        for file in files[1:]:
            file.close()
        results = [task.commit() for task in tasks[2:]]
        yield job.uuid
        go.wait(END_SECONDS_MAX)
        silent = max(after - before for before, after in pairwise([*signs, time.monotonic()]))
        try:
            files[0].close()
            results += [task.commit() for task in tasks[:2]]
            outcome = job.commit(results).outcome
        except mc.MagicError as error:
            outcome = repr(error)
        silence()
    yield Ended(outcome, silent)


def doomed(way: Way) -> Iterator[str]:
    """A driver that is killed with files written, and one still open."""
    job = mc.start(DEST, track="s3", accept="results", s3=way.s3())
    with job.task(0) as task:
        for number in range(FILES):
            with task.open(f"doomed-{number}", unique=True) as file:
                file.write(b"x")
    with job.task(1).open("doomed-open", unique=True) as open_file:
        open_file.write(b"x" * 9 * 2**20)  # a part of it is on its way
        yield job.uuid
        threading.Event().wait(END_SECONDS_MAX)


def clean(way: Way) -> set[str]:
    """Clean up with all limits so short; the UUIDs of the jobs that were recovered."""
    report = mc.cleanup(DEST, **LIMITS, s3=way.s3())  # type: ignore[arg-type]
    assert report.errors == ()
    return {recovery.uuid for recovery in report.recovered}


def test_a_live_job_is_untouched_and_a_dead_one_goes(url: str) -> None:
    """I6: for 8 s a process cleans every second with all limits at 4 s. A job that signs every
    0.3 s keeps each upload and commits whole; one whose process was killed is gone by then."""
    way, bucket = Way(url), Outside(Way(url).s3(), BUCKET)
    for _ in range(RUNS_MAX):
        bucket.empty()  # of a run that does not count
        ended = beside_cleanups(way, bucket)
        if ended.outcome == "committed" or ended.silent < STALLED_SECONDS:
            break
    assert ended.outcome == "committed", ended
    assert bucket.files("table") == {f"part-{n}": etag(b"%d" % n) for n in range(FILES)}
    assert bucket.uploads() == []


def beside_cleanups(way: Way, bucket: Outside) -> Ended:
    """Run a live job and a dead one beside cleanups every second; how the live one ended."""
    go = context.Event()
    dies, lives = Victim(doomed, way), Victim(live, way, go)
    try:
        dead, alive = dies.hear(), lives.hear()
        dies.kill()
        clean_beside(way, bucket, alive, dead)
        go.set()
        began = time.monotonic()
        while not lives.told():  # it commits, and we go on
            assert time.monotonic() - began < END_SECONDS_MAX
            clean(way)
        ended: Ended = lives.hear()
        return ended
    finally:
        for process in (lives, dies):
            process.kill()


def clean_beside(way: Way, bucket: Outside, alive: str, dead: str) -> None:
    """Clean every second, for 8 s at least and until the dead job is gone; the live one keeps what
    it has, or has lost all of it."""
    until(lambda: sum(alive in key for key in bucket.uploads()) == FILES)
    pace, began = threading.Event(), time.monotonic()
    recovered: set[str] = set()
    while time.monotonic() - began < LIVES_SECONDS or dead not in recovered:
        assert time.monotonic() - began < END_SECONDS_MAX
        before = time.monotonic()
        recovered |= clean(way)
        if alive in recovered:
            return
        assert sum(alive in key for key in bucket.uploads()) == FILES
        pace.wait(max(0.0, PACE_SECONDS - (time.monotonic() - before)))
    assert not [key for key in bucket.uploads() if dead in key]
