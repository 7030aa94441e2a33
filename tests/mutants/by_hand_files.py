"""Mutants written by hand: the rules of `Task.discard` and of a task as a file system."""

from __future__ import annotations

from tests.mutants.handwork import Hand

ATTEMPT, TURNS = "committers/magic/attempt.py", "committers/magic/turns.py"

FILES = (
    Hand(
        "discard: a commit runs beside it", TURNS, "Turns.commit",
        (("if self._discarding:\n    raise self.busy('changed: a file is discarded')", "pass"),),
        "the commit stores an upload that is being aborted: the job can never be finished",
    ),
    Hand(
        "discard: what others may commit is aborted", ATTEMPT, "Attempt._take_out",
        (("self._saved.shared", "False"),),
        "another process has committed the upload that is aborted here",
    ),
    Hand(
        "discard: the .pending stays", ATTEMPT, "Attempt._take_out",
        (("self._tree.take_out(self._paths.pending(self.attempt, file.name))", "pass"),),
        "the task's commit lists a file whose upload is gone",
    ),
    Hand(
        "discard: a file is out only when its upload is", ATTEMPT, "Attempt._take_out",
        (("file.discarded = True", "pass"),),
        "a discarded file is published, because its abort had failed",
    ),
    Hand(
        "files: hidden ones are left out in silence", "filesystem/local.py", "local_files",
        (("left_out.append(name)", "pass"),),
        "nobody learns that a file was not put",
    ),
    Hand(
        "files: one that changes is put", "filesystem/local.py", "put_one",
        (("(total, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns)", "False"),),
        "half of the old file and half of the new one appear",
    ),
)  # fmt: skip
