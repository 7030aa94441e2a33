"""Who is compared, and what a committer must offer for that: the verbs of Hadoop's
`OutputCommitter`, and recovery.

A subject holds no state of its own between calls. What it must remember travels as a value, as it
does between a driver and its executors: ``job`` from `begin`, ``attempt`` inside one process, and a
task's ``result``. Every request that it sends must pass the stage's hooks; those of the stage's
store do so by themselves, and those of its tree through `ours.SeenTree`. A failure is a
`MagicError`: the play then does what engines do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tests.properties.foils import Direct, FileOutput, Locked, SharedList, Stocator
from tests.properties.ours import V1, V2, Directory, Magic, Manifest, Partitioned
from tests.properties.stage import Process, Stage, View


class Subject(Protocol):
    """One committer.

    * ``name``: its name in the table. ``read``: what a reader of its data finds.
    * ``begin``: start a job of a name that no other job of the play has, which adds to what the
      destination holds or replaces it, by whatever way engines do that with this committer; gives
      what all other calls need of it.
    * ``attempt``: start an attempt of a task; its number counts from 1. ``write``: write one file
      of it, and close it. ``commit_task``: what it returns reaches the driver, if the process
      lives.
    * ``commit_job``: with the results of the attempts that the driver accepted, one for each task.
      Returning says: it is committed; and from ``abort_job``: it is aborted.
    * ``recover``: end a job whose driver is dead, by another process that knows the destination and
      the job's name. Gives ``"committed"``, ``"aborted"``, or ``""``: it cannot tell.
    """

    @property
    def name(self) -> str: ...
    def read(self, stage: Stage) -> View: ...
    def begin(self, process: Process, name: str, *, replace: bool) -> Any: ...
    def attempt(self, process: Process, job: Any, task: str, number: int) -> Any: ...
    def write(self, process: Process, attempt: Any, name: str, data: bytes) -> None: ...
    def commit_task(self, process: Process, attempt: Any) -> Any: ...
    def abort_task(self, process: Process, attempt: Any) -> None: ...
    def commit_job(self, process: Process, job: Any, results: Sequence[Any]) -> None: ...
    def abort_job(self, process: Process, job: Any) -> None: ...
    def recover(self, process: Process, name: str) -> str: ...


OURS: dict[str, tuple[Subject, ...]] = {
    "magic": (Magic("magic, by results"), Magic("magic, by listing", "s3", "listing")),
    "directory": (Directory("directory", accept="listing"),),
    "partitioned": (Partitioned("partitioned"),),
    "manifest": (Manifest("manifest, by listing, in a directory", "memory", "listing", "d"),),
    "v1 on files": (V1("v1, by results"),),
    "v2 on files": (V2("v2, by results"),),
}
"""The library's committers: of uploads on a store, of renames on a file tree. A column may have
variants: a property holds for it if it holds for each of them."""

COMPLETE = ("magic", "directory", "partitioned", "manifest")
"""Those of them that keep every property but one."""

FOILS: dict[str, tuple[Subject, ...]] = {
    "v1 on S3": (FileOutput("v1 on S3", 1),),
    "v2 on S3": (FileOutput("v2 on S3", 2),),
    "direct": (Direct("direct"),),
    "Stocator": (Stocator(),),
    "Stocator, any reader": (Stocator("Stocator, any reader", plain=True),),
}
"""What others do on S3."""

FLAWED: dict[str, tuple[Subject, ...]] = {"shared list": (SharedList(),), "locked": (Locked(),)}
"""Not in the table."""
EVERYBODY = {**OURS, **FOILS, **FLAWED}
