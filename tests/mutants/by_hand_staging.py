"""Mutants written by hand: the rules of staging, whose files are local until the task's commit."""

from __future__ import annotations

from tests.mutants.handwork import Hand

ATTEMPT, SCAN = "committers/staging/attempt.py", "committers/staging/attempt.py"
LOCAL = "upload/local.py"

LOCAL_FILES = (
    Hand(
        "staging: a file that changed is published", ATTEMPT, "StagingAttempt._upload",
        (("self._refuse_changed(root, files)", "pass"),),
        "half of the old file and half of the new one appear",
    ),
    Hand(
        "staging: a disk without an end", ATTEMPT, "StagingAttempt._upload",
        (("refuse_full(used, self._options.local_bytes_max, f'attempt {self.attempt!r}')",
          "pass"),),
        "a task fills the disk of all others",
    ),
    Hand(
        "staging: what was uploaded of a failed task stays", ATTEMPT, "StagingAttempt._commit",
        (("self._abort_after(error)", "pass"),),
        "I4: uploads of a task that failed stay open",
    ),
    Hand(
        "staging: hidden files are uploaded", SCAN, "scan",
        (("is_hidden(entry.name)", "False"),),
        "a program's own temporary files appear in the table",
    ),
    Hand(
        "staging: a link is read", SCAN, "_ordinary",
        (("not stat.S_ISREG(seen.st_mode)", "False"),),
        "a link out of the directory publishes somebody else's file",
    ),
    Hand(
        "staging: a living process's files go", LOCAL, "remove_dead",
        (("if not mine:\n    continue", "pass"),),
        "the files of a task that is being written are removed under it",
    ),
)  # fmt: skip
