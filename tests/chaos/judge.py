"""Ends what drivers have left, from another process; and says what is not as it was told, by what
S3's own client finds."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Collection
from typing import Any

import magic_committer as mc
from tests.chaos.jobs import Ending, Round, Way
from tests.outside import TOKEN, Found

SECONDS_MAX = 180.0
PAUSE_SECONDS = 0.5
UNRESOLVED_TRIES = 3
"""How often a job is recovered whose file stays unresolved: then the file is taken as it is."""
EVERYTHING: dict[str, Any] = {"dead_after": 0, "leftover_after": 0, "forget_after": 0}


class NotEnded(Exception):
    """A job could not be ended within `SECONDS_MAX`."""


class CleanupLeftIt(Exception):
    """A cleanup could not end a job, and said why: somebody must decide, as cron cannot."""


class Operator:
    """Whoever is called at night. ``used``: how often it used each way of ending a job."""

    def __init__(self, bucket: str, s3: mc.S3Options) -> None:
        self._bucket = bucket
        self._s3 = s3
        self.used: Counter[str] = Counter()

    def end(self, job: Round, told: str = "") -> tuple[str, tuple[str, ...]]:
        """End the job of a destination, if there is still one; gives what became of it, and of an
        unresolved one the files that are not what it wrote, without its token.

        ``told``: by its driver; "" if that was killed first. What became of it: ``committed``,
        ``aborted``, ``reverted``, ``unresolved``; "" where nobody can tell: it left no record.
        Raises `NotEnded`.
        """
        dest = f"s3://{self._bucket}/{job.dest}"
        deadline = time.monotonic() + SECONDS_MAX
        outcome, last, ending = "", "", job.ending
        unresolved: Counter[str] = Counter()
        accepted: set[str] = set()
        litter: set[str] = set()  # of jobs without a record, which are ended once: a sweep has it
        while time.monotonic() < deadline:
            try:
                seen = mc.inspect(dest, s3=self._s3)
                left = [one for one in seen if one.state != "closed" and one.id not in litter]
                if not left:
                    # Where its driver did not know, nobody does.
                    said = "" if told in ("unknown", "incomplete") else told
                    names = (key.removeprefix(f"{job.dest}/") for key in sorted(accepted))
                    lost = tuple(TOKEN.sub("", name) for name in names)
                    return "unresolved" if lost else outcome or said, lost
                self.used[ending] += 1
                outcome = self._by(ending, dest, left[0].id, sorted(accepted))
                litter |= {one.id for one in left[:1] if one.state == "absent"}
                continue
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

    def sweep(self, dest: str) -> tuple[str, ...]:
        """A cron job for which everything is old; its errors."""
        url = f"s3://{self._bucket}/{dest}"
        return mc.cleanup(url, **EVERYTHING, s3=self._s3).errors

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


def end(way: Way, bucket: str, job: Round) -> str:
    """What a process does that ends the job of a driver that was killed."""
    return Operator(bucket, way.s3()).end(job)[0]


def lies(told: str, found: Found, job: Round, lost: Collection[str] = ()) -> str:
    """What is not as it was told; "" if all is true. Pure.

    ``told``: the job's outcome at the end; "" if nobody was told one: then all or nothing is true;
    ``unresolved``: committed, but for the files in ``lost``; ``going on``: an operator has still to
    end it, so any of its files and of the old ones may be there, but nothing else.
    """
    new = job.expected()
    old = {name: hashlib.md5(body).hexdigest() for name, body in job.old.items()}
    none = found.files == old and not found.marked
    whole = found.files == new and found.marked
    if told == "going on":
        strange = found.files.items() - new.items() - old.items()
        return f"strange files: {strange}" if strange else ""
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
