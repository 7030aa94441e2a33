"""What is said of the committers, and why the comparison finds something else.

From Loughran and others, *A Zero-Rename Committer* (sections 8, 10 and 12, and its tables of
attributes), and Hadoop's pages "Manifest Committer Protocol" and "S3A Committers: Architecture",
whose "Resilience" speaks of both staging committers in one. They speak of v1 and v2 on a file
system: the columns "on files" are that, but by the library's own code; those "on S3" show what
becomes of it where a rename is copies and deletes. "Magic", the staging committers and "manifest"
there are Hadoop's. That its manifest committer repeats no commit and recovers no job is said in its
class (`isCommitJobRepeatable`, `isRecoverySupported`).
"""

from __future__ import annotations

from tests.properties.definitions import PROPERTIES

_NAMES = [one.name for one in PROPERTIES]
_SAID = """
magic                 y y y y y y n n n . n . y
directory             y y y y y y n n n . n n y
partitioned           y y y y y y n n n . n n y
manifest              y y y y y y n n n . n . y
v1 on files           y y y y y y n n n . n . y
v2 on files           y n y n n n y y . . n . n
v1 on S3              y y y y y y n n n . n . y
v2 on S3              y n y n n n y y . . n . n
direct                . n . y n y y . n . . . n
Stocator              . y . y n y y . n . . . n
Stocator, any reader  . y . y n y y . n . . . n
"""
"""By committer, and by property in their order: yes, no, or nobody speaks of it."""

SAID: dict[str, dict[str, bool]] = {
    line[:22].strip(): {
        name: word == "y"
        for name, word in zip(_NAMES, line[22:].split(), strict=True)
        if word != "."
    }
    for line in _SAID.strip().splitlines()
}

_RECORD = (
    "S3A keeps no record of a decision. Here the job's record names the plan, and whoever reads it"
    " finishes the same commit"
)
_DELETED_FIRST = (
    "S3A's job commit deletes what it replaces, then completes: who dies in between leaves neither"
    " old data nor new. Here the plan names what is replaced, and it is deleted after every new"
    " file is visible"
)
_OWN_UPLOADS = (
    "S3A's cleanup aborts every upload below the destination, by default. Here a job aborts its"
    " own alone"
)
_RENAME = (
    "said of a file system whose directories are renamed in one step. On an object store a rename"
    " is copies and deletes, and an attempt that goes on later adds its files (Hadoop's page says"
    " the same of GCS)"
)
_FAILED_COMMIT = (
    "said of an abort before `commitJob`. Here an abort after a commit that failed counts, too:"
    " it is what engines call then"
)
_NO_RECORD = (
    "Hadoop's class says that it cannot be. Here the job's record names the plan, and a rename"
    " that was done is known again: whoever reads the record finishes the same commit"
)
_OWN_DIRECTORY = (
    "in Hadoop a job that ends deletes all of `_temporary`, by default. Here everything of a job"
    " is in a directory with its UUID, and it deletes its own alone"
)
_MARKER = "said of the call `commitJob`, which only marks. A reader has seen parts long before"
_READER = "said of a reader that lists. This column's reader goes by the manifest"
_LISTING = "said of the manifest in `_SUCCESS`. A reader that lists finds whatever lies there"

WHY: dict[tuple[str, str], str] = {
    ("magic", "job commit repeatable"): _RECORD,
    ("magic", "job commit recoverable"): _RECORD,
    ("magic", "concurrent jobs"): _OWN_UPLOADS,
    **{
        (name, prop): why
        for name in ("directory", "partitioned")
        for prop, why in (
            ("job commit repeatable", _RECORD),
            ("job commit recoverable", _RECORD),
            ("concurrent jobs", _OWN_UPLOADS),
            ("nothing lost on failure", _DELETED_FIRST),
        )
    },
    ("manifest", "job commit repeatable"): _NO_RECORD,
    ("manifest", "job commit recoverable"): _NO_RECORD,
    ("manifest", "concurrent jobs"): _OWN_DIRECTORY,
    ("v1 on files", "abortable"): _FAILED_COMMIT,
    ("v1 on files", "job commit repeatable"): (
        "Hadoop's class says that it cannot be. Here a merge takes what another one has left, and"
        " the job's record says when nothing is"
    ),
    ("v1 on files", "concurrent jobs"): _OWN_DIRECTORY,
    ("v2 on files", "job commit atomic"): _MARKER,
    ("v2 on files", "continuity of correctness"): (
        "said of files that a late task puts where they go. Here they wait in the job's directory,"
        " which goes with the job: a late task finds none of them"
    ),
    ("v1 on S3", "complete"): _RENAME,
    ("v1 on S3", "exclusive"): _RENAME,
    ("v1 on S3", "continuity of correctness"): (
        "said of late tasks, of which v1 lets none in. Here late drivers count, too: MapReduce"
        " keeps them out by YARN's heartbeats, not by the committer"
    ),
    ("v1 on S3", "task commit atomic"): _RENAME,
    ("v1 on S3", "abortable"): _FAILED_COMMIT,
    ("v2 on S3", "complete"): (
        "said without late tasks. An attempt that was taken for lost goes on renaming, over the"
        " files of the next one, and deletes first what it finds"
    ),
    ("v2 on S3", "job commit atomic"): _MARKER,
    ("direct", "task commit atomic"): "said of `commitTask`, which does nothing. A part of an"
    " attempt's files is there when it dies",
    ("direct", "job commit atomic"): _MARKER,
    ("Stocator", "continuity of correctness"): _READER,
    ("Stocator", "invisible before the commit"): _READER,
    ("Stocator, any reader", "exclusive"): _LISTING,
    ("Stocator, any reader", "task commit atomic"): _LISTING,
    ("Stocator, any reader", "job commit atomic"): _LISTING,
}
"""Why the comparison finds something else than was said."""
