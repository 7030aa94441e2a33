"""One property of one committer, with a flaw in the library itself: the table's "yes" turns "no".

    python -m tests.properties.mutated NAME

Imports the library with one of `FLAWS` (tests/mutants), plays until the flaw shows, and prints what
broke. The exit code is 1 if nothing did. In a process of its own: the library must not be imported
yet.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from tests.mutants import loading
from tests.mutants.handwork import Hand


@dataclass(frozen=True)
class Flaw:
    """A change of the library; the column and the row whose "yes" it turns into "no"."""

    hand: Hand
    committer: str
    prop: str


_COMPLETE_ALL = ("commit/publish.py", "Publication.complete_all")
_BEGIN = "self._visible = unanswered_run = 0"
_FIRST = f"self.delete_replaced()\n{_BEGIN}"
_FILES = "tuple((ManifestFile(name, found[name].size, found[name].etag) for name in sorted(found)))"
_GATHER = ("committers/manifest/attempt.py", "TreeAttempt._gather", _FILES, f"{_FILES}[:1]",
           "a task's manifest names a part of what it has written")  # fmt: skip
"""v1 and v2 lose no file by renames of their own: the decided job completes all of them again. So
their flaws are those of what they share with manifest."""

FLAWS = {
    name: Flaw(Hand(name, path, place, ((old, new),), breaks), committer, prop)
    for committer, prop, name, (path, place, old, new, breaks) in (
        ("magic", "complete", "a failed Complete counts",
         ("commit/complete.py", "_go_on", "conflict = conflicts(answer, if_none_match)",
          "return (Completion.DONE, None)",
          "a file whose Complete was lost on its way is told to be visible")),
        ("directory", "complete", "one file of an attempt",
         ("committers/staging.py", "StagingAttempt._found",
          "[look_at(root, name) for name in sorted(names)]",
          "[look_at(root, name) for name in sorted(names)][:1]",
          "a task uploads a part of what it has written, and commits")),
        ("partitioned", "nothing lost on failure", "old data goes first",
         (*_COMPLETE_ALL, _BEGIN, _FIRST,
          "who dies in the commit leaves neither old data nor new: what S3A does")),
        ("directory", "concurrent jobs", "everybody's uploads",
         ("commit/sweep.py", "_Sweep.mine", "uuid == self.job.uuid", "True",
          "the job that ends first aborts the uploads of all others: what S3A does")),
        ("manifest", "complete", "one file of a manifest", _GATHER),
        ("manifest", "nothing lost on failure", "old files go first",
         (*_COMPLETE_ALL, _BEGIN, _FIRST,
          "who dies in the commit leaves neither old files nor new")),
        ("manifest", "concurrent jobs", "all of _temporary",
         ("stores/tree.py", "TreeStore.clear",
          "removed, at = (0, directory.rstrip('/'))", "removed, at = (0, TEMPORARY)",
          "the job that ends first deletes what all others have written: what Hadoop does")),
        ("v1 on files", "job commit repeatable", "what is visible already is lost",
         ("commit/check.py", "missing_uploads",
          "look.state not in (UploadState.OPEN, UploadState.VISIBLE)",
          "look.state is not UploadState.OPEN",
          "who commits again misses what the first commit has renamed")),
        ("v1 on files", "complete", "to be decided is enough",
         (*_COMPLETE_ALL, _BEGIN, "return None",
          "a job is told committed whose files go with its directory")),
        ("v2 on files", "complete", "one file of a task of v2", _GATHER),
    )
}  # fmt: skip


def main() -> int:
    """0 if the flaw shows."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.mutated")
    parser.add_argument("name", choices=FLAWS)
    flaw = FLAWS[parser.parse_args().name]
    loading.install(flaw.hand.mutant())

    from tests.properties.comparison import compare  # with the flaw
    from tests.properties.subjects import OURS
    from tests.simulation.tally import quiet

    with quiet():
        column = compare(flaw.committer, OURS[flaw.committer], only=(flaw.prop,))
    cell = column.cells[flaw.prop]
    shown = "yes" if cell.witness is None else f"no: {cell.witness.words}"
    print(f"{flaw.committer}: {flaw.prop}: {shown} ({column.schedules} schedules)")
    return int(cell.holds)


if __name__ == "__main__":
    sys.exit(main())
