"""The mutants written by hand of `magic_committer.spark`: what it does without a Spark."""

from __future__ import annotations

from tests.mutants.handwork import Hand

FILES, PARTITIONING, TYPES = "spark/files.py", "spark/partitioning.py", "spark/types.py"

SPARK = (
    Hand(
        "rows of a rare partition are slices", PARTITIONING, "Partitioning.split",
        (("copied = mixed or (end - start) * 2 < batch.num_rows", "copied = mixed"),),
        "a task of format('magic') holds all its rows in memory, and is killed",
    ),
    Hand(
        "the empty text is a partition of its own", PARTITIONING, "path_element",
        ((
            "escape(text) if text else DEFAULT_PARTITION",
            "DEFAULT_PARTITION if text is None else escape(text)",
        ),),
        "Hive's layout: a directory 'p=', which Spark reads as another value, or not at all",
    ),
    Hand(
        "an open file is closed after an error", FILES, "_OpenFiles.give_up",
        ((
            "one.file.__exit__(type(why), why, why.__traceback__)",
            "one.file.__exit__(None, None, None)",
        ),),
        "a file of a task that failed counts as whole",
    ),
    Hand(
        "a partition that comes again has its name again", FILES, "_OpenFiles._begin",
        (("self._begun.get(directory, 0)", "0"),),
        "no row is lost: the second file of a partition replaces the first one",
    ),
    Hand(
        "void in an array is sent", TYPES, "_refuse_void_inside",
        (("_holds_void(kind)", "False"),),
        "what cannot be kept is refused before the job: Spark sends such lists with a wrong length",
    ),
)  # fmt: skip
"""All of them."""
