"""Hints that more than one module gives: one kind, one wording, one place."""

from __future__ import annotations

import errno

# Of a job and its attempts ------------------------------------------------------------------------

ID_USED_ONCE = (
    "A job id is used once: give another, or none and one is drawn; a start that is made again, for"
    " the job that it started before, takes exist_ok=True"
)
ENDED_OR_NEVER = "It may have ended, either way, or never been: look at the destination"
"""Of a job without a record."""
ANOTHER_ATTEMPT = "Run the task again as another attempt: job.task(...)"
"""Of an attempt that will never be committed."""
CLOSE_FIRST = (
    "Close each file before its block or its task ends, best by `with job.open(...) as f`; what"
    " comes too late needs another `write`, or another job.task(...)"
)
"""Of a file that was open, or was opened, when its attempt was committed."""
OWN_NAME = "Give each attempt of a task a name of its own; the job's sweep takes these files"
"""Of an attempt whose name another one has used."""

_GUESSED = {
    **dict.fromkeys(("put", "upload", "upload_file"), "put_file(path, name)"),
    **dict.fromkeys(("write", "save"), "open(name, 'w'), write_text(name, text) or write_bytes"),
    "path": "'magic://bucket/dest/name' in a `write` block, or filesystem=job.filesystem()",
    **dict.fromkeys(("close", "commit"), "the end of the `with` block"),
}
"""What callers look for instead of the right call."""


def no_attribute(of: object, name: str, call: str = "", whose: str = "") -> AttributeError:
    """Of a name that an object does not have; ``call``, of ``whose``, is the right one if known."""
    call = call or _GUESSED.get(name, "")
    told = f". Use {call}{whose}" if call else ""
    return AttributeError(f"{type(of).__name__!r} object has no attribute {name!r}{told}")


# Of what was read ---------------------------------------------------------------------------------

UPGRADE = "Upgrade magic-committer, if a newer version wrote it"
SAME_VERSION = "Use the same version of magic-committer in all processes of a job"

# Of this machine ----------------------------------------------------------------------------------


def of_disk(error: OSError) -> str:
    """Of a local file that could not be opened or written."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            "Too many files are open, connections among them: keep fewer files open at a time, or"
            " raise the limit before the program starts: ulimit -n 4096"
        )
    return "See the options buffer_dir and buffer_bytes_max"


# Of paths -----------------------------------------------------------------------------------------

S3_URL = "Write 's3://bucket/path'"
RELATIVE_NAME = "Write it relative to the destination: 'a/b.csv'"
SOURCE_CHANGED = (
    "The object was changed or deleted since it was listed: copy again when nobody writes there"
)
TOKEN_OUT = "The clean-up of that job would abort this upload: take the token out"
"""Of a name with the token of another job."""


def swept_there(what: str) -> str:
    """Of a path in a committer's own directory; ``what`` is to be chosen."""
    return f"What lies in there is swept when a job ends: choose another {what}"
