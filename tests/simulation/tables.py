"""What the protocol says, as tables: promises, arrows of the record, modes, errors."""

from __future__ import annotations

import re

from tests.simulation.truth import ENDS

PROMISES = {
    "I1": "invisible",
    "I2": "complete and exclusive",
    "I3": "abortable",
    "I4": "no leaks",
    "I5": "repeatable",
    "I6": "neighbourly",
    "I7": "nothing lost",
    "I8": "marked last",
    "I9": "cut input",
    "I10": "truth",
    "record": "no promise by itself: an arrow that the job record does not have",
}

ARROWS = {
    "": {"running"},
    "absent": set(),
    "running": {"committing", "aborting"},
    "committing": {"completed", "reverting"},
    "completed": {"closed"},
    "reverting": {"reverted"},
    "reverted": {"closed"},
    "aborting": {"closed"},
    "closed": set(),
}
"""The arrows of the job record (protocol.md), deletions apart."""

REMOVALS = {"running", "completed", "aborting", "closed"}
"""States in which a record may be deleted."""

SWEPT = ("completed", "reverted", "aborting", *ENDS)
"""States in which what a job has left, and no plan names, may go."""
CLOCK_SECONDS = 1.0
"""Last-Modified and Date are whole seconds."""
READS = ("get", "head", "list", "list_parts", "list_uploads")

FAILING = ("fail", "fail_partitions")
REPLACING = ("replace", "replace_partitions")
EXCLUDING = (*FAILING, *REPLACING)
"""Modes of which two jobs never publish at once in one place."""

UNIQUE = re.compile(r"(^|[-_.])mcj([0-9a-f]{32})(?=[-_.]|$)")
"""A job's UUID in a file's name (protocol.md, "Whose upload is it?")."""

NOT_COMMITTED = {"IncompleteJob", "OptionError", "ConflictingJob", "BatchUnsettled"}
"""Errors that say: not committed."""
ABORTED = {"CommitRefused", "DestinationExists", "AbortIncomplete"}
TOLD = {*NOT_COMMITTED, *ABORTED, "CommitIncomplete", "JobNotRunning", "OutcomeUnknown"}
"""Errors that say something of the job; of all others it is only sure that their call decided
nothing."""
