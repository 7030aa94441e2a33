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
    """A change of the library, and what it breaks.

    Attributes:
        committer, prop: the column and the row whose "yes" it turns into "no".
    """

    hand: Hand
    committer: str
    prop: str


FLAWS = {
    flaw.hand.name: flaw
    for flaw in (
        Flaw(
            Hand(
                "a failed Complete counts", "commit/complete.py", "completing",
                (("conflict = conflicts(answer, if_none_match)",
                  "return (Completion.DONE, None)"),),
                "a file whose Complete was lost on its way is told to be visible",
            ),
            "magic", "complete",
        ),
        Flaw(
            Hand(
                "one file of an attempt", "committers/staging/attempt.py", "StagingAttempt._files",
                (("[found[name] for name in sorted(found)]",
                  "[found[name] for name in sorted(found)][:1]"),),
                "a task uploads a part of what it has written, and commits",
            ),
            "directory", "complete",
        ),
        Flaw(
            Hand(
                "old data goes first", "commit/publish.py", "Publication.complete_all",
                (("self._visible = unanswered_run = 0",
                  "self.delete_replaced()\nself._visible = unanswered_run = 0"),),
                "who dies in the commit leaves neither old data nor new: what S3A does",
            ),
            "partitioned", "nothing lost on failure",
        ),
        Flaw(
            Hand(
                "everybody's uploads", "commit/sweep.py", "_Sweep._list_mine",
                (("uuid == self.job.uuid", "True"),),
                "the job that ends first aborts the uploads of all others: what S3A does",
            ),
            "directory", "concurrent jobs",
        ),
        Flaw(
            Hand(
                "a rename without an answer was done", "committers/manifest/publish.py", "_publish",
                (("last = error\nparts.pause(number)", "return 'done'"),),
                "a file is told to be visible that waits in the job's directory, and goes with it",
            ),
            "manifest", "complete",
        ),
        Flaw(
            Hand(
                "old files go first", "committers/manifest/publish.py", "publish_all",
                (("published = Renamed()",
                  "published = Renamed()\ndelete_replaced(parts, paths, plan, accept)"),),
                "who dies in the commit leaves neither old files nor new",
            ),
            "manifest", "nothing lost on failure",
        ),
        Flaw(
            Hand(
                "all of _temporary", "committers/manifest/undo.py", "sweep",
                (("tree = parts.tree", "tree = parts.tree\nremove_looking(parts, TEMPORARY)"),),
                "the job that ends first deletes what all others have written: what Hadoop does",
            ),
            "manifest", "concurrent jobs",
        ),
        Flaw(
            Hand(
                "a merge begins anew", "committers/classic/job_commit.py",
                "V1JobCommit._publish_tasks",
                (("not _is_there(self.parts, paths.merging)", "True"),),
                "who commits again looks for the tasks where they were before the merge",
                times=2,
            ),
            "v1 on files", "job commit repeatable",
        ),
        Flaw(
            Hand(
                "a directory without an answer was moved", "committers/classic/job_commit.py",
                "_move_directory",
                (("if _is_there(parts, entry.path):\n    raise", "pass"),),
                "the files of a task go with the job's directory",
            ),
            "v1 on files", "complete",
        ),
        Flaw(
            Hand(
                "v2 asks once", "committers/classic/attempt.py", "V2Attempt._publish",
                (("self._parts.again(lambda: rename_once(tree, source, file.name, file.size,"
                  " file.etag))",
                  "with suppress(Unanswered):\n    tree.rename(source, file.name)"),),
                "a file whose rename has no answer goes with the job's directory",
                imports="from contextlib import suppress",
            ),
            "v2 on files", "complete",
        ),
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
