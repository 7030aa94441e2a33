"""Ends what drivers have left, from another process, and says what became of each job."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

import magic_committer as mc
from magic_committer.options import S3Options
from tests.outside import TOKEN
from tests.soak.plan import Ending, Round

SECONDS_MAX = 180.0
PAUSE_SECONDS = 0.5
UNRESOLVED_TRIES = 3
"""How often a job is recovered whose file stays unresolved: then the file is taken as it is."""


class NotEnded(Exception):
    """A job could not be ended within `SECONDS_MAX`."""


class CleanupLeftIt(Exception):
    """A cleanup could not end a job, and said why: somebody must decide, as cron cannot."""


@dataclass(frozen=True)
class Ended:
    """What became of a job.

    Attributes:
        outcome: ``committed``, ``aborted``, ``reverted``, ``unresolved``; "" where nobody can tell:
            it left no record.
        lost: files of an unresolved job that are not what it wrote, without its token.
    """

    outcome: str
    lost: tuple[str, ...] = ()


class Operator:
    """Whoever is called at night.

    Attributes:
        used: how often each way of ending a job was used.
    """

    def __init__(self, bucket: str, s3: S3Options) -> None:
        self._bucket = bucket
        self._s3 = s3
        self.used: Counter[str] = Counter()

    def end(self, job: Round, told: str) -> Ended:
        """End the job of a destination, if there is still one.

        Args:
            told: by its driver; "" if it was killed first.

        Raises:
            NotEnded: it does not end.
        """
        dest = f"s3://{self._bucket}/{job.dest}"
        deadline = time.monotonic() + SECONDS_MAX
        outcome, last = "", ""
        unresolved: Counter[str] = Counter()
        accepted: set[str] = set()
        ending = job.ending
        while time.monotonic() < deadline:
            try:
                left = [one for one in mc.inspect(dest, s3=self._s3) if one.state != "closed"]
                if not left:
                    lost = tuple(self._name(key, job) for key in sorted(accepted))
                    return Ended("unresolved" if lost else outcome or _said(told), lost)
                self.used[ending] += 1
                outcome = self._by(ending, dest, left[0], accepted)
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

    def _by(self, ending: Ending, dest: str, found: mc.FoundJob, accepted: set[str]) -> str:
        if ending == "abort":
            return mc.abort(dest, found.id, revert=True, s3=self._s3).outcome or "aborted"
        if ending == "recover":
            keys = sorted(accepted)
            return mc.recover(dest, found.id, dead_after=0, accept=keys, s3=self._s3).outcome
        report = mc.cleanup(dest, dead_after=0, leftover_after=0, s3=self._s3)
        if report.errors:
            raise CleanupLeftIt("; ".join(report.errors))
        (outcome,) = {one.outcome for one in report.recovered} or {""}
        return outcome

    def _name(self, key: str, job: Round) -> str:
        return TOKEN.sub("", key.removeprefix(f"{job.dest}/"))


def _said(told: str) -> str:
    """What a driver's word is worth: where it did not know, nobody does."""
    return "" if told in ("unknown", "incomplete") else told
