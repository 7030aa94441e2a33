"""Survivors that stay: why nothing can, or need, kill them. By id, with the reason."""

from __future__ import annotations

EXPLAINED: dict[str, str] = {
    "commit/gather.py:missing_uploads:plus:4a711201": (
        "the number is shown as progress only; what is missing does not depend on it"
    ),
    "commit/conflict.py:_of_decided_jobs:without part 1:f933ba23": (
        "the files of a job that is being reverted are spared: they go by their revert"
    ),
    "protocol/plan.py:KeySet.ticked:without part 1:91a5d790": (
        "equivalent: the second word of an empty slot is 0, so it is not ticked"
    ),
    "protocol/record.py:may_replace_marker:boundary:79193c0e": (
        "of jobs that complete in the same second either marker may stay: register.py says so"
    ),
    "commit/register.py:write_marker:or for and:c5f4bb59": (
        "the other quoting is tried one time too early: one more try of five, and no other write"
    ),
    "commit/register.py:write_marker:without part 2:c5f4bb59": (
        "the other quoting is tried one time too early: one more try of five, and no other write"
    ),
    "maintenance/uploads.py:OpenUploads._look_up:boundary:0b347015": (
        "an age that is the limit to the microsecond: dead or alive, both are within the grain"
    ),
    "maintenance/uploads.py:OpenUploads._neighbours:boundary:0b347015": (
        "an age that is the limit to the microsecond: near or not, both are within the grain"
    ),
    "commit/register.py::without Unanswered:06c4d78b": (
        "equivalent: what was sent and not answered is doubtful before this is asked"
    ),
    "commit/revert.py:_named:without part 2:498e1abe": (
        "an upload that two sets name is looked up twice; each key is counted once all the same"
    ),
    "committers/saved.py:SavedFiles.give_up:drop call:775adfb5": (
        "the abort of the file asks once more and comes to the same: a line more in the log"
    ),
    "maintenance/uploads.py:Places.record:without part 2:29e73bbc": (
        "equivalent: both callers ask whether it is certain only if there is no record"
    ),
    "maintenance/inspect.py:pendings_of:without part 2:cfdd990b": (
        "equivalent: the reply to a GET always carries metadata, none is an empty mapping"
    ),
    "maintenance/ending.py:Ending._absent:True:5d114f1b.2": (
        "equivalent: of this job only the UUID and the destination are asked for"
    ),
    "commit/driver.py:Driver.settle:drop raise:010ca5be": (
        "equivalent: the error of a job that was decided and reverted always has its report"
    ),
}
