"""Where processes are killed with SIGKILL, on any S3 server: a bucket that is read from outside,
and others who end what the dead have left."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import magic_committer as mc
from magic_committer.options import S3Options
from tests.kills import drivers
from tests.outside import Outside, etag
from tests.striker import Moment, struck

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(drivers.PRELOADED)

Work = Callable[..., None]
"""What a process does, by the way to its store and the proxy's URL, and its arguments."""


def expected(files: int) -> dict[str, str]:
    """Names and ETags of the files of a committed job: one part each."""
    return {drivers.name(n): etag(drivers.content(n)) for n in range(files)}


class Field:
    """A bucket, and jobs in it. ``way``: the way to the server of a URL. It travels to other
    processes. ``endings``: by which another process ends a job."""

    def __init__(
        self, way: Callable[[str], S3Options], url: str, bucket: str, chance: random.Random,
        endings: tuple[Work, ...] = (drivers.recover, drivers.cleanup, drivers.abort),
    ) -> None:  # fmt: skip
        self.way, self.url, self.chance = way, url, chance
        self.s3 = way(url)
        self.bucket, self._name, self._endings = Outside(self.s3, bucket), bucket, endings

    def dest(self) -> str:
        """A destination that nobody has used."""
        return f"s3://{self._name}/t{self.chance.getrandbits(48):012x}"

    def name(self, dest: str) -> str:
        """A destination's name in the bucket."""
        return dest.removeprefix(f"s3://{self._name}/")

    def moment(self, phase: int | None, requests: int) -> Moment:
        """Somewhere in a phase of so many requests; None: in all."""
        return Moment(phase, self.chance.randint(1, requests), self.chance.random() < 0.5)

    def work(self, work: Work) -> Any:
        """What a process is to do, with the way to the store."""
        return partial(work, self.way)

    def killed(self, work: Work, *arguments: str, moment: Moment | None) -> bool:
        """Run a process until it ends or is killed. Gives whether it was."""
        killed = struck(context, self.url, moment, self.work(work), *arguments)
        assert multiprocessing.active_children() == []
        return killed

    def only_job(self, dest: str) -> mc.FoundJob | None:
        """The job under a destination; None if its record is gone."""
        found = [one for one in mc.inspect(dest, s3=self.s3) if one.state != "closed"]
        assert len(found) <= 1
        return found[0] if found else None

    def finish(self, dest: str, job_id: str) -> None:
        """End a job from another process: recover it, clean up, or have it undone."""
        assert not self.killed(self.chance.choice(self._endings), dest, job_id, moment=None)

    def files(self, dest: str) -> dict[str, str]:
        """Names, without the job's token, and ETags of the data. Nothing else may be there but a
        closed record and the marker, which is there exactly if there is data; no upload is open."""
        name = self.name(dest)
        assert self.bucket.left(name) == []
        files = self.bucket.files(name)
        assert ("_SUCCESS" in self.bucket.objects(name)) == bool(files)
        return files
