"""Ends what drivers have left, from another process; reads the bucket from outside, by S3's own
client; and says what is not as it was told."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import magic_committer as mc
from tests.outside import TOKEN, Outside, etag
from tests.soak.jobs import BLOCKS
from tests.soak.plan import Ending, Round

SECONDS_MAX = 180.0
PAUSE_SECONDS = 0.5
UNRESOLVED_TRIES = 3
"""How often a job is recovered whose file stays unresolved: then the file is taken as it is."""


class NotEnded(Exception):
    """A job could not be ended within `SECONDS_MAX`."""


class CleanupLeftIt(Exception):
    """A cleanup could not end a job, and said why: somebody must decide, as cron cannot."""


class Ended(NamedTuple):
    """What became of a job. ``outcome``: ``committed``, ``aborted``, ``reverted``, ``unresolved``;
    "" where nobody can tell: it left no record. ``lost``: files of an unresolved job that are not
    what it wrote, without its token."""

    outcome: str
    lost: tuple[str, ...] = ()


class Operator:
    """Whoever is called at night. ``used``: how often it used each way of ending a job."""

    def __init__(self, bucket: str, s3: mc.S3Options) -> None:
        self._bucket = bucket
        self._s3 = s3
        self.used: Counter[str] = Counter()

    def end(self, job: Round, told: str) -> Ended:
        """End the job of a destination, if there is still one. ``told``: by its driver; "" if that
        was killed first. Raises `NotEnded`."""
        dest = f"s3://{self._bucket}/{job.dest}"
        deadline = time.monotonic() + SECONDS_MAX
        outcome, last, ending = "", "", job.ending
        unresolved: Counter[str] = Counter()
        accepted: set[str] = set()
        while time.monotonic() < deadline:
            try:
                left = [one for one in mc.inspect(dest, s3=self._s3) if one.state != "closed"]
                if not left:
                    # Where its driver did not know, nobody does.
                    said = "" if told in ("unknown", "incomplete") else told
                    names = (key.removeprefix(f"{job.dest}/") for key in sorted(accepted))
                    lost = tuple(TOKEN.sub("", name) for name in names)
                    return Ended("unresolved" if lost else outcome or said, lost)
                self.used[ending] += 1
                outcome = self._by(ending, dest, left[0].id, sorted(accepted))
            except mc.CommitIncomplete as error:
                # A file that was unresolved so often is, whatever else the server's restarts left.
                unresolved.update(error.unresolved)
                accepted |= {key for key, times in unresolved.items() if times >= UNRESOLVED_TRIES}
                ending, last = "recover", str(error)
            except (mc.JobNotRunning, CleanupLeftIt) as error:
                ending, last = "recover", str(error)  # it is committed: it cannot be undone
            except mc.MagicError as error:
                last = str(error)  # the server is down, or the job is not done: once more
            time.sleep(PAUSE_SECONDS)
        raise NotEnded(
            f"{dest}: not ended after {SECONDS_MAX:.0f} s; its driver was told {told!r}, its"
            f" operator at last: {last}"
        )

    def sweep(self, job: Round) -> None:
        """A cron job for which everything is old. What it could not do it does the next time."""
        everything = {"dead_after": 0, "leftover_after": 0, "forget_after": 0}
        mc.cleanup(f"s3://{self._bucket}/{job.dest}", **everything, s3=self._s3)  # type: ignore[arg-type]

    def _by(self, ending: Ending, dest: str, job_id: str, accepted: list[str]) -> str:
        if ending == "abort":
            return mc.abort(dest, job_id, revert=True, s3=self._s3).outcome or "aborted"
        if ending == "recover":
            return mc.recover(dest, job_id, dead_after=0, accept=accepted, s3=self._s3).outcome
        report = mc.cleanup(dest, dead_after=0, leftover_after=0, s3=self._s3)
        if report.errors:
            raise CleanupLeftIt("; ".join(report.errors))
        (outcome,) = {one.outcome for one in report.recovered} or {""}
        return outcome


class Found(NamedTuple):
    """What lies below a destination: names without the job's token, and ETags; keys of control
    objects that are no closed record; keys of open uploads; whether `_SUCCESS` is there."""

    files: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    control: tuple[str, ...] = ()
    uploads: tuple[str, ...] = ()
    marked: bool = False


def look(bucket: Outside, dest: str) -> Found:
    """All that is below a destination, of every kind."""
    marked = "_SUCCESS" in bucket.objects(dest)
    control, uploads = tuple(bucket.control(dest)), tuple(bucket.uploads(dest))
    return Found(bucket.files(dest), control, uploads, marked)


def expected(job: Round) -> dict[str, str]:
    """Names and ETags of a committed job's files."""
    return {name: etag(body, BLOCKS.block_bytes) for name, body in job.contents().items()}


def before(job: Round) -> dict[str, str]:
    """Names and ETags of what was there before the job."""
    return {name: hashlib.md5(body).hexdigest() for name, body in job.old.items()}


def lies(told: str, found: Found, job: Round, lost: Collection[str] = ()) -> str:
    """What is not as it was told; "" if all is true. Pure. ``told``: the job's outcome at the end;
    "" if nobody was told one: then all or nothing is true; ``unresolved``: committed, but for the
    files in ``lost``."""
    new, old = expected(job), before(job)
    none = found.files == old and not found.marked
    whole = found.files == new and found.marked
    if told == "unresolved":
        missing = {name for name in new if found.files.get(name) != new[name]} - set(lost)
        return f"missing, and not told as lost: {missing}" if missing else ""
    if {"committed": whole, "": whole or none}.get(told, none):
        return ""
    gone = len(new.keys() - found.files.keys())
    return (
        f"told {told or 'nothing'!r}: of {len(new)} new files {gone} are missing, of {len(old)}"
        f" old ones {len(old.keys() - found.files.keys())}; _SUCCESS: {found.marked}"
    )
